"""An engine that computes in bfloat16 casts the trainer's weights once for each update."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine_kit import run
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.models.precision import CastWeights
from repl_rl.testing.under_test import Written, prompt, shake, trajectories, trajectory


def sampled(model: Any) -> list[Written]:
    return run(model, lambda engine: trajectories(engine, 4, num_lines=2), dtype=torch.bfloat16)


def test_copies_change_no_bit_of_what_autocast_gives(
    any_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sampled(any_model)
    monkeypatch.setattr(CastWeights, "_cast", lambda self: iter(()))
    assert sampled(any_model) == found


def test_the_parameters_are_put_back(model: Any) -> None:
    before = dict(model.named_parameters())
    sampled(model)
    after = dict(model.named_parameters())
    assert before.keys() == after.keys()
    assert all(after[name] is before[name] for name in before)


def test_each_matrix_is_cast_once_for_all_tokens_of_an_update(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None for the trial of the model, which is in float32."""
    made: list[int] = []
    cast = CastWeights._cast

    def counted(self: CastWeights) -> Any:
        found = list(cast(self))
        made.append(len(found))
        return iter(found)

    monkeypatch.setattr(CastWeights, "_cast", counted)

    async def use(engine: HFEngine) -> None:
        await trajectory(engine, prompt(0), seed=1)
        shake(model)
        await engine.sync((), version=1)
        await trajectory(engine, prompt(0), seed=2)

    run(model, use, dtype=torch.bfloat16)
    num_linear = sum(type(layer) is torch.nn.Linear for layer in model.modules())
    assert made == [0, num_linear, num_linear]


def test_an_update_is_seen(model: Any) -> None:
    async def use(engine: HFEngine) -> Written:
        await engine.line(prompt(0), max_tokens=4, seed=1)
        shake(model)
        await engine.sync((), version=1)
        return await trajectory(engine, prompt(0), seed=2)

    found = run(model, use, dtype=torch.bfloat16)  # the model stays as it was shaken
    fresh = run(model, lambda engine: trajectory(engine, prompt(0), seed=2), dtype=torch.bfloat16)
    assert found == fresh
