"""Work that all processes of one run of the tests share: the first one does it, the others read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(path: Path, make: Callable[[Path], object]) -> Path:
    """`path`, which `make` has written, whole, in this process or in another one.

    `make` is given another name in the same folder.
    """
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            aside = path.with_name(f"{path.name}.aside-{os.getpid()}")
            make(aside)
            aside.rename(path)
    return path
