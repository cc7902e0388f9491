"""Draft that a family hands over for one problem, before it gets an id and a side of the split.

Knows no family.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import sympy


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    question: str
    """One line; its expressions are Python and can be pasted into the REPL as they stand."""
    form: str
    """What an answer is to be, in a few words that are the same for all problems of a kind."""
    answer: str
    """One submission that solves the problem, as text."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What grading and demonstrations need of the statement's parts."""
    setup: tuple[str, ...] = ()
    """What the kernel has run: see `Problem.setup`. The statement speaks of its names."""
    solution: tuple[str, ...] = ()
    """Lines that find the answer from `setup` alone, the submission last."""
    one_liners: tuple[str, ...] = ()
    """Expressions that somebody would try in one call. None of them is an answer from tier 2 on."""


STEPS = (sympy.Piecewise, sympy.floor, sympy.ceiling, sympy.sign, sympy.Abs, sympy.Mod)
"""Functions that no answer here needs; they jump, and sympy can be slow to say where."""

Kind = Callable[[random.Random], Draft]


def nonzero(rng: random.Random, bound: int) -> int:
    """A whole number other than 0 between -bound and bound."""
    return rng.randint(1, bound) * rng.choice((-1, 1))
