"""Episodes in real kernels, sampled by somebody else: a foreign loop with a grader at its end."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import repl_rl as rr

pytestmark = [pytest.mark.slow, pytest.mark.kernel]


def problem_of(env: rr.Env, family: str) -> rr.Problem:
    problems = env.plan.task.problems(rr.Split.TRAIN, seed=0)
    return next(one for one in itertools.islice(problems, 20) if one.meta["family"] == family)


def test_a_foreign_loop_needs_no_tokens_and_no_model() -> None:
    async def use() -> tuple[list[rr.Step], rr.Scored]:
        async with rr.open_env("sympy-proofs") as env:
            problem = problem_of(env, "modular")
            episode = await env.episode(problem, seed=3)
            assert episode.prompt.endswith(">>>")
            assert problem.statement.split("\n")[0] in episode.prompt
            lines = [
                "x = 20 + 1",
                "x",
                "undefined",
                f"submit_final_answer({problem.meta['answer']})",
            ]
            steps = [await episode.line(line) for line in lines]
            assert episode.stop is rr.StopReason.SUBMITTED
            return steps, await episode.score()

    steps, scored = asyncio.run(use())
    assert [step.observation for step in steps[:2]] == [">>>", "21\n>>>"]
    assert "NameError" in steps[2].observation
    assert [step.reward for step in steps] == [0.0, 0.0, -0.1, 0.0]
    assert scored.verdict is not None
    assert scored.verdict.kind is rr.VerdictKind.PROVED
    assert scored.reward.line_rewards == (0.0, 0.0, -0.1, 0.0)
    assert rr.advantages([scored, scored]) == [[0.0] * len(scored.trajectory.completion_ids)] * 2


def test_episodes_of_one_env_share_nothing() -> None:
    async def use() -> list[str]:
        async with rr.open_env("sympy-proofs") as env:
            problem = problem_of(env, "modular")
            one, other = [await env.episode(problem) for _ in range(2)]
            await one.line("secret = 1")
            steps = [await episode.line("'secret' in globals()") for episode in (one, other)]
            for episode in (one, other):
                await episode.aclose()
                await episode.aclose()
            return [step.observation for step in steps]

    assert asyncio.run(use()) == ["True\n>>>", "False\n>>>"]


def test_a_line_is_one_line() -> None:
    async def use() -> None:
        async with rr.open_env("sympy-proofs") as env:
            episode = await env.episode(problem_of(env, "modular"))
            await episode.line("x = 1\ny = 2")

    with pytest.raises(rr.ConfigError, match="holds a newline; expected one line"):
        asyncio.run(use())
