"""CPU limit for reading a submission: a timer of the kernel ends the grader's process.

    worker: limit_reading() -> parse: with reading(): ... -> over it the process ends by READ_SIGNAL

The process is ended, not interrupted: sympy swallows exceptions, and one from outside would leave
its caches half written. Without a call of `limit_reading` there is no limit.

Knows neither the parser nor the process that is ended.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from contextvars import ContextVar

READING_S = 1.0
"""CPU time. Answers are read in about 1 ms; one that takes a thousand is built to be slow."""
READ_SIGNAL = signal.SIGPROF
"""What ends a process that reads for too long. Its default action needs no Python, so a loop in C
ends as well."""

_limit_s: ContextVar[float] = ContextVar("limit_s", default=0.0)  # 0: no limit


def limit_reading() -> None:
    """Let every later `reading` of this thread end the process after READING_S."""
    signal.signal(READ_SIGNAL, signal.SIG_DFL)
    _limit_s.set(READING_S)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """CPU time inside this context counts as reading."""
    limit_s = _limit_s.get()
    if not limit_s:
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
