"""Run a command as another user: `python nobody.py UID COMMAND...`, as root.

What tests need lies perhaps below a folder that is root's alone, such as /root. The command sees it
all the same: in its mount namespace each such folder is an open one that holds nothing else.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def become(uid: int) -> None:
    """Go on as another user, to whom the interpreter and this checkout are open."""
    _open_way([ROOT, Path(sys.prefix), Path(sys.base_prefix)])
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _open_way(needed: list[Path]) -> None:
    """Show this process alone an empty open folder, with `needed` in it, for each closed one."""
    closed = {parent for path in needed for parent in path.parents if not _is_open(parent)}
    if not closed:
        return  # without a mount: in many containers root may make none
    _mount("unshare", CLONE_NEWNS)
    _mount("mount", b"none", b"/", 0, MS_REC | MS_PRIVATE, 0)
    for folder in sorted(closed):
        kept = [path for path in needed if folder in path.parents]
        holders = [Path(tempfile.mkdtemp()) for _ in kept]
        for path, holder in zip(kept, holders, strict=True):
            _mount("mount", bytes(path), bytes(holder), 0, MS_BIND | MS_REC, 0)
        _mount("mount", b"none", bytes(folder), b"tmpfs", 0, b"mode=0755")
        for path, holder in zip(kept, holders, strict=True):
            path.mkdir(parents=True)
            _mount("mount", bytes(holder), bytes(path), 0, MS_BIND | MS_REC, 0)
            _mount("umount2", bytes(holder), MNT_DETACH)
            holder.rmdir()


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


def _mount(call: str, *arguments: object) -> None:
    if getattr(LIBC, call)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{call}{arguments}")


if __name__ == "__main__":
    become(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
