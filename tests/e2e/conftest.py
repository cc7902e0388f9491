"""A policy small enough to train in seconds, and a command line that is watched while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recorded_run import make_rows, write_run
from repl_rl.records import Origin, Scored
from shared_work import once, shared_folder
from warm_python import WarmPython
from watched_command import Command, WatchedCommand


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
    """The command as a user runs it, in `tmp_path`."""
    return WatchedCommand(
        python=warm_python,
        environment=warm_python.environment,
        folder=tmp_path,
        cache=tmp_path / "cache",
    )


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of two layers with a newline in each fourth token: its lines are short."""
    from tiny_model import save_tiny_model

    return once(shared_folder(tmp_path_factory) / "tiny-model", save_tiny_model)
