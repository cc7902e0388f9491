"""A policy small enough to train in seconds, and a command line that is watched while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from recorded_run import make_rows, write_run
from repl_rl.types import Origin, Scored
from shared_work import once, shared_folder
from warm_python import SCRIPT, Process, WarmPython, start_cold

TIMEOUT_S = 100.0


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    seconds: float
    left_behind: list[str]
    """Processes of the command that outlived it."""


Command = Callable[..., Ended]


@pytest.fixture(scope="session")
def made() -> tuple[Origin, list[Scored]]:
    """Trajectories that a script made in real kernels, and where they come from."""
    return asyncio.run(make_rows())


@pytest.fixture
def run(made: tuple[Origin, list[Scored]], tmp_path: Path) -> Path:
    """A run's folder that holds them."""
    return write_run(made, tmp_path / "run")


@pytest.fixture
def repl_rl(tmp_path: Path, warm_python: WarmPython) -> Command:
    """`repl_rl(*arguments, interrupt_when=...)`: the command as a user runs it, in `tmp_path`.

    With `cold` in a Python of its own, else in one that has imported torch and trl. `under` is the
    script that starts it, with its arguments.
    """

    def run(
        *arguments: str,
        interrupt_when: Callable[[], bool] | None = None,
        interrupt_with: signal.Signals = signal.SIGINT,
        in_background: bool = False,
        cold: bool = False,
        under: tuple[str, ...] = (),
    ) -> Ended:
        marker = uuid.uuid4().hex
        environment = {
            **warm_python.environment,
            "REPL_RL_CACHE": str(tmp_path / "cache"),
            "REPL_RL_TEST_MARKER": marker,
            "GLOO_SOCKET_IFNAME": "lo",
        }
        start = start_cold if cold else warm_python.start
        with (
            open(os.devnull) as nothing,
            (tmp_path / "out").open("w+") as out,
            (tmp_path / "err").open("w+") as err,
        ):
            started = time.monotonic()
            process = start(
                *under,
                SCRIPT,
                *arguments,
                cwd=tmp_path,
                env=environment,
                streams=(nothing, out, err),
                ignores_sigint=in_background,
            )
            try:
                seen = watch(process, interrupt_when, interrupt_with)
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

    return run


def watch(
    process: Process,
    interrupt_when: Callable[[], bool] | None,
    interrupt_with: signal.Signals,
) -> set[psutil.Process]:
    """All descendants that were seen until the command ended."""
    seen: set[psutil.Process] = set()
    parent = psutil.Process(process.pid)
    deadline = time.monotonic() + TIMEOUT_S
    while process.poll() is None:
        assert time.monotonic() < deadline, "the command hangs"
        try:
            seen.update(parent.children(recursive=True))
        except psutil.NoSuchProcess:
            break
        if interrupt_when is not None and interrupt_when():
            # A terminal's Ctrl-C reaches the whole group.
            os.killpg(process.pid, interrupt_with)
            interrupt_when = None
        time.sleep(0.05)
    process.wait()
    return seen


def still_there(seen: set[psutil.Process], command: int, marker: str) -> list[str]:
    """What runs of `seen`, of the session of `command`, and of all that carry its marker."""
    found = set(seen)
    for one in psutil.process_iter(["environ"]):
        with contextlib.suppress(ProcessLookupError):
            is_of_session = os.getsid(one.pid) == command
            if is_of_session or (one.info["environ"] or {}).get("REPL_RL_TEST_MARKER") == marker:
                found.add(one)
    return [str(one) for one in found if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of two layers with a newline in each fourth token: its lines are short."""
    from tiny_model import save_tiny_model

    return once(shared_folder(tmp_path_factory) / "tiny-model", save_tiny_model)
