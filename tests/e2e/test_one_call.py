"""One call is not enough: the calls that somebody would try, on problems of the fixed list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest

from repl_rl.records import Problem, Split, VerdictKind
from repl_rl.rollout.env import Env, open_env
from repl_rl.tasks.base import Cell
from repl_rl.tasks.sympy_proofs import SympyProofs, known
from repl_rl.tasks.sympy_proofs.family import FAMILIES
from rule_kit import single_calls

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

LIMITS = ["sandbox.line_cpu_s=0.3", "sandbox.line_wall_s=2", "sandbox.standby=1"]


Answered = Callable[[Problem, Sequence[str]], list[VerdictKind | None]]


@pytest.fixture(scope="module")
def answered() -> Iterator[Answered]:
    """Verdicts of the grader on each call; None where it submits nothing."""

    async def answer(env: Env, problem: Problem, call: str) -> VerdictKind | None:
        episode = await env.episode(problem)
        await episode.line(f"submit_final_answer({call})")
        scored = await episode.score()
        return None if scored.verdict is None else scored.verdict.kind

    env = open_env(overrides=LIMITS)
    with asyncio.Runner() as runner:
        runner.run(env.__aenter__())
        try:
            yield lambda problem, calls: [runner.run(answer(env, problem, call)) for call in calls]
        finally:
            runner.run(env.__aexit__(None, None, None))


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "composite"])
def test_no_call_solves_a_problem_of_tier_3(family: str, answered: Answered) -> None:
    cell = Cell(family=family, tier=3)
    problem = SympyProofs().problem(cell, Split.HELD_OUT, seed=known().frozen[str(cell)][0])
    calls = single_calls(problem)
    assert len(calls) >= 3
    kinds = answered(problem, calls)
    assert not {VerdictKind.PROVED, VerdictKind.SUPPORTED} & set(kinds)
