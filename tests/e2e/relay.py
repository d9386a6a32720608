#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# relay.py LISTEN-PORT TARGET-PORT [DELAY-MS BYTES-A-SECOND]: passes TCP connections on loopback on, if wanted so late and no
# faster, each way. Stopped (SIGSTOP), it is a network that swallows everything: connections stay open and new ones are accepted by
# the kernel, but nothing comes through.
import collections
import select
import socket
import sys
import time

PIECE_BYTES = 1 << 16


class End:
    """One end of a connection, with what is to be sent to it: (when, bytes)."""

    def __init__(self, connection):
        self.connection = connection
        self.waiting = collections.deque()
        self.waiting_bytes = 0
        self.link_free = 0.0
        self.connecting = False
        self.other = None
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self):
        return self.connection.fileno()


def main():
    port, target = int(sys.argv[1]), int(sys.argv[2])
    delay = int(sys.argv[3]) / 1000 if len(sys.argv) > 3 else 0.0
    rate = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    held_bytes = (1 << 18) + 2 * int(delay * rate)  # what one side has sent and the other has not got
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    listener.setblocking(False)
    ends = set()

    def drop(end):
        for one in (end, end.other):
            ends.discard(one)
            one.connection.close()

    def accept():
        near = End(listener.accept()[0])
        far = End(socket.socket())
        near.other, far.other, far.connecting = far, near, True
        far.connection.connect_ex(("127.0.0.1", target))
        ends.update((near, far))

    def receive(end):
        try:
            data = end.connection.recv(PIECE_BYTES)
        except OSError:
            data = b""
        if not data:
            drop(end)
            return
        to, now = end.other, time.monotonic()
        to.link_free = max(to.link_free, now) + (len(data) / rate if rate else 0)
        to.waiting.append((to.link_free + delay, data))
        to.waiting_bytes += len(data)

    def send(end):
        try:
            if end.connecting:
                if end.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                    raise OSError
                end.connecting = False
            while end.waiting and end.waiting[0][0] <= time.monotonic():
                due, data = end.waiting.popleft()
                sent = end.connection.send(data)
                end.waiting_bytes -= sent
                if sent < len(data):
                    end.waiting.appendleft((due, data[sent:]))
                    break
        except BlockingIOError:
            end.waiting.appendleft((due, data))
        except OSError:
            drop(end)

    while True:
        now = time.monotonic()
        reading = [end for end in ends if not end.connecting and end.other.waiting_bytes < held_bytes]
        writing = [end for end in ends if end.connecting or (end.waiting and end.waiting[0][0] <= now)]
        soonest = min((end.waiting[0][0] for end in ends if end.waiting and end not in writing), default=None)
        readable, writable, _ = select.select(
            reading + [listener], writing, [], None if soonest is None else max(0.0, soonest - now))
        for end in readable:
            if end is listener:
                accept()
            elif end in ends:
                receive(end)
        for end in writable:
            if end in ends:
                send(end)


main()
