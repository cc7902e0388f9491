"""Tasks that behave badly on purpose; loaded by the grader's process from `tests/grading`."""

import ctypes
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

from repl_rl.grading.bounded import FUNCTIONS
from repl_rl.grading.parse import parse
from repl_rl.records import Problem, Verdict, VerdictKind


class Judge:
    """Does what the submission says."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        match submission:
            case "hang":
                time.sleep(600)
            case "die":
                os._exit(3)
            case "be killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "garbage" | "no text":
                row = b"not json\n" if submission == "garbage" else b'{"verdict": "\xff"}\n'
                for number in range(3, 10):
                    try_to_write(number, row)
                time.sleep(600)
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


class Clueless(Judge):
    """Knows no answer; breaks on a blank one where the problem says so."""

    def reference(self, problem: Problem) -> None:
        return None

    def grade(self, problem: Problem, submission: str) -> Verdict:
        if submission == "''" and problem.meta.get("breaks"):
            raise KeyError("a blank")
        verdict = super().grade(problem, submission)
        return Verdict(kind=VerdictKind.WRONG) if submission == "''" else verdict


def parse_what_never_ends() -> None:
    """The parser, with a word in it that takes for ever."""

    def forever(*_: object) -> object:
        while True:
            pass

    with mock.patch.dict(FUNCTIONS, {"sin": forever}):
        parse("sin(1)")


class Burglar(Judge):
    """Tries to reach what is beyond a process that reads and computes."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        folder = Path(problem.meta["folder"])
        match submission:
            case "connect":
                socket.create_connection(("127.0.0.1", int(problem.meta["port"])), timeout=5)
            case "bind":
                socket.socket(socket.AF_UNIX).bind(str(folder / "socket"))
            case "create":
                (folder / "new").write_text("here")
            case "append":
                (folder / "kept").open("a").write("more")
            case "remove":
                (folder / "kept").unlink()
            case "rename":
                (folder / "kept").rename(folder / "other")
            case "read":
                return proved((folder / "kept").read_text())
            case "run":
                subprocess.run(["/bin/true"], check=True)
            case "become":
                os.execv("/bin/true", ["true"])
            case "fork":
                os.fork()
            case "thread":
                threading.Thread(target=len).start()
            case "kill":
                os.kill(os.getppid(), signal.SIGTERM)
            case "trace":
                ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0)
                raise OSError(ctypes.get_errno(), "ptrace")
            case "import":
                return proved(importlib.import_module("colorsys").__name__)
        return proved("done")


class Kernels(Burglar):
    """Runs what it grades in processes of its own, and says so."""

    starts_processes = True


class Unloadable:
    def __init__(self) -> None:
        raise RuntimeError("no data")


def proved(evidence: str) -> Verdict:
    return Verdict(kind=VerdictKind.PROVED, evidence=evidence)


def try_to_write(number: int, row: bytes) -> None:
    try:
        os.write(number, row)
    except OSError:
        return
