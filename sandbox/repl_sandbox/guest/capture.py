"""Store for stdout and stderr of a kernel: it keeps the head and the tail of what is written.

print -> TextIOWrapper, as in any Python -> Capture

Both streams go to one place, so their order is kept. Knows characters. Does not know prompts,
rendering or who writes.
"""

from __future__ import annotations

import os
from codecs import utf_8_decode
from collections.abc import Callable
from io import RawIOBase, TextIOWrapper
from typing import Any

MAX_WRITTEN_CHARS = 1 << 20
"""Even the shortest `print` reaches this within the CPU time of a line."""


SPILL_BYTES = 1 << 16
"""Bytes that a pipe holds."""
READ = os.read


class OutputLimit(RuntimeError):
    """A line printed more than any transcript could hold."""


# The traceback names it the way it names the interpreter's own errors.
OutputLimit.__module__ = "builtins"


class Capture:
    """Keeps `max_chars` from the head and `max_chars` from the tail of what is written."""

    def __init__(self, *, max_chars: int, spilt: Callable[[], str] = str) -> None:
        self._max_chars = max_chars
        self._spilt = spilt
        self.clear()

    def clear(self) -> None:
        self._head: list[str] = []
        self._num_head = 0
        self._tail: list[str] = []
        self._num_tail = 0
        self._num_written = 0

    def open(self, fd: int, name: str, *, mode: str = "w", errors: str = "strict") -> TextIOWrapper:
        """A stream like the one CPython opens on `fd`. Closing it does not close the capture."""
        end = _End(self, fd, name, mode)
        stream = TextIOWrapper(end, "utf-8", errors, write_through=True)
        vars(stream)["mode"] = mode
        return stream

    def take(self, text: str) -> None:
        """Keep `text`. Raises OutputLimit once the line has written `MAX_WRITTEN_CHARS`."""
        self.take_unlimited(text)
        if self._num_written > MAX_WRITTEN_CHARS:
            raise OutputLimit(f"more than {MAX_WRITTEN_CHARS} characters of output")

    def take_unlimited(self, text: str) -> None:
        """Keep `text` without raising: for the traceback that ends a line."""
        text = self._spilt() + text
        self._num_written += len(text)
        room = self._max_chars - self._num_head
        if room > 0:
            self._head.append(text[:room])
            self._num_head += min(room, len(text))
            text = text[room:]
        if text:
            self._tail.append(text[-self._max_chars :])
            self._num_tail += min(len(text), self._max_chars)
            # Cut rarely: cutting at every write would copy the tail for every `print`.
            if self._num_tail > 8 * self._max_chars:
                self._cut_tail()

    def captured(self) -> tuple[str, str, int]:
        """(head, tail, how many characters between them are gone)."""
        self.take_unlimited("")
        self._cut_tail()
        num_omitted = self._num_written - self._num_head - self._num_tail
        return "".join(self._head), "".join(self._tail), num_omitted

    def _cut_tail(self) -> None:
        tail = "".join(self._tail)[-self._max_chars :]
        self._tail = [tail]
        self._num_tail = len(tail)


class Spill:
    """Pipe for what is written past Python's streams, on this process's descriptors 1 and 2.

    A writer that fills it before anybody has read gets an error, as at a terminal that is stopped.
    """

    def __init__(self) -> None:
        self.fd, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for fd in (1, 2):
            os.dup2(writer, fd)
        os.close(writer)

    def take(self) -> str:
        """Return what has come since the last time."""
        try:
            return utf_8_decode(READ(self.fd, SPILL_BYTES), "replace", True)[0]
        # Nothing has, or a line has closed it.
        except OSError:
            return ""


class _End(RawIOBase):
    """The raw end of a stream. Reading finds the end of the file."""

    def __init__(self, capture: Capture, fd: int, name: str, mode: str) -> None:
        self._capture = capture
        self._fd = fd
        self.name = name
        self.mode = mode

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return self.mode == "r"

    def writable(self) -> bool:
        return self.mode == "w"

    def readinto(self, buffer: object) -> int:
        return 0

    def write(self, data: Any) -> int:  # Any: whatever has a buffer
        text, num_bytes = utf_8_decode(data, "replace", True)
        self._capture.take(text)
        return num_bytes
