"""Families of problems: rules that make them, by tiers, and how each judges an answer.

    rng, tier -> Rule.draft -> Draft;  Problem, submission -> Rule.grade -> Verdict

A tier says how many statements the shortest known solution has before its answer: see `LINES`.
`FAMILIES` names the modules of each family: rules of one call stand in this folder, those of
several lines in `wide`. A module is loaded when a problem of its tiers is drawn or graded.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sympy

from repl_rl.records import Problem, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    question: str
    """One line; its expressions are Python and can be pasted into the REPL as they stand."""
    form: str
    """Form of an answer, in a few words that are the same for all problems of a kind."""
    answer: str
    """One submission that solves the problem, as text."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Parts of the statement that grading and demonstrations need."""
    setup: tuple[str, ...] = ()
    """Sources that the kernel has run: see `Problem.setup`. The statement speaks of its names."""
    solution: tuple[str, ...] = ()
    """Lines that find the answer from `setup` alone, the submission last."""


STEPS = (sympy.Piecewise, sympy.floor, sympy.ceiling, sympy.sign, sympy.Abs, sympy.Mod)
"""Functions that no answer here needs; they jump, and sympy can be slow to say where."""


def nonzero(rng: random.Random, bound: int) -> int:
    """A whole number other than 0 between -bound and bound."""
    return rng.randint(1, bound) * rng.choice((-1, 1))


def polynomial(rng: random.Random, degree: int) -> Any:  # sympy ships no types
    """A polynomial in x of this degree, with small whole coefficients."""
    coefficients = [nonzero(rng, 9), *(rng.randint(-9, 9) for _ in range(degree))]
    return sympy.Poly(coefficients, sympy.Symbol("x"))


def unimodular(rng: random.Random, size: int, bound: int) -> Any:
    """A matrix of whole numbers whose inverse has whole numbers: a product of two triangles."""

    def entry(is_drawn: bool, is_diagonal: bool) -> int:
        return rng.randint(-bound, bound) if is_drawn else int(is_diagonal)

    lower = sympy.Matrix(size, size, lambda i, j: entry(j < i, i == j))
    upper = sympy.Matrix(size, size, lambda i, j: entry(j > i, i == j))
    return lower * upper


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
    """Chance, as in `Problem.chance`: at least the share of its problems that one blind answer
    solves."""
    is_held_out: bool = False
    """True for a rule that no training problem is made by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Rules that belong together."""

    name: str
    modules: Mapping[str, tuple[int, ...]]
    """Modules of this folder that hold its rules, as `RULES`, and the tiers of these rules."""

    @property
    def tiers(self) -> tuple[int, ...]:
        return tuple(sorted({tier for tiers in self.modules.values() for tier in tiers}))

    @property
    def rules(self) -> Mapping[str, Rule]:
        """All rules by name."""
        return _rules(tuple(self.modules))

    def rules_at(self, tier: int) -> Mapping[str, Rule]:
        """The rules that make problems of a tier; modules that have none are not loaded."""
        rules = _rules(tuple(name for name, tiers in self.modules.items() if tier in tiers))
        return {name: rule for name, rule in rules.items() if tier in rule.tiers}


@cache
def _rules(modules: tuple[str, ...]) -> Mapping[str, Rule]:
    loaded = (importlib.import_module(f"{__package__}.{module}") for module in modules)
    return {name: rule for module in loaded for name, rule in module.RULES.items()}


_ALL = (1, 2, 3, 4, 5)
_LATER = _ALL[1:]

_MODULES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "identity": {"identity": (1,), "wide.identity": _LATER},
    "equation": {"equation": (1,), "wide.equations": _LATER},
    "modular": {"modular": (1,), "wide.modular": _LATER},
    "calculus": {"calculus": (1,), "wide.calculus": _LATER},
    "sum": {"wide.sums": _ALL},
    "limit": {"wide.limit": _ALL},
    "inequality": {"wide.inequality": _ALL},
    "ode": {"wide.ode": _ALL},
    "recurrence": {"wide.recurrence": _ALL},
    "algebra": {"wide.algebra": _ALL},
    "composite": {"wide.composite": (3, 4, 5)},
}

FAMILIES = {name: Family(name=name, modules=modules) for name, modules in _MODULES.items()}
