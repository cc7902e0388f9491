"""Laws of the transformers engine that do not depend on the model, on one of two layers."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import psutil
import pytest
import torch

from engine_kit import (
    ARCHITECTURES,
    VOCABULARY,
    Written,
    prompt,
    random_model,
    run,
    shake,
    trajectories,
    trajectory,
    worst_difference,
)
from repl_rl.engines.base import SampledLine
from repl_rl.engines.hf import HFEngine

NEVER: frozenset[int] = frozenset()


async def some_steps(engine: HFEngine) -> None:
    """The engine gives way to others after each token."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert 5 <= engine.num_sampled <= 10


# Log-probabilities


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_logprobs_are_those_of_the_tempered_distribution(model: Any, temperature: float) -> None:
    """As TRL has it: logits divided by the temperature, then one softmax over all of them."""
    ids, logprobs = run(
        model, lambda engine: trajectory(engine, prompt(0), seed=1), temperature=temperature
    )
    assert worst_difference(model, ids, logprobs, temperature=temperature) < 1e-5


def test_logprobs_hold_beyond_the_first_columns_of_the_cache(model: Any) -> None:
    """Rows begin with 64 columns and double: these pass 64 and 128."""
    results = run(
        model, lambda engine: trajectories(engine, 3, num_lines=12, max_tokens=30), num_rows=2
    )
    assert max(len(ids) for ids, _ in results) > 192
    assert max(worst_difference(model, *result) for result in results) < 1e-5


def test_without_a_sync_old_keys_would_be_seen(model: Any) -> None:
    """The law of the weight update can fail: without `sync` it is off by far more."""

    async def use(engine: HFEngine) -> Written:
        first = await engine.line(prompt(0), max_tokens=8, seed=1)
        shake(model)
        return await trajectory(engine, [*prompt(0), *first.ids, 20], seed=2, num_lines=1)

    assert worst_difference(model, *run(model, use)) > 1e-3


def test_an_update_in_the_middle_of_a_line_is_seen_from_the_next_token_on(model: Any) -> None:
    async def use(engine: HFEngine) -> tuple[int, SampledLine]:
        line = asyncio.create_task(engine.line(prompt(0), max_tokens=40, seed=1))
        await some_steps(engine)
        shake(model)
        engine.sync(1)
        return engine.num_sampled, await line

    num_old, line = run(model, use, newline_ids=NEVER, eos_ids=NEVER)
    unknown = [None] * (len(prompt(0)) + num_old)
    logprobs = [*unknown, *line.logprobs[num_old:]]
    assert worst_difference(model, [*prompt(0), *line.ids], logprobs) < 1e-5


def test_a_line_has_the_version_of_the_last_sync(model: Any) -> None:
    async def use(engine: HFEngine) -> list[int]:
        before = await engine.line(prompt(0), max_tokens=2, seed=1)
        engine.sync(5)
        after = await engine.line(prompt(0), max_tokens=2, seed=1)
        return [before.policy_version, after.policy_version]

    assert run(model, use) == [0, 5]


def test_the_same_prompt_twice_needs_no_new_token(model: Any) -> None:
    """A row that holds the whole request still runs its last token for a distribution."""

    async def use(engine: HFEngine) -> list[SampledLine]:
        return [await engine.line(prompt(0), max_tokens=5, seed=4) for _ in range(2)]

    first, second = run(model, use, num_rows=1)
    assert first.ids == second.ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=1e-5)


@pytest.mark.parametrize("name", ["qwen3", "gemma2 soft caps", "gpt2"])
def test_logprobs_in_half_precision_are_off_by_rounding_only(name: str) -> None:
    """bfloat16 has 8 bits: logits of about 2 are off by 2**-8. Wrong keys cost tenths and more."""
    model = random_model(ARCHITECTURES[name]).to(torch.bfloat16)
    results = run(model, lambda engine: trajectories(engine, 5), num_rows=2)
    assert max(worst_difference(model, *result) for result in results) < 0.03


# Draws


def test_different_seeds_give_different_lines(model: Any) -> None:
    async def use(engine: HFEngine) -> set[tuple[int, ...]]:
        lines = [engine.line(prompt(0), max_tokens=8, seed=seed) for seed in range(16)]
        return {line.ids for line in await asyncio.gather(*lines)}

    assert len(run(model, use)) > 12


def test_lines_are_drawn_from_the_distribution_of_the_model(model: Any) -> None:
    """2,000 first tokens: their shares are off by less than five standard errors."""

    async def use(engine: HFEngine) -> list[int]:
        lines = [engine.line(prompt(0), max_tokens=1, seed=seed) for seed in range(2000)]
        return [line.ids[0] for line in await asyncio.gather(*lines)]

    drawn = torch.bincount(torch.tensor(run(model, use, num_rows=200)), minlength=VOCABULARY)
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([prompt(0)])).logits[0, -1], -1)
    error = (expected * (1 - expected) / 2000).sqrt()
    assert ((drawn / 2000 - expected).abs() <= 5 * error + 1e-3).all()


# Lines that are cancelled


async def cancelled(engine: HFEngine) -> None:
    """A line that is given up after some tokens."""
    doomed = asyncio.create_task(engine.line(prompt(0), max_tokens=400, seed=0))
    await some_steps(engine)
    doomed.cancel()


@pytest.mark.parametrize("start", [prompt(0), prompt(0, 4), prompt(1, 30)])
def test_a_cancelled_line_leaves_nothing_in_the_row_it_had(model: Any, start: list[int]) -> None:
    """The next trajectory on that row: after the same prompt, a part of it, another one."""

    async def use(engine: HFEngine) -> Written:
        await cancelled(engine)
        return await trajectory(engine, start, seed=1)

    plain = run(model, lambda one: trajectory(one, start, seed=1), newline_ids=NEVER, eos_ids=NEVER)
    ids, logprobs = run(model, use, num_rows=1, newline_ids=NEVER, eos_ids=NEVER)
    assert ids == plain[0]
    assert worst_difference(model, ids, logprobs) < 1e-5


def test_a_line_cancelled_before_it_had_a_row_is_never_sampled(model: Any) -> None:
    async def use(engine: HFEngine) -> int:
        first = asyncio.create_task(engine.line(prompt(0), max_tokens=20, seed=0))
        second = asyncio.create_task(engine.line(prompt(1), max_tokens=20, seed=0))
        await asyncio.sleep(0)
        second.cancel()
        await first
        return engine.num_sampled

    assert run(model, use, num_rows=1, newline_ids=NEVER, eos_ids=NEVER) == 20


# What an engine holds


def four_dimensional(num_rows: int) -> int:
    """Live tensors that look like keys or values of `num_rows` rows."""
    return sum(
        type(one) is torch.Tensor and one.dim() == 4 and len(one) == num_rows
        for one in gc.get_objects()
    )


def test_a_closed_engine_holds_no_keys_no_thread_and_no_file(model: Any) -> None:
    def held() -> tuple[int, int, int]:
        files = psutil.Process().num_fds()
        return four_dimensional(37), threading.active_count(), files

    async def use() -> list[tuple[int, int, int]]:
        before = held()
        engine = HFEngine(model, newline_ids=NEVER, eos_ids=NEVER, num_rows=37)
        await asyncio.gather(*(engine.line(prompt(i), max_tokens=4, seed=i) for i in range(40)))
        assert held()[0] == 4  # keys and values of two layers
        await engine.aclose()
        return [before, held()]

    before, after = asyncio.run(use())
    assert before == after


def test_sampling_leaves_the_number_of_threads_as_it_was(model: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(model, lambda engine: engine.line(prompt(0), max_tokens=4, seed=0))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("row_tokens", "columns"),
    [(1000, [64, 128, 256, 512]), (150, [64, 128, 192, 256, 320])],
    ids=["doubling", "beyond what was expected"],
)
def test_rows_grow(model: Any, row_tokens: int, columns: list[int]) -> None:
    """299 tokens one by one: doubled as long as `row_tokens` asks for it, then by 64."""
    seen: set[int] = set()

    async def use(engine: HFEngine) -> SampledLine:
        watch = model.register_forward_hook(
            lambda *given: seen.add(given[2]["past_key_values"].capacity), with_kwargs=True
        )
        try:
            return await engine.line(prompt(0), max_tokens=293, seed=0)
        finally:
            watch.remove()

    run(model, use, row_tokens=row_tokens, newline_ids=NEVER, eos_ids=NEVER)
    assert sorted(seen) == columns


def test_sampled_tokens_are_counted(model: Any) -> None:
    async def use(engine: HFEngine) -> int:
        await engine.line(prompt(0), max_tokens=6, seed=0)
        await engine.line(prompt(1), max_tokens=5, seed=0)
        return engine.num_sampled

    assert run(model, use, newline_ids=NEVER, eos_ids=NEVER) == 11
