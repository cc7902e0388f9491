"""A lack of memory in one line, with what to lower: libraries have no common type for it.

Knows errors of Python and torch. Does not know what the memory was for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from repl_rl.errors import ShortageError

_SAID = ("allocate memory", "out of memory", "OutOfMemoryError", "MemoryError")
"""By torch on a CPU, which has no type of its own, on a GPU, and by engines that quote them."""


@contextlib.contextmanager
def shortage_explained(purpose: str, *, remedy: str) -> Iterator[None]:
    """ShortageError where the block finds no memory; it says what for, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(text in str(error) for text in _SAID):
            raise
        raise ShortageError(f"no memory for {purpose}; {remedy}") from error
