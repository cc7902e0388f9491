"""Laws of the in-process engine, on random models of two layers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from engine_kit import (
    VOCABULARY,
    prompt,
    run,
    trajectory,
    worst_difference,
)
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.engines.hf import HFEngine

# Log-probabilities


def test_logprobs_are_those_of_a_fresh_forward(any_model: Any) -> None:
    ids, logprobs = run(any_model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(any_model, ids, logprobs) < 1e-5


def test_logprobs_are_those_of_the_tempered_distribution(model: Any) -> None:
    ids, logprobs = run(
        model, lambda engine: trajectory(engine, prompt(0), seed=1), temperature=0.7
    )
    assert worst_difference(model, ids, logprobs, temperature=0.7) < 1e-5


async def many(engine: HFEngine, count: int, **lengths: int) -> list[Any]:
    return await asyncio.gather(
        *(trajectory(engine, prompt(i, 4 + i), seed=i, **lengths) for i in range(count))
    )


def test_logprobs_hold_when_trajectories_share_too_few_rows(any_model: Any) -> None:
    """Nine trajectories on three rows: rows are given away between lines all the time."""
    results = run(any_model, lambda engine: many(engine, 9), num_rows=3)
    assert max(worst_difference(any_model, *result) for result in results) < 1e-5


def test_logprobs_hold_beyond_the_first_columns_of_the_cache(model: Any) -> None:
    """Rows begin with 64 columns and double: these pass 64 and 128."""
    results = run(model, lambda engine: many(engine, 3, num_lines=12, max_tokens=30), num_rows=2)
    assert max(len(ids) for ids, _ in results) > 192
    assert max(worst_difference(model, *result) for result in results) < 1e-5


def test_logprobs_follow_the_weights_after_a_sync(model: Any) -> None:
    async def use(engine: HFEngine) -> tuple[SampledLine, list[int], SampledLine]:
        first = await engine.line(prompt(0), max_tokens=8, seed=1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        engine.sync(5)
        ids = [*prompt(0), *first.ids, 20]
        return first, ids, await engine.line(ids, max_tokens=8, seed=2)

    torch.manual_seed(1)
    first, ids, second = run(model, use)
    assert (first.policy_version, second.policy_version) == (0, 5)
    logprobs = [None] * len(ids) + list(second.logprobs)
    assert worst_difference(model, [*ids, *second.ids], logprobs) < 1e-5


def test_without_a_sync_old_keys_would_be_seen(model: Any) -> None:
    """The check above can fail: the same without `sync` is off by far more."""

    async def use(engine: HFEngine) -> tuple[list[int], SampledLine]:
        first = await engine.line(prompt(0), max_tokens=8, seed=1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        ids = [*prompt(0), *first.ids, 20]
        return ids, await engine.line(ids, max_tokens=8, seed=2)

    torch.manual_seed(1)
    ids, second = run(model, use)
    logprobs = [None] * len(ids) + list(second.logprobs)
    assert worst_difference(model, [*ids, *second.ids], logprobs) > 1e-3


def test_the_same_prompt_twice_needs_no_new_token(model: Any) -> None:
    """A row that holds the whole request still runs its last token for a distribution."""

    async def use(engine: HFEngine) -> list[SampledLine]:
        return [await engine.line(prompt(0), max_tokens=5, seed=4) for _ in range(2)]

    first, second = run(model, use, num_rows=1)
    assert first.ids == second.ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=1e-5)


# Seeds


def test_the_same_seed_gives_the_same_line_whatever_else_is_in_flight(model: Any) -> None:
    async def crowd(engine: HFEngine) -> tuple[list[int], list[float | None]]:
        results = await asyncio.gather(
            trajectory(engine, prompt(0), seed=1),
            *(trajectory(engine, prompt(i, 3 + 5 * i), seed=10 + i) for i in range(7)),
        )
        return results[0]

    alone = run(model, lambda engine: trajectory(engine, prompt(0), seed=1), num_rows=8)
    assert run(model, crowd, num_rows=8)[0] == alone[0]


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


# Ends


EVERY = frozenset(range(VOCABULARY))


@pytest.mark.parametrize(
    ("newline_ids", "eos_ids", "end", "length"),
    [
        (EVERY, frozenset(), LineEnd.NEWLINE, 1),
        (frozenset(), EVERY, LineEnd.EOS, 1),
        (frozenset(), frozenset(), LineEnd.LENGTH, 6),
    ],
)
def test_a_line_ends_by_its_last_token(
    model: Any, newline_ids: frozenset[int], eos_ids: frozenset[int], end: LineEnd, length: int
) -> None:
    line = run(
        model,
        lambda engine: engine.line(prompt(0), max_tokens=6, seed=0),
        newline_ids=newline_ids,
        eos_ids=eos_ids,
    )
    assert (line.end, len(line.ids), len(line.logprobs)) == (end, length, length)


def test_only_the_last_token_of_a_line_ends_it(model: Any) -> None:
    stops = frozenset(range(0, VOCABULARY, 6))

    async def use(engine: HFEngine) -> list[SampledLine]:
        requests = [engine.line(prompt(i), max_tokens=40, seed=i) for i in range(12)]
        return await asyncio.gather(*requests)

    lines = run(model, use, newline_ids=stops, eos_ids=frozenset())
    assert [stops & set(line.ids[:-1]) for line in lines] == [set()] * 12
    assert {line.end for line in lines} >= {LineEnd.NEWLINE}
