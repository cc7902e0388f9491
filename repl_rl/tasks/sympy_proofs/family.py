"""A family of problems: rules that make them, by tiers, and how each judges an answer.

    rng, tier -> Rule.draft -> Draft;  Problem, submission -> Rule.grade -> Verdict

A tier says how many statements the shortest known solution has before its answer: see `LINES`.
Knows no rule, only the modules that hold them.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from repl_rl.records import Problem, Verdict
from repl_rl.tasks.sympy_proofs.draft import Draft, Kind

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
    modules: Mapping[str, tuple[int, ...]]
    """Where its rules stand, as `RULES` of modules in this folder, and the tiers of these rules."""

    @property
    def tiers(self) -> tuple[int, ...]:
        return tuple(sorted({tier for tiers in self.modules.values() for tier in tiers}))

    @property
    def rules(self) -> Mapping[str, Rule]:
        """All rules by name."""
        return _rules(tuple(self.modules))

    def rules_at(self, tier: int) -> Mapping[str, Rule]:
        """The rules that make problems of a tier; modules that have none are not loaded."""
        found = _rules(tuple(name for name, tiers in self.modules.items() if tier in tiers))
        return {name: rule for name, rule in found.items() if tier in rule.tiers}


@cache
def _rules(modules: tuple[str, ...]) -> Mapping[str, Rule]:
    loaded = (importlib.import_module(f"{__package__}.{module}") for module in modules)
    return {name: rule for module in loaded for name, rule in module.RULES.items()}


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
