"""The grader's process: judges requests from a pipe, one by one; never runs what a policy wrote.

    stdin -> Request -> task.grade(problem, submission) -> Reply -> stdout

Started as `python -P -m repl_rl.grading.worker MEMORY_MIB`. Reading a submission has a limit
(`clock`). There is no other deadline here: the parent kills the process. It dies with its parent,
and at the end of its input.

Knows tasks by their specification only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from dataclasses import replace
from typing import BinaryIO, Protocol, runtime_checkable

import msgspec

from repl_rl.grading.clock import limit_reading
from repl_rl.grading.messages import MAX_MESSAGE_BYTES, MAX_TEXT_CHARS, Reply, Request
from repl_rl.plugins import load_spec
from repl_rl.types import Problem, Verdict, VerdictKind

_PR_SET_PDEATHSIG = 1


class GradingTask(Protocol):
    """The part of a task that is needed here."""

    def grade(self, problem: Problem, submission: str) -> Verdict: ...


@runtime_checkable
class ReferenceTask(GradingTask, Protocol):
    """A task that knows an answer to each of its problems."""

    def reference(self, problem: Problem) -> str: ...


def main() -> None:
    """Serve until the input ends."""
    die_with_parent()
    limit_reading()
    limit_memory(int(sys.argv[1]))
    output = private_stdout()
    serve(sys.stdin.buffer, output)


def die_with_parent() -> None:
    """SIGKILL when the thread that started this process ends; elsewhere the end of input does."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_memory(memory_mib: int) -> None:
    """A hard limit on address space; a submission that needs more raises MemoryError here."""
    limit = memory_mib << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def private_stdout() -> BinaryIO:
    """The pipe to the parent under a number of its own: what a task prints goes to stderr."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer each request line with one reply line, until the input ends or breaks off."""
    decoder, encoder = msgspec.json.Decoder(Request), msgspec.json.Encoder()
    judges: dict[str, GradingTask] = {}
    # A parent that is killed while it writes leaves half a line.
    while (line := requests.readline(MAX_MESSAGE_BYTES)).endswith(b"\n"):
        reply = answer(decoder.decode(line), judges)
        replies.write(encoder.encode(reply) + b"\n")
        replies.flush()


def answer(request: Request, judges: dict[str, GradingTask]) -> Reply:
    """Load the task on first sight, then judge; whatever a task raises becomes text."""
    if request.task_spec not in judges:
        try:
            judges[request.task_spec] = load(request.task_spec)
        except Exception as error:  # noqa: BLE001 a module may raise anything on import; the parent names it
            return Reply(failure=described(error))
    if request.problem is None:
        return Reply()
    try:
        return Reply(verdict=judged(judges[request.task_spec], request.problem, request.submission))
    except Exception as error:  # noqa: BLE001 one expression that breaks a task must not stop the others
        return Reply(verdict=Verdict(kind=VerdictKind.UNDECIDED, grader_error=described(error)))


def judged(judge: GradingTask, problem: Problem, submission: str | None) -> Verdict | None:
    """None only where the reference is asked for and the task has none."""
    if submission is None:
        if not isinstance(judge, ReferenceTask):
            return None
        submission = judge.reference(problem)
    return clipped(judge.grade(problem, submission))


def load(task_spec: str) -> GradingTask:
    """An instance of the class that `module:Class` names, found where the trainer finds it."""
    factory = load_spec(task_spec)
    assert callable(factory), "the trainer made a task with it"
    judge: GradingTask = factory()
    return judge


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_TEXT_CHARS]


def clipped(verdict: Verdict) -> Verdict:
    """Evidence may quote a submission; it must fit into a message."""
    evidence = verdict.evidence[:MAX_TEXT_CHARS]
    return replace(verdict, evidence=evidence)


if __name__ == "__main__":
    main()
