"""A policy small enough to train in seconds, and a command line that is watched while it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from recorded_run import make_rows, write_run
from repl_rl.types import Origin, Scored

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
def repl_rl(tmp_path: Path) -> Command:
    """`repl_rl(*arguments, interrupt_when=...)`: the command as a user runs it, in `tmp_path`."""

    def run(
        *arguments: str,
        interrupt_when: Callable[[], bool] | None = None,
        interrupt_with: signal.Signals = signal.SIGINT,
        in_background: bool = False,
    ) -> Ended:
        marker = uuid.uuid4().hex
        # A shell starts its background jobs with SIGINT ignored, perhaps this very test run.
        sigint = "SIG_IGN" if in_background else "default_int_handler"
        boot = f"import signal; signal.signal(signal.SIGINT, signal.{sigint}); "
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "REPL_RL_CACHE": str(tmp_path / "cache"),
            "REPL_RL_TEST_MARKER": marker,
        }
        with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:
            started = time.monotonic()
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"{boot}from repl_rl.commands.cli import main; main()",
                    *arguments,
                ],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                seen = watch(process, interrupt_when, interrupt_with)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            out.seek(0)
            err.seek(0)
            return Ended(
                code=process.returncode,
                stdout=out.read(),
                stderr=err.read(),
                seconds=time.monotonic() - started,
                left_behind=still_there(seen, marker),
            )

    return run


def watch(
    process: subprocess.Popen[bytes],
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


def still_there(seen: set[psutil.Process], marker: str) -> list[str]:
    """Those of `seen` that run, and any process that carries the marker of the command."""
    alive = [str(one) for one in seen if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    for one in psutil.process_iter(["environ"]):
        if (one.info["environ"] or {}).get("REPL_RL_TEST_MARKER") == marker:
            alive.append(str(one))
    return alive


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of two layers with a newline in each fourth token: its lines are short."""
    from tiny_model import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
