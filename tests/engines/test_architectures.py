"""Laws that hold for the transformers engine whatever the model: positions, masks, caches."""

from __future__ import annotations

import asyncio
from typing import Any

import torch

from engine_kit import WINDOW, run
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.testing.under_test import (
    Written,
    prompt,
    shake,
    trajectories,
    trajectory,
    worst_difference,
)


def test_logprobs_are_those_of_a_fresh_forward(any_model: Any) -> None:
    """Four trajectories on two rows: lines go on after observations, and rows are given away."""
    results = run(any_model, lambda one: trajectories(one, 4, num_lines=3), num_rows=2)
    assert min(len(ids) for ids, _ in results) > 2 * WINDOW
    assert max(worst_difference(any_model, *result) for result in results) < 1e-5


def test_logprobs_are_those_of_the_weights_after_an_update(any_model: Any) -> None:
    async def use(engine: HFEngine) -> Written:
        first = await engine.line(prompt(0, 20), max_tokens=8, seed=1)
        shake(any_model)
        await engine.sync((), version=1)
        return await trajectory(engine, [*prompt(0, 20), *first.ids, 20], seed=2, num_lines=1)

    assert worst_difference(any_model, *run(any_model, use)) < 1e-5


def test_a_line_is_the_same_whatever_else_is_in_flight(any_model: Any) -> None:
    async def crowd(engine: HFEngine) -> Written:
        mine, *_ = await asyncio.gather(
            trajectory(engine, prompt(0, 20), seed=1, num_lines=2),
            *(trajectory(engine, prompt(i, 3 + 9 * i), seed=i, num_lines=2) for i in (2, 3, 4)),
        )
        return mine

    alone, _ = run(any_model, lambda one: trajectory(one, prompt(0, 20), seed=1, num_lines=2))
    assert run(any_model, crowd)[0] == alone


def test_a_model_can_be_trained_after_it_was_sampled_from(any_model: Any) -> None:
    run(any_model, lambda engine: trajectory(engine, prompt(0), seed=1, num_lines=1))
    any_model.train()(input_ids=torch.tensor([prompt(0)])).logits.sum().backward()
