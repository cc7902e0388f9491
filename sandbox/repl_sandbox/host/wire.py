"""The trainer's end of its connection to a kernel. A reply takes a bounded share of its memory.

[number, mode, source] -> size, JSON -> kernel -> size, JSON -> on_reply

Knows bytes and sizes. Does not know deadlines, nor what a reply means.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from repl_sandbox.sockets import SIZE_BYTES


def pack(message: object) -> bytes:
    """The bytes of a message. Text may hold lone surrogates, which JSON escapes."""
    body = json.dumps(message).encode("ascii")
    return len(body).to_bytes(SIZE_BYTES, "big") + body


class KernelConnection(asyncio.Protocol):
    """Calls `on_reply` with the JSON of each message, and `on_lost` at the end.

    A peer that announces more than `max_reply_bytes` is disconnected: the owner sees `on_lost`.
    """

    def __init__(
        self,
        *,
        on_reply: Callable[[bytes], None],
        on_lost: Callable[[], None],
        max_reply_bytes: int,
    ) -> None:
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._max_reply_bytes = max_reply_bytes
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_closing = False
        self.closed = asyncio.Event()
        """Set when the socket is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, message: object) -> None:
        """Queue one message. It is dropped if the connection is lost: see `on_lost`."""
        assert self._transport is not None
        self._transport.write(pack(message))

    def close(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._buffer.clear()
        self.closed.set()
        self._on_lost()

    def data_received(self, received: bytes) -> None:
        self._buffer += received
        # Of a connection that is being closed nothing more is parsed.
        while not self._is_closing and self._take_reply():
            pass

    def _take_reply(self) -> bool:
        """Take one whole reply out of the buffer. False if there is none."""
        if len(self._buffer) < SIZE_BYTES:
            return False
        end = SIZE_BYTES + int.from_bytes(self._buffer[:SIZE_BYTES], "big")
        if end > self._max_reply_bytes:
            self.close()
            return False
        if len(self._buffer) < end:
            return False
        body = bytes(self._buffer[SIZE_BYTES:end])
        del self._buffer[:end]
        self._on_reply(body)
        return True
