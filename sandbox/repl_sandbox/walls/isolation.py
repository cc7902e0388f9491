"""Levels of isolation: the walls that the user asks for, and those that this machine can give.

Knows each level by name and what it takes. Does not know how a wall is built.

`wrap` makes the outer wall, bubblewrap: the fork server runs without a network, without processes
but its own, on a file system with nothing but what is named.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from repl_sandbox.types import Isolation, SettingError
from repl_sandbox.walls import confine
from repl_sandbox.walls.view import readable_paths

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


class Level(StrEnum):
    """Level of the walls around each kernel."""

    STRICT = "strict"
    """Namespaces (no network, no other process, no foreign file) and all of `BASIC`."""
    BASIC = "basic"
    """A user of its own where root starts it, no capabilities, Landlock, limits, seccomp."""
    NONE = "none"
    """A process with resource limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """The walls in force around the kernels of a fork server, for run headers and reports."""

    level: Level
    shortfall: str = ""
    """Reason why the level is not `strict`, and what to do about it; empty for `strict`."""

    def __str__(self) -> str:
        described = {
            Level.STRICT: "namespaces, Landlock, seccomp",
            Level.BASIC: "Landlock, seccomp, no namespaces",
            Level.NONE: "kernels run unsealed, as the user who started them",
        }
        return f"{self.level}: {described[self.level]}"


ESCAPE = 'isolation = "none" under [sandbox] runs kernels unsealed'


def find_options(
    isolation: Isolation, preload: Sequence[str], needs: Sequence[str] = ()
) -> tuple[list[Level], str, Sequence[Path]]:
    """(levels to try, best first; why `strict` is not among them; what kernels may read).

    needs: see `readable_paths`.

    Raises SettingError, before anything is started, for what cannot be had here.
    """
    levels, shortfall = _levels(isolation)
    try:
        return levels, shortfall, readable_paths(preload, needs)
    except ValueError as error:
        raise SettingError(str(error)) from None


def _levels(isolation: Isolation) -> tuple[list[Level], str]:
    if isolation is Isolation.NONE:
        return [Level.NONE], "nothing else was asked for"
    lacking = confine.missing()
    if lacking is not None:
        raise SettingError(f"kernels cannot be sealed: this machine lacks {lacking}; {ESCAPE}")
    if find() is None:
        shortfall = "bubblewrap is not installed (`apt install bubblewrap`)"
        if isolation is Isolation.STRICT:
            raise SettingError(f'isolation = "strict" takes namespaces, but {shortfall}')
        return [Level.BASIC], shortfall
    return ([Level.STRICT] if isolation is Isolation.STRICT else [Level.STRICT, Level.BASIC]), ""
