"""The transformers engine when something goes wrong, and what it leaves behind in a model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from engine_kit import (
    gpt2,
    prompt,
    random_model,
    run,
    trajectory,
    worst_difference,
)
from repl_rl.engines.base import SampledLine
from repl_rl.engines.hf import HFEngine
from repl_rl.errors import EngineError


def test_a_cancelled_line_leaves_the_engine_usable(model: Any) -> None:
    async def use(engine: HFEngine) -> SampledLine:
        doomed = [
            asyncio.create_task(engine.line(prompt(i), max_tokens=400, seed=i)) for i in range(3)
        ]
        await asyncio.sleep(0.02)
        for task in doomed:
            task.cancel()
        return await engine.line(prompt(0), max_tokens=8, seed=1)

    never = {"newline_ids": frozenset(), "eos_ids": frozenset()}
    plain = run(model, lambda engine: engine.line(prompt(0), max_tokens=8, seed=1), **never)
    assert run(model, use, num_rows=2, **never).ids == plain.ids


def test_lines_in_flight_end_in_an_error_when_the_engine_is_closed(model: Any) -> None:
    async def use(engine: HFEngine) -> list[object]:
        waiting = [
            asyncio.create_task(engine.line(prompt(i), max_tokens=400, seed=i)) for i in range(3)
        ]
        await asyncio.sleep(0.02)
        await engine.aclose()
        return await asyncio.gather(*waiting, return_exceptions=True)

    results = run(model, use, num_rows=2, newline_ids=frozenset(), eos_ids=frozenset())
    assert [type(result) for result in results] == [EngineError] * 3


def test_a_line_asked_of_a_closed_engine_ends_in_an_error(model: Any) -> None:
    async def use(engine: HFEngine) -> SampledLine:
        await engine.aclose()
        async with asyncio.timeout(1):
            return await engine.line(prompt(0), max_tokens=2, seed=0)

    with pytest.raises(EngineError, match="closed"):
        run(model, use)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), IndexError("out of range")])
def test_a_forward_that_fails_ends_waiting_lines_in_an_error(
    model: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr(model, "forward", broken)

    async def use(engine: HFEngine) -> SampledLine:
        async with asyncio.timeout(1):
            return await engine.line(prompt(0), max_tokens=2, seed=0)

    with pytest.raises(EngineError, match=str(error)):
        run(model, use)


def test_weights_that_are_no_numbers_end_lines_in_an_error(model: Any) -> None:
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="logits are not finite"):
        run(model, lambda engine: engine.line(prompt(0), max_tokens=2, seed=0))


def test_what_a_model_computes_while_sampling_can_be_trained_through(model: Any) -> None:
    """Some rotary embeddings replace their frequencies in a forward, and keep them."""
    rotary = model.model.rotary_emb
    original = rotary.forward

    def replacing(*args: Any, **kwargs: Any) -> Any:
        rotary.inv_freq = rotary.inv_freq * 1.0
        return original(*args, **kwargs)

    rotary.forward = replacing
    run(model, lambda engine: engine.line(prompt(0), max_tokens=2, seed=0))
    scale = torch.ones(1, requires_grad=True)
    (rotary.inv_freq * scale).sum().backward()
    assert scale.grad is not None


@pytest.mark.parametrize(
    ("row_tokens", "columns"),
    [(1000, [64, 128, 256, 512]), (150, [64, 128, 192, 256, 320])],
    ids=["doubling", "beyond what was expected"],
)
def test_rows_grow(model: Any, row_tokens: int, columns: list[int]) -> None:
    """299 tokens one by one: doubled as long as `row_tokens` asks for it, then by 64."""
    seen: list[int] = []
    watch = model.register_forward_hook(
        lambda *given: seen.append(given[2]["past_key_values"].capacity),
        with_kwargs=True,
    )

    async def use(engine: HFEngine) -> SampledLine:
        return await engine.line(prompt(0), max_tokens=293, seed=0)

    never: frozenset[int] = frozenset()
    try:
        run(model, use, row_tokens=row_tokens, newline_ids=never, eos_ids=never)
    finally:
        watch.remove()
    assert sorted(set(seen)) == columns


def test_sampling_leaves_the_model_in_the_mode_it_was_in(model: Any) -> None:
    model.train()
    run(model, lambda engine: engine.line(prompt(0), max_tokens=4, seed=0))
    assert model.training


def test_gradient_checkpointing_does_not_disturb_the_cache(model: Any) -> None:
    model.train()
    model.gradient_checkpointing_enable()
    ids, logprobs = run(model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(model.eval(), ids, logprobs) < 1e-5


def test_a_model_can_be_trained_after_it_was_sampled_from(any_model: Any) -> None:
    run(any_model, lambda engine: trajectory(engine, prompt(0), seed=1))
    any_model.train()(input_ids=torch.tensor([prompt(0)])).logits.sum().backward()


def test_dropout_is_off_while_sampling() -> None:
    """GPT-2 drops a tenth of everything in training mode: logprobs would be off by far."""
    model = random_model(gpt2).train()
    ids, logprobs = run(model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(model.eval(), ids, logprobs) < 1e-5


def test_sampled_tokens_are_counted(model: Any) -> None:
    async def use(engine: HFEngine) -> int:
        await engine.line(prompt(0), max_tokens=6, seed=0)
        await engine.line(prompt(1), max_tokens=5, seed=0)
        return engine.num_sampled

    assert run(model, use, newline_ids=frozenset(), eos_ids=frozenset()) == 11
