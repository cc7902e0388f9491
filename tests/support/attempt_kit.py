"""Attempts at a problem that nobody reads."""

from __future__ import annotations

from repl_rl.records import Attempt, Problem


def an_attempt(
    problem_id: str = "p", *, group_index: int = 0, sibling_index: int = 0, seed: int = 0
) -> Attempt:
    return Attempt(
        problem=Problem(id=problem_id, statement=problem_id),
        group_index=group_index,
        sibling_index=sibling_index,
        seed=seed,
    )
