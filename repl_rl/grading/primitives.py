"""Antiderivatives: two are equal where both increase alike between any two places.

    F, G -> F(x) - F(x'), G(x) - G(x') -> Verdict

A constant cancels, whatever its name or value, and a jump does not. Where G has log(|u|), F may
have log(u), as sympy integrates: that is another constant where u < 0. Knows no task.
"""

from __future__ import annotations

from typing import Any

import sympy

from repl_rl.grading.draws import Domain
from repl_rl.grading.equality import compare_expressions
from repl_rl.grading.points import has_value
from repl_rl.records import Verdict, VerdictKind

CONSTANTS = ("C", "C0", "C1", "C2", "c", "K", "k")
"""Names that a constant of integration may have."""


def compare_primitives(got: Any, expected: Any, variable: Any, *, seed: str) -> Verdict:
    """Say how well `got` equals `expected` but for a constant, for all values of `variable`."""
    if got.has(sympy.Float):  # a difference can hide it
        return Verdict(kind=VerdictKind.WRONG, method="inexact")
    if not has_value(got, domain=Domain.REALS, seed=seed):
        return Verdict(kind=VerdictKind.WRONG, method="not finite")
    if any(isinstance(log.args[0], sympy.Abs) for log in expected.atoms(sympy.log)):
        got, expected = (side.replace(sympy.log, _log_of_size) for side in (got, expected))
    sides = (_increase(side, variable) for side in (got, expected))
    return compare_expressions(*sides, seed=seed)


def _log_of_size(argument: Any) -> Any:
    return sympy.log(sympy.Abs(argument))


def _increase(function: Any, variable: Any) -> Any:
    """Increase of a function from a second place, whose name no answer can write, to the first."""
    other = sympy.Symbol(f"{variable}'", **variable.assumptions0)
    return function - function.subs(variable, other)
