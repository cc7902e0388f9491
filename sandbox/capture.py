"""A text stream that keeps head and tail of what is written, and does not take it endlessly.

Stands for stdout and stderr at once inside a kernel, so their order is kept.
Knows characters. Does not know prompts, rendering or who writes.
"""

from __future__ import annotations

from io import TextIOBase

MAX_WRITTEN_CHARS = 1 << 20
"""Reached within the CPU time of a line also by the shortest of prints."""


class OutputLimit(RuntimeError):
    """A line printed more than any transcript could hold."""


# The traceback names it the way it names the interpreter's own errors.
OutputLimit.__module__ = "builtins"


class Capture(TextIOBase):
    """Keeps `max_chars` from the head and `max_chars` from the tail of what is written."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, *, max_chars: int) -> None:
        self._max_chars = max_chars
        self.clear()

    def clear(self) -> None:
        self._head: list[str] = []
        self._num_head = 0
        self._tail: list[str] = []
        self._num_tail = 0
        self._num_written = 0

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing to close: the next line writes to the same stream."""

    def write(self, text: str) -> int:
        """Take `text`. Raises OutputLimit once the line has written `MAX_WRITTEN_CHARS`."""
        if type(text) is not str:
            if not isinstance(text, str):
                raise TypeError(f"write() argument must be str, not {type(text).__name__}")
            # A subclass of str could answer slices with anything.
            text = str.__str__(text)
        self.add_unlimited(text)
        if self._num_written > MAX_WRITTEN_CHARS:
            raise OutputLimit(f"more than {MAX_WRITTEN_CHARS} characters of output")
        return len(text)

    def add_unlimited(self, text: str) -> None:
        """Take `text` without raising: for the traceback that ends a line."""
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

    def kept(self) -> tuple[str, str, int]:
        """(head, tail, how many characters between them are gone)."""
        self._cut_tail()
        num_omitted = self._num_written - self._num_head - self._num_tail
        return "".join(self._head), "".join(self._tail), num_omitted

    def _cut_tail(self) -> None:
        tail = "".join(self._tail)[-self._max_chars :]
        self._tail = [tail]
        self._num_tail = len(tail)
