#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# relay.py LISTEN-PORT TARGET-PORT: passes TCP connections on loopback on. Stopped (SIGSTOP), it is a network that swallows
# everything: connections stay open and new ones are accepted by the kernel, but nothing comes through.
import select
import socket
import sys

HELD_BYTES = 1 << 18  # that one side has sent and the other has not taken


def main():
    port, target = int(sys.argv[1]), int(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    listener.setblocking(False)
    other, waiting, connecting = {}, {}, set()

    def drop(one):
        for end in (one, other.pop(one)):
            other.pop(end, None)
            waiting.pop(end, None)
            connecting.discard(end)
            end.close()

    while True:
        reading = [end for end in other if end not in connecting and len(waiting[other[end]]) < HELD_BYTES]
        writing = [end for end in other if waiting[end] or end in connecting]
        readable, writable, _ = select.select(reading + [listener], writing, [])
        for end in readable:
            if end is listener:
                near, _ = listener.accept()
                far = socket.socket()
                for one in (near, far):
                    one.setblocking(False)
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    waiting[one] = b""
                far.connect_ex(("127.0.0.1", target))
                connecting.add(far)
                other[near], other[far] = far, near
            elif end in other:
                try:
                    data = end.recv(HELD_BYTES)
                except OSError:
                    data = b""
                if data:
                    waiting[other[end]] += data
                else:
                    drop(end)
        for end in writable:
            if end not in other:
                continue
            try:
                if end in connecting:
                    if end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                        raise OSError
                    connecting.discard(end)
                waiting[end] = waiting[end][end.send(waiting[end]):]
            except BlockingIOError:
                pass
            except OSError:
                drop(end)


main()
