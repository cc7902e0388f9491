"""What is made once and kept for later runs: below REPL_RL_CACHE, or in the user's cache.

Knows folders and disks. Does not know what is kept in them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from repl_rl.errors import ConfigError

_MIB = 1 << 20


def kept(kind: str) -> Path:
    """The folder of all that is kept of a kind; it need not be there."""
    return Path(os.environ.get("REPL_RL_CACHE") or platformdirs.user_cache_dir("repl-rl")) / kind


def check(path: Path, what: str, *, num_bytes: int = 0) -> None:
    """ConfigError unless `what` can be written to `path`, and the disk has room for it.

    Asked before minutes are spent.
    """
    parent = path.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=parent).close()
        free = shutil.disk_usage(parent).free
    except OSError as error:
        reason = str(error.strerror)
    else:
        if num_bytes <= free:
            return
        reason = f"{num_bytes / _MIB:,.1f} MiB are needed, {free / _MIB:,.1f} MiB are free"
    raise ConfigError(
        f"cannot write {what} to {str(parent)!r}: {reason}; set REPL_RL_CACHE to another folder"
    )


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process makes something beside `path`, and let others wait.

    Its folder must be there.
    """
    with path.with_name(".making").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
