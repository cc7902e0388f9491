"""The outer wall: the command that runs the fork server in namespaces of its own.

Bubblewrap gives it no network, no processes but its own, and a file system with nothing but what
is named here. Knows bubblewrap's options. Does not know what the program does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
"""Bound one by one: bubblewrap's own /dev brings a second user namespace. From there no process can
return to the PID namespace in which it forks."""
CAPABILITIES = ("CAP_SYS_ADMIN",)
"""To make a PID namespace for each kernel."""
ROOT_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL")
"""To give each kernel a user of its own, and to kill it."""


def find() -> str | None:
    """Return the path of bubblewrap; None if it is not installed."""
    return shutil.which("bwrap")


def wrap(
    program: Sequence[str],
    *,
    bwrap: str,
    visible: Sequence[Path],
    covered: Sequence[Path],
    writable: Path,
) -> list[str]:
    """The command that runs `program` where nothing but `visible` and `writable` exists.

    covered: folders below those in `visible` that are to look empty.
    """
    is_root = os.geteuid() == 0
    capabilities = CAPABILITIES + (ROOT_CAPABILITIES if is_root else ())
    namespaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    options = [bwrap, "--die-with-parent", "--as-pid-1", *namespaces, "--unshare-cgroup-try"]
    options += ["--hostname", "sandbox"]
    # Root keeps the real user ids: in a user namespace all kernels would share one.
    options += [] if is_root else ["--unshare-user"]
    options += ["--cap-drop", "ALL"]
    for capability in capabilities:
        options += ["--cap-add", capability]
    # Folders that bubblewrap makes by itself are closed to the users that kernels become.
    open_folder, empty = ["--perms", "0755", "--dir"], ["--perms", "0755", "--tmpfs"]
    mounts = {folder: [*open_folder, str(folder)] for folder in _parents([*visible, writable])}
    mounts |= {path: ["--ro-bind", str(path), str(path)] for path in visible}
    mounts |= {folder: [*empty, str(folder)] for folder in covered}
    mounts[writable] = ["--bind", str(writable), str(writable)]
    # A folder comes before what lies in it, also where one of the two covers the other.
    for path in sorted(mounts):
        options += mounts[path]
    for device in DEVICES:
        options += ["--dev-bind", device, device]
    options += ["--proc", "/proc"]
    for folder in [*covered, Path("/")]:
        options += ["--remount-ro", str(folder)]
    return [*options, "--", *program]


def _parents(paths: Sequence[Path]) -> list[Path]:
    """Every folder above one of `paths`."""
    above = {parent for path in paths for parent in path.parents if parent != Path("/")}
    return sorted(above - set(paths))
