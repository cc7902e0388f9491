"""Messages between a grader and its worker, and the clock of an answer's reading.

    Request  {"task_spec", "problem" | null, "submission" | null}   problem null: only load the task
    Reply    {"verdict" | null, "failure"}                     failure: the task could not be loaded

A message is one JSON object a line. A parser marks its work as `reading`, which ends the worker's
process after READING_S. Knows neither grader nor worker.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from repl_rl.records import Problem, Verdict

MAX_MESSAGE_BYTES = 1 << 20
MAX_TEXT_CHARS = 1 << 16
"""The longest submission that is sent, and the longest text in a verdict that comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderRequest:
    task_spec: str
    """`module:Class`, a task with `grade(problem, submission)`."""
    problem: Problem | None = None
    submission: str | None = None
    """None: the task's own reference answer. If it has none, the verdict is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderReply:
    verdict: Verdict | None = None
    failure: str = ""


READING_S = 1.0
"""CPU time. Answers are read in about 1 ms; one that takes a thousand is built to be slow."""
READ_SIGNAL = signal.SIGPROF
"""Signal that ends a process that reads for too long. Its default action needs no Python, so a loop
in C ends as well."""

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
