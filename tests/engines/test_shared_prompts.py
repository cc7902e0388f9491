"""What several requests begin with goes through the model once, and is the same to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from engine_kit import run
from repl_rl.engines.hf import HFEngine
from repl_rl.testing.written import Written, prompt, trajectory, worst_difference

NEVER: frozenset[int] = frozenset()


def sizes_of(
    model: Any, use: Callable[[HFEngine], Awaitable[object]], *, num_rows: int
) -> list[int]:
    """Tokens of each forward while a fresh engine is used; its trial of the model left out."""
    seen: list[int] = []

    async def watched(engine: HFEngine) -> None:
        hook = model.register_forward_pre_hook(
            lambda *given: seen.append(given[2]["input_ids"].numel()), with_kwargs=True
        )
        try:
            await use(engine)
        finally:
            hook.remove()

    run(model, watched, num_rows=num_rows, newline_ids=NEVER, eos_ids=NEVER)
    return seen


def sizes(model: Any, requests: list[list[int]], *, num_rows: int = 8) -> list[int]:
    """For these requests, asked for at once, one token each."""

    async def use(engine: HFEngine) -> None:
        lines = (engine.line(ids, max_tokens=1, seed=at) for at, ids in enumerate(requests))
        await asyncio.gather(*lines)

    return sizes_of(model, use, num_rows=num_rows)


def test_siblings_run_their_prompt_once(model: Any) -> None:
    assert sizes(model, [prompt(0, 20)] * 4) == [20]


def test_what_prompts_begin_with_is_run_once(model: Any) -> None:
    """12 tokens that all begin with, 5 of one and 7 of the other."""
    banner = prompt(0, 12)
    one, other = [*banner, 20, *prompt(1, 4)], [*banner, 21, *prompt(2, 6)]
    assert sizes(model, [one, other, one, banner, other]) == [12 + 5 + 7]


def test_a_later_request_on_the_same_row_runs_what_is_new_to_it(model: Any) -> None:
    banner = prompt(0, 12)
    requests = [[*banner, *prompt(seed, 5)] for seed in (1, 2, 3)]
    assert sizes(model, requests, num_rows=1) == [17, 5, 5]


def test_the_last_token_of_a_prompt_that_a_row_holds_whole_runs_alone(model: Any) -> None:
    """At least one token must go through the model to get the next one's distribution."""
    assert sizes(model, [prompt(0, 20), prompt(0, 20), prompt(0, 20)], num_rows=1) == [20, 1, 1]


def test_a_request_takes_what_it_begins_with_from_a_row_in_use(model: Any) -> None:
    """20 tokens in the first step, one in each after it; the later request has 4 of its own."""
    ids = prompt(0, 20)

    async def use(engine: HFEngine) -> None:
        first = asyncio.create_task(engine.line(ids, max_tokens=30, seed=0))
        for _ in range(100):
            await asyncio.sleep(0)
            if engine.num_sampled == 2:
                break
        await engine.line([*ids, 20, 21, 22, 23], max_tokens=1, seed=1)
        await first

    assert sorted(sizes_of(model, use, num_rows=2)) == [1] * 28 + [1 + 4, 20]


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


def test_a_line_and_an_observation_go_through_the_model_together(model: Any) -> None:
    """A step has one token of a row in the middle of a line, and 1 + 5 of one that comes back."""

    async def use(engine: HFEngine) -> None:
        other = asyncio.create_task(engine.line(prompt(1, 20), max_tokens=40, seed=0))
        first = await engine.line(prompt(0, 20), max_tokens=3, seed=1)
        await engine.line([*prompt(0, 20), *first.ids, *prompt(2, 5)], max_tokens=3, seed=2)
        await other

    assert 1 + 6 in sizes_of(model, use, num_rows=2)
