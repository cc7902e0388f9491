"""Siblings read their prompt once, and how fast the others are changes no bit of a trajectory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from engine_kit import run
from repl_rl.engines.hf.cache import BatchPart, RowRun, packed, padded
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.testing.under_test import (
    Written,
    prompt,
    shake,
    trajectories,
    trajectory,
    worst_difference,
)

pytestmark = pytest.mark.slow

# What is laid out


PARTS = [BatchPart(3, 2, [7, 8, 9, 10]), BatchPart(1, 1, [5, 6]), BatchPart(2, 3, [1, 2, 3, 4])]
"""Row 3 comes back with two tokens; rows 1 and 2 have one each, after one and three others."""


def test_packed_tokens_stand_one_behind_the_other_and_neighbours_together() -> None:
    batch = packed(PARTS, spare=64, num_threads=1)
    assert batch.tokens == [[6, 4, 9, 10, 0, 0, 0, 0]]
    assert batch.positions == [[1, 3, 2, 3, 0, 0, 0, 0]]
    assert batch.rows == [[1, 2, 3, 3, 0, 0, 0, 0]]
    assert batch.writes == [[1, 3, 2, 3, 64, 64, 64, 64]]
    assert batch.ends == [3, 0, 1, 0, 0, 0]
    assert batch.runs == [
        RowRun(at=0, row=1, size=2, width=1, num_keys=64),
        RowRun(at=2, row=3, size=1, width=2, num_keys=64),
    ]


def test_padding_stands_on_the_left_and_is_written_where_nobody_looks() -> None:
    batch = padded(PARTS, spare=64)
    assert batch.tokens == [[9, 10], [0, 6], [0, 4]]
    assert batch.positions == [[2, 3], [0, 1], [0, 3]]
    assert batch.rows == [[3], [1], [2]]
    assert batch.writes == [[2, 3], [64, 1], [64, 3]]
    assert not batch.runs


# What is read once


def sizes(
    model: Any,
    requests: list[list[int]],
    *,
    num_rows: int = 8,
    max_tokens: int = 1,
    beginning: Sequence[int] = (),
) -> list[int]:
    """Tokens of each forward for these requests, asked for at once."""
    seen: list[int] = []

    async def use(engine: HFEngine) -> None:
        engine.share(beginning)
        hook = model.register_forward_pre_hook(
            lambda *given: seen.append(given[2]["input_ids"].numel()), with_kwargs=True
        )
        try:
            lines = (
                engine.line(ids, max_tokens=max_tokens, seed=at) for at, ids in enumerate(requests)
            )
            await asyncio.gather(*lines)
        finally:
            hook.remove()

    run(model, use, num_rows=num_rows, newline_ids=frozenset(), eos_ids=frozenset())
    return seen


def test_siblings_read_their_prompt_once(model: Any) -> None:
    assert sizes(model, [prompt(0, 20)] * 4) == [20]


def test_each_prompt_is_read_whole(model: Any) -> None:
    """The beginning of two prompts is read for each: see `Prompts`."""
    banner = prompt(0, 12)
    one, other = [*banner, 20, *prompt(1, 4)], [*banner, 21, *prompt(2, 6)]
    assert sizes(model, [one, other, one, other]) == [17 + 19]


def test_what_prompts_begin_with_is_read_once_if_it_is_said(model: Any) -> None:
    """12 tokens, then the other 8 and 12 of two prompts; a third begins in another way."""
    banner = prompt(0, 12)
    one, other = [*banner, 20, *prompt(1, 7)], [*banner, 21, *prompt(2, 11)]
    assert sizes(model, [one, other, one, other], beginning=banner) == [12, 8 + 12]
    third = prompt(3, 16)
    assert sum(sizes(model, [one, third, other], beginning=banner)) == 12 + 16 + 8 + 12


def test_a_row_that_was_another_prompts_keeps_what_both_begin_with(model: Any) -> None:
    """One row: the beginning and 8, then 12 after it, and 8 again."""
    banner = prompt(0, 12)
    one, other = [*banner, 20, *prompt(1, 7)], [*banner, 21, *prompt(2, 11)]
    assert sizes(model, [one, other, one], num_rows=1, beginning=banner) == [12, 8, 12, 8]


def test_a_prompt_that_is_the_beginning_is_read_in_one_piece(model: Any) -> None:
    banner = prompt(0, 12)
    longer = [*banner, *prompt(1, 8)]
    assert sizes(model, [banner, longer], num_rows=1, beginning=banner) == [12, 8]


def test_a_prompt_that_a_row_still_begins_with_is_not_read_again(model: Any) -> None:
    """On one row, whose first request left two tokens behind its prompt."""
    first, *others = sizes(model, [prompt(0, 20)] * 2, num_rows=1, max_tokens=3)
    assert (first, sum(size == 20 for size in others)) == (20, 0)


def test_a_prompt_that_no_row_holds_any_more_is_read_again(model: Any) -> None:
    requests = [prompt(0, 20), prompt(1, 28), prompt(0, 20)]
    assert sizes(model, requests, num_rows=1) == [20, 28, 20]


def test_who_leaves_a_trajectory_is_given_its_keys(model: Any) -> None:
    """It begins as the other one, up to a token in its middle: one token is read, not 24."""
    sizes_seen: list[int] = []

    async def use(engine: HFEngine) -> list[Written]:
        first = await trajectory(engine, prompt(0, 20), seed=1, num_lines=3)
        ids, logprobs = first
        stem = ids[:24], [None] * 24
        hook = model.register_forward_pre_hook(
            lambda *given: sizes_seen.append(given[2]["input_ids"].numel()), with_kwargs=True
        )
        line = await engine.line(stem[0], max_tokens=6, seed=5)
        hook.remove()
        return [(ids, logprobs), ([*stem[0], *line.ids], [*stem[1], *line.logprobs])]

    results = run(model, use, num_rows=3)
    assert max(worst_difference(model, *result) for result in results) < 1e-5
    assert max(sizes_seen) < 24


def test_new_weights_read_a_prompt_anew(model: Any) -> None:
    async def use(engine: HFEngine) -> Written:
        await engine.line(prompt(0), max_tokens=2, seed=1)
        shake(model)
        await engine.sync((), version=1)
        return await trajectory(engine, prompt(0), seed=2, num_lines=2)

    assert worst_difference(model, *run(model, use)) < 1e-5


def test_siblings_go_on_alone_with_the_same_logprobs(any_model: Any) -> None:
    """Nine on seven rows."""

    async def use(engine: HFEngine) -> list[Written]:
        starts = [prompt(seed, 33 + seed) for seed in range(3)]
        return await asyncio.gather(
            *(trajectory(engine, ids, seed=5 * at + i, num_lines=3)
              for at, ids in enumerate(starts) for i in range(3))
        )  # fmt: skip

    results = run(any_model, use, num_rows=7)
    assert max(worst_difference(any_model, *result) for result in results) < 1e-5


def test_lines_and_observations_go_through_the_model_together(model: Any) -> None:
    """Rows that come back with an observation join the step of the others, without padding."""
    results = run(model, lambda engine: trajectories(engine, 6, num_lines=6), num_rows=6)
    assert max(worst_difference(model, *result) for result in results) < 1e-5


# Who else is there


BANNER = prompt(9, 20)


async def at_leisure(engine: HFEngine, at: int, turns: random.Random) -> Written:
    """A trajectory whose kernel takes any number of the engine's steps to answer."""
    ids = [*BANNER, *prompt(at // 3, 24)]
    logprobs: list[float | None] = [None] * len(ids)
    for index in range(5):
        for _ in range(turns.randrange(60)):
            await asyncio.sleep(0)
        line = await engine.line(ids, max_tokens=9, seed=100 * at + index)
        seen = prompt(100 * at + index, 1 + (at + 3 * index) % 6)
        ids += [*line.ids, *seen]
        logprobs += [*line.logprobs, *[None] * len(seen)]
    return ids, logprobs


@pytest.mark.parametrize("beginning", [[], BANNER], ids=["whole prompts", "a beginning"])
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_do_not_depend_on_how_fast_kernels_answer(
    model: Any, num_threads: int, beginning: list[int], dtype: torch.dtype
) -> None:
    """So a run that goes on after a stop ends with the weights that it would have had."""

    def sampled(seed: int) -> list[Written]:
        turns = random.Random(seed)

        async def use(engine: HFEngine) -> list[Written]:
            engine.share(beginning)
            return await asyncio.gather(*(at_leisure(engine, at, turns) for at in range(12)))

        return run(model, use, num_rows=12, dtype=dtype)

    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        first, *others = [sampled(seed) for seed in range(4)]
    finally:
        torch.set_num_threads(before)
    assert all(other == first for other in others)
