"""The client half of ZeroMQ's wire protocol over a unix socket, for an untrusted peer.

bytes of a kernel -> bounded list of frames -> on_message

A DEALER of ZMTP 3.0 with the NULL mechanism (rfc.zeromq.org/spec/23): a stock ROUTER socket cannot
tell it from libzmq. It exists because libzmq bounds a frame but not the number of
frames of a message, so a kernel could fill the trainer's memory; and it needs no thread in the
trainer's process. Knows bytes and frames. Does not know Jupyter, signatures or deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

GREETING_BYTES = 64
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4
MAX_FRAMES = 16


def _property(name: bytes, text: bytes) -> bytes:
    return bytes([len(name)]) + name + len(text).to_bytes(4, "big") + text


def ready(kind: bytes) -> bytes:
    """What a socket of this kind says after its greeting."""
    return b"\x05READY" + _property(b"Socket-Type", kind) + _property(b"Identity", b"")


def encode(frames: Sequence[bytes]) -> bytes:
    """One multipart message as it goes over the wire."""
    chunks = []
    for index, body in enumerate(frames):
        more = MORE if index < len(frames) - 1 else 0
        chunks.append(frame(more, body))
    return b"".join(chunks)


def frame(flags: int, body: bytes) -> bytes:
    if len(body) > 255:
        return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


class DealerProtocol(asyncio.Protocol):
    """One connection: calls `on_message` with each message's frames, `on_lost` at its end.

    A peer that breaks the protocol or exceeds `max_message_bytes` is disconnected, which is all
    that the owner hears of it.
    """

    def __init__(
        self,
        *,
        on_message: Callable[[list[bytes]], None],
        on_lost: Callable[[], None],
        max_message_bytes: int,
    ) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._max_message_bytes = max_message_bytes
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._frames: list[bytes] = []
        self._num_message_bytes = 0
        self._is_greeted = False
        self._is_closing = False
        self.ready = asyncio.Event()
        """Set once the peer shook hands or hung up. A stock peer refuses what comes earlier."""
        self.closed = asyncio.Event()
        """Set when the socket is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(GREETING + frame(COMMAND, ready(b"DEALER")))

    def send(self, frames: Sequence[bytes]) -> None:
        """Queue one message, once `ready`. A lost connection swallows it: see `on_lost`."""
        assert self._transport is not None
        self._transport.write(encode(frames))

    def close(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._buffer.clear()
        self.closed.set()
        self.ready.set()
        self._on_lost()

    def data_received(self, received: bytes) -> None:
        self._buffer += received
        if not self._is_greeted and not self._take_greeting():
            return
        # Once it is to be closed, what came before is not worth the time to parse it.
        while not self._is_closing and self._take_frame():
            pass

    def _take_greeting(self) -> bool:
        if len(self._buffer) < GREETING_BYTES:
            return False
        if self._buffer[0] != 0xFF or self._buffer[10] < 3:
            self._refuse()
            return False
        del self._buffer[:GREETING_BYTES]
        self._is_greeted = True
        return True

    def _take_frame(self) -> bool:
        """Consume one whole frame from the buffer; False if there is none."""
        if len(self._buffer) < 2:
            return False
        flags = self._buffer[0]
        if flags > MORE | LONG | COMMAND:
            return self._refuse()
        start = 9 if flags & LONG else 2
        if len(self._buffer) < start:
            return False
        size = int.from_bytes(self._buffer[1:start], "big")
        if self._num_message_bytes + size > self._max_message_bytes:
            return self._refuse()
        if len(self._buffer) < start + size:
            return False
        body = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        if flags & COMMAND:
            # Its READY; a peer of ours has nothing else to command, and could do so without end.
            if self.ready.is_set() or flags & MORE:
                return self._refuse()
            self.ready.set()
            return True
        return self._add_frame(body, is_last=not flags & MORE)

    def _add_frame(self, body: bytes, *, is_last: bool) -> bool:
        self._frames.append(body)
        self._num_message_bytes += len(body)
        if is_last:
            frames, self._frames, self._num_message_bytes = self._frames, [], 0
            self._on_message(frames)
        elif len(self._frames) == MAX_FRAMES:
            return self._refuse()
        return True

    def _refuse(self) -> bool:
        self.close()
        return False
