"""What holds of every rule of several lines, on a few of its problems."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from repl_rl.grading.parse import Malformed
from repl_rl.tasks.base import Script
from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.families import FAMILIES
from repl_rl.tasks.sympy_proofs.family import LINES, Rule
from repl_rl.types import Problem, Verdict, VerdictKind

RESTATED = ("Integral(x, x)", "Sum(n, (n, 1, 2))", "nan", "oo", "[]", "None", "0.5", "x", "True")
"""Never an answer to a problem of several lines."""


class Played(Protocol):
    submission: str | None


class Player(Protocol):
    def play(self, script: Script) -> Played: ...


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


def check_solutions(player: Player, family: str, name: str, tier: int, count: int = 4) -> None:
    """The scripted solution is long enough, and proved; so is the answer itself."""
    for rule, draft, problem in drafts(family, name, tier, count):
        assert len(draft.solution) > LINES[tier]
        submission = player.play(_typed([*draft.setup, *draft.solution])).submission
        assert submission is not None, draft
        assert rule.grade(problem, submission).kind is VerdictKind.PROVED, (submission, draft)
        assert rule.grade(problem, draft.answer).kind is VerdictKind.PROVED, draft


def check_no_restatement_is_proved(family: str, name: str, tier: int, count: int = 4) -> None:
    for rule, draft, problem in drafts(family, name, tier, count):
        for mutant in (*RESTATED, f"[{draft.answer}]", f"({draft.answer}, 1)"):
            assert not is_proved(rule, problem, mutant), (mutant, draft)


def check_draws(family: str, name: str, tier: int) -> None:
    """The same problem for the same seed, another one for another."""
    first, again, other = (
        FAMILIES[family].rules[name].draft(random.Random(seed), tier) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.setup != other.setup


def is_proved(rule: Rule, problem: Problem, submission: str) -> bool:
    return verdict(rule, problem, submission).kind is VerdictKind.PROVED


def verdict(rule: Rule, problem: Problem, submission: str) -> Verdict:
    """As the task judges: what cannot be read is malformed."""
    try:
        return rule.grade(problem, submission)
    except Malformed as error:
        return Verdict(kind=VerdictKind.MALFORMED, evidence=str(error))


def _typed(lines: Sequence[str]) -> Script:
    for line in lines:  # noqa: UP028 a list takes no observations
        yield line
