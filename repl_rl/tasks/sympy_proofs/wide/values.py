"""Answers that are one value: judged by equality with the answer that the problem was made from.

Knows no rule.
"""

from __future__ import annotations

from collections.abc import Callable

from repl_rl.grading.declared import declared
from repl_rl.grading.equality import compare, has_steps
from repl_rl.grading.parse import parse
from repl_rl.grading.points import Domain
from repl_rl.tasks.sympy_proofs.draft import STEPS
from repl_rl.types import Problem, Verdict, VerdictKind

NAMES = "symbols"
"""Key of a problem's meta: what its answer may name, as `grading.declared` reads it."""


def by_value(domain: Domain = Domain.REALS) -> Callable[[Problem, str], Verdict]:
    """A judge of answers that equal the known one for all values of their symbols in `domain`."""

    def grade(problem: Problem, submission: str) -> Verdict:
        symbols = declared(problem.meta.get(NAMES, ""))
        value = parse(submission, symbols=symbols)
        if has_steps(value, STEPS, domain):
            return Verdict(kind=VerdictKind.MALFORMED, evidence="a step function")
        expected = parse(problem.meta["answer"], symbols=symbols)
        return compare(value, expected, seed=problem.meta["points"], domain=domain)

    return grade
