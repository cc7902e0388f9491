"""The transformers engine when a forward fails, and what it leaves behind in a model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from engine_kit import gpt2, run
from repl_rl.engines.base import SampledLine
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.errors import EngineError
from repl_rl.testing.under_test import Written, prompt, random_model, trajectory, worst_difference


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), IndexError("out of range")])
def test_a_forward_that_fails_ends_waiting_lines_in_an_error(
    model: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(**_: object) -> None:
        raise error

    async def use(engine: HFEngine) -> SampledLine:
        monkeypatch.setattr(model, "forward", broken)
        async with asyncio.timeout(60):
            return await engine.line(prompt(0), max_tokens=2, seed=0)

    with pytest.raises(EngineError, match=str(error)):
        run(model, use)


def test_a_device_that_refuses_to_be_cleared_keeps_no_line_waiting(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    async def use(engine: HFEngine) -> SampledLine:
        monkeypatch.setattr(model, "forward", broken)
        with monkeypatch.context() as during:
            during.setattr(engine, "_forget", broken)
            async with asyncio.timeout(60):
                return await engine.line(prompt(0), max_tokens=2, seed=0)

    with pytest.raises(EngineError, match="illegal memory access"):
        run(model, use)


def test_weights_that_are_no_numbers_end_lines_in_an_error(model: Any) -> None:
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="logits are not finite"):
        run(model, lambda engine: engine.line(prompt(0), max_tokens=2, seed=0))


def test_an_engine_goes_on_after_a_forward_that_failed(model: Any) -> None:
    """A NaN in a row's keys would pass through any mask: 0 times NaN is NaN."""

    async def use(engine: HFEngine) -> list[Written]:
        weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        with torch.no_grad():
            model.model.layers[0].self_attn.v_proj.weight.fill_(torch.nan)
        doomed = [engine.line(prompt(i, 60), max_tokens=2, seed=0) for i in range(2)]
        failed = await asyncio.gather(*doomed, return_exceptions=True)
        assert [type(one) for one in failed] == [EngineError] * 2
        model.load_state_dict(weights)
        await engine.sync((), version=1)
        return await asyncio.gather(
            *(trajectory(engine, prompt(i, 5 + 30 * i), seed=i) for i in range(2))
        )

    results = run(model, use, num_rows=2)
    assert max(worst_difference(model, *result) for result in results) < 1e-5


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


def test_sampling_leaves_the_model_in_the_mode_it_was_in(model: Any) -> None:
    model.train()
    run(model, lambda engine: engine.line(prompt(0), max_tokens=4, seed=0))
    assert model.training


def test_gradient_checkpointing_does_not_disturb_the_cache(model: Any) -> None:
    model.train()
    model.gradient_checkpointing_enable()
    ids, logprobs = run(model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(model.eval(), ids, logprobs) < 1e-5


def test_dropout_is_off_while_sampling() -> None:
    """GPT-2 drops a tenth of everything in training mode: logprobs would be off by far."""
    model = random_model(gpt2).train()
    ids, logprobs = run(model, lambda engine: trajectory(engine, prompt(0), seed=1))
    assert worst_difference(model.eval(), ids, logprobs) < 1e-5
