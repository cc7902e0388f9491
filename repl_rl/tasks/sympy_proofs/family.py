"""A family of problems: rules that make them, by tiers, and how each judges an answer.

    rng, tier -> Rule.draft -> Draft;  Problem, submission -> Rule.grade -> Verdict

A tier says how many statements the shortest known solution has before its answer: see `LINES`.
Knows no rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from repl_rl.tasks.sympy_proofs.draft import Draft, Kind
from repl_rl.types import Problem, Verdict

LINES: Mapping[int, int] = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
"""By tier: the least number of lines of a solution, its submission apart, with one statement each.
From tier 2 on each uses what an earlier one has found; joined by `;` they are one line."""

Grade = Callable[[Problem, str], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to make problems."""

    draft: Callable[[random.Random, int], Draft]
    """Takes a tier, one of `tiers`."""
    grade: Grade
    tiers: tuple[int, ...]
    chance: float = 0.0
    """As in `Problem.chance`: at least the share of its problems that one blind answer solves."""
    is_held_out: bool = False
    """True for a rule that no training problem is made by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Rules that belong together."""

    name: str
    rules: Mapping[str, Rule]

    @property
    def tiers(self) -> tuple[int, ...]:
        return tuple(sorted({tier for rule in self.rules.values() for tier in rule.tiers}))


def one_call(
    kinds: Mapping[str, Kind], grade: Grade, *, chances: Mapping[str, float]
) -> dict[str, Rule]:
    """Rules of tier 1 for kinds of problems that one call solves."""
    return {
        name: Rule(draft=_untiered(kind), grade=grade, tiers=(1,), chance=chances[name])
        for name, kind in kinds.items()
    }


def _untiered(kind: Kind) -> Callable[[random.Random, int], Draft]:
    return lambda rng, _: kind(rng)
