"""What several requests begin with goes through the model once, and is the same to each of them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from engine_kit import run
from repl_rl.engines.hf import HFEngine
from repl_rl.testing.written import Written, prompt, trajectories, trajectory, worst_difference

NEVER: frozenset[int] = frozenset()


def sizes(model: Any, requests: list[list[int]], *, num_rows: int = 8) -> list[int]:
    """Tokens of each forward for these requests, asked for at once, one token each."""
    seen: list[int] = []

    async def use(engine: HFEngine) -> None:
        hook = model.register_forward_pre_hook(
            lambda *given: seen.append(given[2]["input_ids"].numel()), with_kwargs=True
        )
        try:
            lines = (engine.line(ids, max_tokens=1, seed=at) for at, ids in enumerate(requests))
            await asyncio.gather(*lines)
        finally:
            hook.remove()

    run(model, use, num_rows=num_rows)
    return seen


def test_siblings_run_their_prompt_once(model: Any) -> None:
    assert sizes(model, [prompt(0, 20)] * 4) == [20]


def test_what_prompts_begin_with_is_run_once(model: Any) -> None:
    """12 tokens that all begin with, 5 of one and 7 of the other."""
    banner = prompt(0, 12)
    one, other = [*banner, 20, *prompt(1, 4)], [*banner, 21, *prompt(2, 6)]
    assert sizes(model, [one, other, one, banner, other]) == [12 + 5 + 7]


def test_a_later_request_takes_what_it_begins_with_from_a_row_in_use_or_not(model: Any) -> None:
    """One row at first, then a second one: each new prompt runs what is new to all rows."""
    banner = prompt(0, 12)
    requests = [[*banner, *prompt(seed, 5)] for seed in (1, 2, 3)]
    assert sizes(model, requests, num_rows=1) == [17, 5, 5]


def test_the_first_token_of_a_prompt_that_a_row_holds_whole_runs_alone(model: Any) -> None:
    """At least one token must go through the model to get the next one's distribution."""
    assert sizes(model, [prompt(0, 20), prompt(0, 20), prompt(0, 20)], num_rows=1) == [20, 1, 1]


def test_siblings_go_on_alone_with_the_same_logprobs(any_model: Any) -> None:
    """On fewer rows than siblings, and with prompts that share a beginning."""
    banner = prompt(0, 30)

    async def use(engine: HFEngine) -> list[Written]:
        starts = [[*banner, *prompt(seed, 3 + seed)] for seed in range(3)]
        return await asyncio.gather(
            *(trajectory(engine, ids, seed=5 * at + i, num_lines=3)
              for at, ids in enumerate(starts) for i in range(3))
        )  # fmt: skip

    results = run(any_model, use, num_rows=7)
    assert max(worst_difference(any_model, *result) for result in results) < 1e-5


def test_a_sibling_is_what_it_is_alone(any_model: Any) -> None:
    ids = prompt(0, 20)

    async def siblings(engine: HFEngine) -> list[Written]:
        return await asyncio.gather(
            *(trajectory(engine, ids, seed=seed, num_lines=2) for seed in range(3))
        )

    together = [found for found, _ in run(any_model, siblings)]
    for seed, found in enumerate(together):
        use = partial(trajectory, ids=ids, seed=seed, num_lines=2)
        alone, _ = run(any_model, use)
        assert found == alone


def test_lines_and_observations_go_through_the_model_together(model: Any) -> None:
    """Rows that come back with an observation join the step of the others, without padding."""
    results = run(model, lambda engine: trajectories(engine, 6, num_lines=6), num_rows=6)
    assert max(worst_difference(model, *result) for result in results) < 1e-5
