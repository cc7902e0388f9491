"""The trainer's end of its connection to a kernel. A reply takes a bounded share of its memory.

[number, mode, source] -> size, JSON -> kernel -> size, JSON -> on_reply -> Reply

Every field of a `Reply` has the type and size it should. It need not be true: code in a kernel owns
the kernel and can write any reply. Knows bytes and sizes. Does not know deadlines, nor what a reply
is used for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

from repl_sandbox.types import SIZE_BYTES, ExecStatus, Limits

STATUSES = {str(each): each for each in (ExecStatus.OK, ExecStatus.INCOMPLETE, ExecStatus.ERROR)}
MAX_NAME_CHARS = 100
MAX_COUNT = 1 << 40
READ_BYTES = 1 << 14
"""At once. Most replies are shorter."""


def pack(message: object) -> bytes:
    """The bytes of a message. Text may hold lone surrogates, which JSON escapes."""
    body = json.dumps(message).encode("ascii")
    return len(body).to_bytes(SIZE_BYTES, "big") + body


class KernelConnection(asyncio.BufferedProtocol):
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
        # asyncio's own buffer, 256 KiB for each read, may be given back to Linux each time.
        self._space = bytearray(READ_BYTES)
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

    def get_buffer(self, _size_hint: int) -> bytearray:
        """Return the space for what comes next."""
        return self._space

    def buffer_updated(self, num_bytes: int) -> None:
        self._buffer += self._space[:num_bytes]
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


class WireError(ValueError):
    """Bytes that are not the reply that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: ExecStatus
    head: str
    tail: str
    num_omitted: int
    error_type: str | None
    value: str | None


def read_reply(body: bytes, *, number: int, limits: Limits) -> Reply:
    """The reply to request `number`. Raises WireError for anything else."""
    try:
        answered, status_name, head, tail, num_omitted, error_type, value = json.loads(body)
    # RecursionError: a few kilobytes of `[` are enough. TypeError: not an array.
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"not a reply: {error}") from None
    if type(answered) is not int or answered != number:
        raise WireError("not the reply that was asked for")
    status = STATUSES.get(_text(status_name, "status", max_chars=MAX_NAME_CHARS))
    if status is None:
        raise WireError("an unknown status")
    error_type = _optional_text(error_type, "error type", max_chars=MAX_NAME_CHARS)
    if error_type is not None and not error_type.isidentifier():
        raise WireError("an error type that is no name")
    if (error_type is not None) != (status is ExecStatus.ERROR):
        raise WireError("an error without a name, or a name without an error")
    if type(num_omitted) is not int or not 0 <= num_omitted <= MAX_COUNT:
        raise WireError("what was left out is no count")
    return Reply(
        status=status,
        head=_text(head, "head", max_chars=limits.max_output_chars),
        tail=_text(tail, "tail", max_chars=limits.max_output_chars),
        num_omitted=num_omitted,
        error_type=error_type,
        value=_optional_text(value, "value", max_chars=limits.max_value_chars),
    )


def _text(text: object, name: str, *, max_chars: int) -> str:
    if not isinstance(text, str) or len(text) > max_chars:
        raise WireError(f"{name} is no text of at most {max_chars} characters")
    return text


def _optional_text(text: object, name: str, *, max_chars: int) -> str | None:
    return None if text is None else _text(text, name, max_chars=max_chars)
