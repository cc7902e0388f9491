"""The processes below this one: what was started must be gone where a test ends."""

from __future__ import annotations

import psutil


def children() -> set[int]:
    """Ids of all processes that this one has started, and of theirs."""
    return {process.pid for process in psutil.Process().children(recursive=True)}
