"""Which walls stand around the kernels: what was asked for, what this machine can give.

Knows the tiers by name and what each takes. Does not know how a wall is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from repl_sandbox import bubblewrap, confine
from repl_sandbox.types import Isolation, SettingError


class Tier(StrEnum):
    """What stands around each kernel."""

    A = "A"
    """Namespaces (no network, no other process, no foreign file) and all of tier B."""
    B = "B"
    """A user of its own where root starts it, no capabilities, Landlock, limits, seccomp."""
    NONE = "none"
    """A process with resource limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a fork server got, for run headers and `repl-rl doctor`."""

    tier: Tier
    shortfall: str = ""
    """Why it is not tier A, as a sentence with what to do about it; empty for tier A."""

    def __str__(self) -> str:
        described = {
            Tier.A: "tier A: namespaces, Landlock, seccomp",
            Tier.B: "tier B: Landlock, seccomp, no namespaces",
            Tier.NONE: "none: kernels run unsealed, as the user who started them",
        }
        return described[self.tier]


ESCAPE = 'isolation = "none" under [sandbox] runs kernels unsealed'


def tiers(isolation: Isolation) -> tuple[list[Tier], str]:
    """(the tiers to try, best first; why tier A is not among them).

    Raises SettingError if there is none.
    """
    if isolation is Isolation.NONE:
        return [Tier.NONE], "nothing else was asked for"
    lacking = confine.missing()
    if lacking is not None:
        raise SettingError(f"kernels cannot be sealed: this machine lacks {lacking}; {ESCAPE}")
    if bubblewrap.find() is None:
        shortfall = "bubblewrap is not installed (`apt install bubblewrap`)"
        if isolation is Isolation.STRICT:
            raise SettingError(f'isolation = "strict" takes tier A, but {shortfall}')
        return [Tier.B], shortfall
    return ([Tier.A] if isolation is Isolation.STRICT else [Tier.A, Tier.B]), ""
