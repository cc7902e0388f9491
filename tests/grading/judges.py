"""Tasks that behave badly on purpose; loaded by the grader's process from `tests/grading`."""

import os
import sys
import time

from repl_rl.types import Problem, Verdict, VerdictKind


class Judge:
    """Does what the submission says."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        match submission:
            case "hang":
                time.sleep(60)
            case "die":
                os._exit(3)
            case "garbage":
                for number in range(3, 10):
                    try_to_write(number)
                time.sleep(60)
            case "raise":
                raise KeyError("no such certificate")
            case "print":
                print("a task may print")
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
