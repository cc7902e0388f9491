"""What every rule of a family of several lines must obey, on a few of its problems.

Knows no family. Scripts are played by an interpreter that the caller brings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from repl_rl.tasks.base import Script
from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.types import Problem, Verdict, VerdictKind

Play = Callable[[Script], Any]
"""Runs a script in-process; what comes back has the submission."""


def drafts(rule: Rule, tier: int, count: int) -> list[Draft]:
    rng = random.Random(f"laws/{tier}")
    return [rule.draft(rng, tier) for _ in range(count)]


def graded(rule: Rule, name: str, draft: Draft, submission: str) -> Verdict:
    meta = {**draft.facts, "kind": name, "answer": draft.answer, "points": "secret"}
    return rule.grade(Problem(id="p", statement=draft.question, meta=meta), submission)


def check_solution(play: Play, rule: Rule, name: str, draft: Draft) -> None:
    """Played from the setup alone it is proved."""
    submission = play(lines(draft)).submission
    assert submission is not None, draft
    verdict = graded(rule, name, draft, submission)
    assert verdict.kind is VerdictKind.PROVED, (draft, submission, verdict)


def by_hand(
    rule: Rule, setup: tuple[str, ...], answer: str, facts: Mapping[str, str] | None = None
) -> Draft:
    """A problem whose answer somebody worked out, with the solution of a drawn one."""
    solution = drafts(rule, rule.tiers[-1], 1)[0].solution
    return Draft(
        question="", form="", answer=answer, setup=setup, facts=facts or {}, solution=solution
    )


def lines(draft: Draft) -> Script:
    """The setup and the solution, one after the other."""
    for line in (*draft.setup, *draft.solution):  # noqa: UP028 a tuple's iterator takes no outputs
        yield line


def is_read(rule: Rule, name: str, draft: Draft, text: str) -> bool:
    """Whether the parser takes it at all."""
    try:
        graded(rule, name, draft, text)
    except ValueError:
        return False
    return True
