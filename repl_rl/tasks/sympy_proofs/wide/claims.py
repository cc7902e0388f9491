"""Several claims in one problem: which are true, and where do the others fail?

    claims = [(left, right), ...]  ->  [True, 19/8, ...]: True, or a value where both sides differ

With several claims no answer can be guessed. Knows no rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from repl_rl.grading.equality import wrong
from repl_rl.grading.parse import Malformed, parse
from repl_rl.grading.points import is_different
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.family import STEPS

IsInside = Callable[[Any, Problem], bool]
"""Test of whether a number is in the domain that the problem speaks of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    left: str
    right: str
    witness: str | None
    """A value at which both sides differ; None where the claim is true."""


def draw_claims(
    rng: random.Random, make: Callable[[bool], Claim], count: int
) -> tuple[str, str, dict[str, str]]:
    """(line that binds `claims`, answer, facts) of `count` claims.

    Each is true with the chance 1/2, but not all are true and not all false.
    """
    truths: list[bool] = []
    while len(set(truths)) < 2:
        truths = [rng.random() < 0.5 for _ in range(count)]
    claims = [make(truth) for truth in truths]
    pairs = ", ".join(f"({claim.left}, {claim.right})" for claim in claims)
    answer = f"[{', '.join(claim.witness or 'True' for claim in claims)}]"
    facts = {
        "lefts": "\n".join(claim.left for claim in claims),
        "rights": "\n".join(claim.right for claim in claims),
        "truths": " ".join(map(str, truths)),
    }
    return f"claims = [{pairs}]", answer, facts


def by_claims(name: str, is_inside: IsInside) -> Callable[[Problem, str], Verdict]:
    """A judge of lists of True and of values of the symbol `name`, one entry for each claim."""

    def grade(problem: Problem, submission: str) -> Verdict:
        entries = parse(submission)
        truths = problem.meta["truths"].split()
        if not isinstance(entries, list | tuple) or len(entries) != len(truths):
            raise Malformed(f"a list of {len(truths)} entries is expected")
        lefts, rights = (problem.meta[side].split("\n") for side in ("lefts", "rights"))
        for entry, truth, left, right in zip(entries, truths, lefts, rights, strict=True):
            if (entry is True) != (truth == "True"):
                evidence = f"{left} = {right} is {truth}"[:200]
                return Verdict(kind=VerdictKind.REFUTED, method="claims", evidence=evidence)
            if entry is True:
                continue
            if not (_is_plain(entry) and is_inside(entry, problem)):
                return wrong("witness", f"{entry} is no exact value of {name}"[:200])
            lhs, rhs = (parse(side, symbols=(name,)) for side in (left, right))
            if not is_different(lhs, rhs, {sympy.Symbol(name): entry}):
                evidence = f"both sides are equal at {entry}, or cannot be told apart"
                return wrong("witness", evidence[:200])
        return Verdict(kind=VerdictKind.PROVED, method="claims")

    return grade


def _is_plain(value: Any) -> bool:
    is_number = isinstance(value, sympy.Expr) and value.is_number
    return is_number and not value.has(sympy.Float, *STEPS)
