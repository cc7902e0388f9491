"""Sums of exponentials, waves and x, with coefficients: solutions of linear equations.

    {("exp", 2): 3, ("sin", 5): -1} is 3*exp(2*x) - sin(5*x); a constant is an ("exp", 0)

Derivatives are arithmetic on the coefficients, a hundred times as fast as sympy's. Knows no
problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from repl_rl.grading.draws import Domain
from repl_rl.grading.equality import compare, has_steps
from repl_rl.grading.parse import binding, declared, parse
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.family import STEPS

Modes = Mapping[tuple[str, int], Fraction]


def total(terms: Iterable[tuple[str, int, Fraction | int]]) -> Modes:
    """The sum of terms (function, rate, coefficient)."""
    sums: dict[tuple[str, int], Fraction] = {}
    for function, rate, c in terms:
        sums[function, rate] = sums.get((function, rate), Fraction(0)) + c
    return {key: c for key, c in sums.items() if c != 0}


def combined(*parts: tuple[Fraction | int, Modes]) -> Modes:
    """The sum of multiples (factor, modes)."""
    return total(
        (function, rate, factor * c)
        for factor, modes in parts
        for (function, rate), c in modes.items()
    )


def slope(modes: Modes) -> Modes:
    """The derivative in x."""
    return total(_slope(function, rate, c) for (function, rate), c in modes.items())


def _slope(function: str, rate: int, c: Fraction) -> tuple[str, int, Fraction]:
    match function:
        case "sin":
            return "cos", rate, c * rate
        case "cos":
            return "sin", rate, -c * rate
        case "x":
            return "exp", 0, c
    return function, rate, c * rate


def at_zero(modes: Modes) -> Fraction:
    return sum(
        (c for (function, _), c in modes.items() if function in ("exp", "cos")), start=Fraction(0)
    )


def spelled(modes: Modes) -> str:
    """Text of the modes, as Python reads it."""
    terms = [_spelled(*key, c) for key, c in modes.items()]
    return " + ".join(terms).replace("+ -", "- ") or "0"


def _spelled(function: str, rate: int, c: Fraction) -> str:
    if (function, rate) == ("exp", 0):
        return str(c)
    return f"{c}*x" if function == "x" else f"{c}*{function}({rate}*x)"


NAMES = "symbols"
"""Key of a problem's meta: what its answer may name, as `declared` reads it: the symbols as
the setup binds them, with all that the statement says of them."""

POSITIVE_P = "p:positive"
BIND_P = binding(POSITIVE_P)


def by_value(problem: Problem, submission: str) -> Verdict:
    """Judge an answer that is to equal the known one wherever its symbols may be."""
    symbols = declared(problem.meta.get(NAMES, ""))
    value = parse(submission, symbols=symbols)
    if has_steps(value, STEPS, Domain.REALS):
        return Verdict(kind=VerdictKind.MALFORMED, evidence="a step function")
    expected = parse(problem.meta["answer"], symbols=symbols)
    return compare(value, expected, seed=problem.meta["points"])
