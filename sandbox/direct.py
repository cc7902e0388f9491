"""The kernel's end of its owner's connection: ZeroMQ's protocol without libzmq's threads.

bytes of the trainer -> frames -> [ReplKernel] -> frames -> bytes

The peer of `zmtp.DealerProtocol`. libzmq reads and writes in a thread of its own: a line would wait
for two more wake-ups and some thirty system calls. Knows bytes and frames. Does not know Jupyter.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from sandbox.zmtp import COMMAND, GREETING, LONG, MORE, encode, frame, ready

OUR_OPENING, THEIR_OPENING = (
    GREETING + frame(COMMAND, ready(kind)) for kind in (b"ROUTER", b"DEALER")
)


class DirectSocket:
    """The owner's connection: one request at a time, as ours are."""

    def __init__(self, listener: socket.socket) -> None:
        self._connection, _ = listener.accept()
        self._connection.sendall(OUR_OPENING)
        # Not a byte more: of what is read ahead `poll` does not tell.
        self._connection.recv(len(THEIR_OPENING), socket.MSG_WAITALL)

    def fileno(self) -> int:
        return self._connection.fileno()

    def recv_multipart(self) -> list[bytes]:
        """The next request. Raises ConnectionError where there is none to come."""
        buffer = bytearray()
        while (frames := _frames(buffer)) is None:
            received = self._connection.recv(1 << 16)
            if not received:
                raise ConnectionError("the owner hung up")
            buffer += received
        return frames

    def send_multipart(self, frames: Sequence[bytes]) -> None:
        self._connection.sendall(encode(frames))


def _frames(buffer: bytearray) -> list[bytes] | None:
    """The frames of one message; None while some are missing."""
    frames: list[bytes] = []
    end, flags = 0, MORE
    while flags & MORE:
        if len(buffer) < end + 2:
            return None
        flags = buffer[end]
        start = end + (9 if flags & LONG else 2)
        end = start + int.from_bytes(buffer[end + 1 : start], "big")
        if len(buffer) < end:
            return None
        frames.append(bytes(buffer[start:end]))
    return frames
