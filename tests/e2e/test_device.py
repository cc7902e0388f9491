"""Laws that hold on a GPU as on a CPU: those of an engine, a run that goes on.

`REPL_RL_TEST_DEVICE=cpu` runs them without one. `benchmarks/gpu.py` runs them on its device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from device import DEVICE, on_device
from repl_rl.engines.base import Engine, Weights
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.testing import EngineContract, EngineOptions
from run_metrics import read_metrics
from small_run import small

pytestmark = [pytest.mark.slow, *on_device]

Command = Callable[..., Any]


class Moved(HFEngine):
    """The laws keep their model on the CPU; this one samples from a copy of it on the device."""

    def __init__(self, model: Any, **settings: Any) -> None:
        self._copy = copy.deepcopy(model).to(DEVICE)
        super().__init__(self._copy, **settings)

    async def sync(self, weights: Weights, *, version: int) -> None:
        mine = dict(self._copy.named_parameters())
        with torch.no_grad():
            for name, weight in weights:
                mine[name].copy_(weight)
        await super().sync(weights, version=version)

    async def aclose(self) -> None:
        if not hasattr(self, "_copy"):
            return
        await super().aclose()
        # Nobody else has the copy.
        for name in ("_copy", "_model", "_cast"):
            self.__dict__.pop(name, None)


class TestHFOnDevice(EngineContract):
    is_fixed = False

    def open(self, model: Any, folder: Path, options: EngineOptions) -> Engine:
        engine = Moved(
            model,
            newline_ids=options.newline_ids,
            eos_ids=options.eos_ids,
            num_rows=options.num_rows,
            temperature=options.temperature,
            forbidden_ids=options.forbidden_ids,
            is_fixed=self.is_fixed,
        )
        assert (engine._steps is not None) is self.is_fixed, engine.about
        return engine


class TestHFInStepsOfFixedShape(TestHFOnDevice):
    """On a GPU each step is one CUDA graph."""

    is_fixed = True


@pytest.mark.kernel
@pytest.mark.train
@pytest.mark.timeout(400)
def test_a_run_that_goes_on_is_the_run_that_was_never_ended(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    """In float32, to what sums in another order change."""

    def train(*given: str, steps: int) -> None:
        settings = {"sampling__device": DEVICE, "grpo__dtype": "float32"}
        ended = repl_rl("train", *given, *small(grpo__steps=steps, **settings))
        assert ended.code == 0, ended.stderr

    model = ("--model", str(tiny_model), "--output")
    train(*model, "whole", steps=4)
    train(*model, "ended", steps=2)
    train("--resume", "ended", steps=4)
    losses = [
        [row["loss"] for row in read_metrics(tmp_path / name / "metrics.jsonl") if "loss" in row]
        for name in ("whole", "ended")
    ]
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], rel=1e-2, abs=1e-5)
