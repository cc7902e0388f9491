"""The processes below this one: what was started must be gone where a test ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

PATIENCE_S = 60.0
"""A killed process ends in 0.02 s on an idle core; a loaded machine may have none for seconds. What
a test starts to see it die must live longer than this."""


def children() -> set[int]:
    """Ids of all processes that this one has started, and of theirs."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def is_running(process: psutil.Process) -> bool:
    """A zombie that nobody reaps has ended all the same, and its number may be given to another."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def survivors(processes: Iterable[psutil.Process]) -> list[str]:
    """A text for each that does not end within PATIENCE_S: its state, and where it waits."""
    deadline = time.monotonic() + PATIENCE_S
    left = [process for process in processes if is_running(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = [process for process in left if is_running(process)]
    return [_state(process.pid) for process in left if is_running(process)]


def _state(pid: int) -> str:
    """State of a process, in Linux' words, as far as they can be read."""
    said = [str(pid)]
    for name in ("stat", "wchan"):
        with contextlib.suppress(OSError):
            said.append(Path(f"/proc/{pid}/{name}").read_text())
    return "; ".join(said)
