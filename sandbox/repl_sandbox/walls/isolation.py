"""Levels of isolation: the walls that the user asks for, and those that this machine can give.

Knows each level by name and what it takes. Does not know how a wall is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from repl_sandbox.types import Isolation, SettingError
from repl_sandbox.walls import bubblewrap, confine
from repl_sandbox.walls.view import readable_paths


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
    if bubblewrap.find() is None:
        shortfall = "bubblewrap is not installed (`apt install bubblewrap`)"
        if isolation is Isolation.STRICT:
            raise SettingError(f'isolation = "strict" needs namespaces, but {shortfall}')
        return [Level.BASIC], shortfall
    return ([Level.STRICT] if isolation is Isolation.STRICT else [Level.STRICT, Level.BASIC]), ""
