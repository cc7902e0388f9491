"""Answers that are one value: judged by equality with the answer that the problem was made from.

Knows no rule.
"""

from __future__ import annotations

from repl_rl.grading.declared import binding, declared
from repl_rl.grading.equality import compare, has_steps
from repl_rl.grading.parse import parse
from repl_rl.grading.points import Domain
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.draft import STEPS

NAMES = "symbols"
"""Key of a problem's meta: what its answer may name, as `grading.declared` reads it: the symbols as
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
