"""The folders of kernels: private, with short names, removed whatever is in them.

Trusted side. Knows files. Does not know processes.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from repl_sandbox.types import SandboxError

MAX_PATH_CHARS = 107
MEMORY_BASE = "/dev/shm"
LONGEST_SOCKET_PATH = "/repl-12345678/k1234567/s-1"


def make_runtime_folder() -> Path:
    """A private folder whose sockets have addresses short enough for the operating system.

    Raises SandboxError where none can be made.
    """
    base = runtime_base()
    try:
        return Path(tempfile.mkdtemp(prefix="repl-", dir=base))
    except OSError as error:
        raise SandboxError(f"no folder for kernels in {base}: {error.strerror}") from error


def runtime_base() -> str:
    """Where runtime folders are made: in memory if possible. On a disk each removal may wait."""
    bases = (MEMORY_BASE, tempfile.gettempdir(), "/tmp")
    fitting = (base for base in bases if len(base) + len(LONGEST_SOCKET_PATH) <= MAX_PATH_CHARS)
    return next((base for base in fitting if os.access(base, os.W_OK | os.X_OK)), "/tmp")


def remove_folder(folder: Path) -> None:
    """Remove a folder that a kernel may have filled with anything. What cannot be removed stays."""
    with suppress(OSError):
        while _thin_out(folder):
            pass
        folder.rmdir()


def _thin_out(folder: Path) -> bool:
    """Remove the files of the two top levels and move up what lies below. False if it was empty.

    Not shutil.rmtree: it recurses, and a kernel can put thousands of folders into each other.
    """
    entries = list(os.scandir(folder))
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry)
            continue
        os.chmod(entry, 0o700)
        for inner in os.scandir(entry):
            if inner.is_dir(follow_symlinks=False):
                os.chmod(inner, 0o700)
                os.rename(inner, folder / os.urandom(8).hex())
            else:
                os.unlink(inner)
        os.rmdir(entry)
    return bool(entries)
