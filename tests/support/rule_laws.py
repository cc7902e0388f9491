"""What holds of every rule of several lines, on a few of its problems."""

from __future__ import annotations

import random
from collections.abc import Iterator

from repl_rl.grading.parse import Malformed
from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.families import FAMILIES
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.types import Problem, Verdict, VerdictKind

RESTATED = ("Integral(x, x)", "Sum(n, (n, 1, 2))", "nan", "oo", "[]", "None", "0.5", "x", "True")
"""Never an answer to a problem of several lines."""


def cells(family: str, *names: str) -> list[tuple[str, int]]:
    rules = FAMILIES[family].rules
    return [(name, tier) for name in names for tier in rules[name].tiers]


def drafts(family: str, name: str, tier: int, count: int) -> Iterator[tuple[Rule, Draft, Problem]]:
    rule, rng = FAMILIES[family].rules[name], random.Random(f"{name}/{tier}")
    for _ in range(count):
        draft = rule.draft(rng, tier)
        yield rule, draft, problem_of(draft)


def problem_of(draft: Draft) -> Problem:
    meta = {**draft.facts, "answer": draft.answer, "points": "0123456789abcdef"}
    return Problem(id="", statement="", meta=meta)


def check_no_restatement_is_proved(family: str, name: str, tier: int, count: int = 4) -> None:
    for rule, draft, problem in drafts(family, name, tier, count):
        for mutant in (*RESTATED, f"[{draft.answer}]", f"({draft.answer}, 1)"):
            assert not is_proved(rule, problem, mutant), (mutant, draft)


def is_proved(rule: Rule, problem: Problem, submission: str) -> bool:
    return verdict(rule, problem, submission).kind is VerdictKind.PROVED


def verdict(rule: Rule, problem: Problem, submission: str) -> Verdict:
    """As the task judges: what cannot be read is malformed."""
    try:
        return rule.grade(problem, submission)
    except Malformed as error:
        return Verdict(kind=VerdictKind.MALFORMED, evidence=str(error))
