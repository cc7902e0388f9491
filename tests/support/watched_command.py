"""A command line that is watched while it runs: what it said, and what outlived it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from fork_server import TELL_STACKS
from warm_python import SCRIPT, Process, WarmPython, start_cold


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    seconds: float
    left_behind: list[str]
    """Processes of the command that outlived it."""


Command = Callable[..., Ended]

ENDS_WITHIN_S = 2.0
"""What ends so soon after its command was not left behind."""


@dataclass(frozen=True, kw_only=True)
class WatchedCommand:
    """`repl_rl(*arguments, interrupt_when=...)`: the command as a user runs it, in `folder`."""

    python: WarmPython
    environment: Mapping[str, str]
    """The one that `python` has imported under, unless it starts cold."""
    folder: Path
    cache: Path
    timeout_s: float = 100.0

    def __call__(
        self,
        *arguments: str,
        interrupt_when: Callable[[], bool] | None = None,
        interrupt_with: signal.Signals = signal.SIGINT,
        in_background: bool = False,
        cold: bool = False,
        under: tuple[str, ...] = (),
    ) -> Ended:
        """With `cold` in a Python of its own, else in one that has imported torch and trl. `under`
        is the script that starts it, with its arguments.
        """
        marker = uuid.uuid4().hex
        environment = {
            **self.environment,
            "REPL_RL_CACHE": str(self.cache),
            "REPL_RL_TEST_MARKER": marker,
            "GLOO_SOCKET_IFNAME": "lo",
        }
        start = start_cold if cold else self.python.start
        with (
            open(os.devnull) as nothing,
            (self.folder / "out").open("w+") as out,
            (self.folder / "err").open("w+") as err,
        ):
            started = time.monotonic()
            process = start(
                *under,
                SCRIPT,
                *arguments,
                cwd=self.folder,
                env=environment,
                streams=(nothing, out, err),
                ignores_sigint=in_background,
            )
            try:
                seen = self._watch(process, interrupt_when, interrupt_with)
                if process.poll() is None:
                    raise AssertionError("the command hangs" + stacks(process, err))
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            out.seek(0)
            err.seek(0)
            return Ended(
                code=code,
                stdout=out.read(),
                stderr=err.read(),
                seconds=time.monotonic() - started,
                left_behind=still_there(seen, process.pid, marker),
            )

    def _watch(
        self,
        process: Process,
        interrupt_when: Callable[[], bool] | None,
        interrupt_with: signal.Signals,
    ) -> set[psutil.Process]:
        """All descendants that were seen until the command ended, or its time had."""
        seen: set[psutil.Process] = set()
        parent = psutil.Process(process.pid)
        deadline = time.monotonic() + self.timeout_s
        while process.poll() is None:
            if time.monotonic() >= deadline:
                return seen
            try:
                seen.update(parent.children(recursive=True))
            except psutil.NoSuchProcess:
                break
            if interrupt_when is not None and interrupt_when():
                # A terminal's Ctrl-C reaches the whole group.
                os.killpg(process.pid, interrupt_with)
                interrupt_when = None
            time.sleep(0.05 if interrupt_when is None else 0.01)
        process.wait()
        return seen


def stacks(process: Process, err: IO[str]) -> str:
    """What all threads of a command that hangs are at, after what it has said."""
    os.kill(process.pid, TELL_STACKS)
    time.sleep(1)
    err.seek(0)
    return f":\n{err.read()}"


def still_there(seen: set[psutil.Process], command: int, marker: str) -> list[str]:
    """What runs of `seen`, of the session of `command`, and of all that carry its marker."""
    found = set(seen)
    for one in psutil.process_iter(["environ"]):
        with contextlib.suppress(ProcessLookupError):
            is_of_session = os.getsid(one.pid) == command
            if is_of_session or (one.info["environ"] or {}).get("REPL_RL_TEST_MARKER") == marker:
                found.add(one)
    # A helper that waits for its pipe to close, as of a pool, ends a moment after its command.
    deadline = time.monotonic() + ENDS_WITHIN_S
    while any(runs(one) for one in found) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [str(one) for one in found if runs(one)]


def runs(one: psutil.Process) -> bool:
    """Whether a process has not ended, where it may end while it is asked."""
    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
