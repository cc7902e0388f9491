"""The grader's process: judges requests from a pipe, one by one; never runs what a policy wrote.

    stdin -> load a task -> walls -> [Request -> task.grade(...) -> Reply]* -> stdout

Started as `python -P -m repl_rl.grading.worker`. Reading a submission has a limit
(`clock`). There is no other deadline here: the parent kills the process. It dies with its parent,
and at the end of its input.

sympy is large, and what it reads is a stranger's text. So once a task is loaded, the process has
walls around it where the machine has any: it may read what Python can import, and compute. No file
is written, no program or thread started, no address reached, no other process signalled.

Knows tasks by their specification only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

import msgspec

from repl_rl.base.plugins import load_spec
from repl_rl.grading.protocol import (
    MAX_MESSAGE_BYTES,
    MAX_TEXT_CHARS,
    GraderReply,
    GraderRequest,
    limit_reading,
)
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_sandbox.walls import confine

_PR_SET_PDEATHSIG = 1
MEMORY_BYTES = 2 << 30
BLANK = "''"
"""The submission that stands for a reference where a problem has none: an empty text."""
LIBRARIES = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/etc/localtime", "/usr/share/zoneinfo", "/dev/null", "/dev/urandom"),
)


class GradingTask(Protocol):
    """The part of a task that is needed here.

    A task with `starts_processes = True` gets no walls: its `grade` starts sealed kernels itself.
    """

    def grade(self, problem: Problem, submission: str) -> Verdict: ...


@runtime_checkable
class ReferenceTask(GradingTask, Protocol):
    """A task that knows an answer to its problems, None where nobody does."""

    def reference(self, problem: Problem) -> str | None: ...


def main() -> None:
    """Serve until the input ends."""
    die_with_parent()
    limit_reading()
    limit_memory()
    output = private_stdout()
    serve(sys.stdin.buffer, output, seal=seal)


def die_with_parent() -> None:
    """SIGKILL when the thread that started this process ends; elsewhere the end of input does."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_memory() -> None:
    """A hard limit on address space; a submission that needs more raises MemoryError here."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def seal() -> None:
    """Leave this process nothing but reading packages, and computing. OSError if Linux refuses."""
    if confine.missing() is None:
        confine.confine_here(readable())


def readable() -> list[Path]:
    """Paths that a task may import from after it is loaded, with the libraries that this needs."""
    python = [sys.prefix, sys.base_prefix, *(path for path in sys.path if path)]
    return [Path(path) for path in (*python, *LIBRARIES)]


def private_stdout() -> BinaryIO:
    """The pipe to the parent under a number of its own: what a task prints goes to stderr."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def serve(
    requests: BinaryIO, replies: BinaryIO, *, seal: Callable[[], None] = lambda: None
) -> None:
    """Answer each request line with one reply line, until the input ends or breaks off.

    `seal` is called once the first task is loaded, before anything is judged.
    """
    decoder, encoder = msgspec.json.Decoder(GraderRequest), msgspec.json.Encoder()
    judges: dict[str, GradingTask] = {}
    is_sealed = False
    # A parent that is killed while it writes leaves half a line.
    while (line := requests.readline(MAX_MESSAGE_BYTES)).endswith(b"\n"):
        reply = answer(decoder.decode(line), judges)
        if judges and not is_sealed:
            is_sealed = True
            if not any(getattr(judge, "starts_processes", False) for judge in judges.values()):
                seal()
        replies.write(encoder.encode(reply) + b"\n")
        replies.flush()


def answer(request: GraderRequest, judges: dict[str, GradingTask]) -> GraderReply:
    """Load the task, or judge by it; whatever a task raises becomes text."""
    if request.problem is None:
        try:
            judges[request.task_spec] = load(request.task_spec)
        except Exception as error:  # noqa: BLE001 a module may raise anything on import; the parent names it
            return GraderReply(failure=described(error))
        return GraderReply()
    try:
        verdict = judged(judges[request.task_spec], request.problem, request.submission)
    except Exception as error:  # noqa: BLE001 one expression that breaks a task must not stop the others
        verdict = Verdict(kind=VerdictKind.UNDECIDED, grader_error=described(error))
    return GraderReply(verdict=verdict)


def judged(judge: GradingTask, problem: Problem, submission: str | None) -> Verdict | None:
    """None only where the reference is asked for and the task does not say any."""
    if submission is None:
        if not isinstance(judge, ReferenceTask):
            return None
        submission = judge.reference(problem)
        if submission is None:  # that another one is judged says as much of the grader
            blank = judge.grade(problem, BLANK)
            is_judged = blank.kind is not VerdictKind.UNDECIDED
            return replace(blank, kind=VerdictKind.PROVED if is_judged else blank.kind)
    return clipped(judge.grade(problem, submission))


def load(task_spec: str) -> GradingTask:
    """An instance of the class that `module:Class` names, found where the trainer finds it."""
    factory = load_spec(task_spec)
    assert callable(factory), "the trainer made a task with it"
    judge: GradingTask = factory()
    return judge


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_TEXT_CHARS]


def clipped(verdict: object) -> Verdict:
    """Evidence may quote a submission; it must fit into a message. TypeError for no verdict."""
    if not isinstance(verdict, Verdict):
        raise TypeError(f"`grade` returned {verdict!r:.99}; expected a Verdict")
    evidence = verdict.evidence[:MAX_TEXT_CHARS]
    return replace(verdict, evidence=evidence)


if __name__ == "__main__":
    main()
