"""Tasks that behave badly on purpose; loaded by the grader's process from `tests/grading`."""

import os
import signal
import sys
import time
from pathlib import Path
from unittest import mock

from repl_rl.grading.parse import parse
from repl_rl.grading.vocabulary import FUNCTIONS
from repl_rl.types import Problem, Verdict, VerdictKind


class Judge:
    """Does what the submission says."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        match submission:
            case "hang":
                time.sleep(60)
            case "die":
                os._exit(3)
            case "be killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "garbage":
                for number in range(3, 10):
                    try_to_write(number)
                time.sleep(60)
            case "raise":
                raise KeyError("no such certificate")
            case "print":
                print("a task may print")
            case "meet":
                meet_another(Path(problem.meta["folder"]))
            case "memory":
                len(bytearray(8 << 30))
            case "modules":
                return proved(" ".join(sorted(sys.modules)))
            case "environment":
                return proved(" ".join(sorted(os.environ)))
            case "group":
                return proved(f"{os.getpid()} {os.getpgid(0)}")
            case "long":
                return proved("x" * 3_000_000)
        return proved(problem.meta.get("answer", ""))


class Referee(Judge):
    """A judge that knows an answer of its own, and reads by the shared parser."""

    def reference(self, problem: Problem) -> str:
        return problem.meta.get("reference", "2")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        match submission:
            case "slow to read":
                parse_what_never_ends()
            case "slow to judge":
                parse("1")
                while True:
                    pass
        return super().grade(problem, submission)


def parse_what_never_ends() -> None:
    """The parser, with a word in it that takes for ever."""

    def forever(*_: object) -> object:
        while True:
            pass

    with mock.patch.dict(FUNCTIONS, {"sin": forever}):
        parse("sin(1)")


def meet_another(folder: Path) -> None:
    """Wait until a second process has come here."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.01)


class Unloadable:
    def __init__(self) -> None:
        raise RuntimeError("no data")


def proved(evidence: str) -> Verdict:
    return Verdict(kind=VerdictKind.PROVED, evidence=evidence)


def try_to_write(number: int) -> None:
    try:
        os.write(number, b"not json\n")
    except OSError:
        return
