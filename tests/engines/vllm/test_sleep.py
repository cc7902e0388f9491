"""In which order a GPU's memory is taken back around an update. No vLLM is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from repl_rl.engines.base import Weights
from repl_rl.engines.vllm.core import VLLMCore
from repl_rl.errors import EngineError


class OneLayer(torch.nn.Linear):
    def load_weights(self, weights: Weights) -> set[str]:
        return {name for name, _ in weights}


class Recorder:
    """Takes the place of vLLM's engine; keeps what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.model: Any = OneLayer(1, 1, bias=False)

    def sleep(self, *, level: int) -> None:
        self.calls.append(f"sleep {level}")

    def wake_up(self, tags: list[str] | None = None) -> None:
        self.calls.append(f"wake {tags}")

    def collective_rpc(self, function: Callable[..., None], args: tuple[Weights]) -> None:
        self.calls.append(function.__name__)
        self.model.load_weights(*args)

    def reset_prefix_cache(self) -> bool:
        self.calls.append("reset")
        return True


def sleeping_core() -> tuple[VLLMCore, Recorder]:
    core = object.__new__(VLLMCore)
    core._is_cpu, core._is_asleep, core._engine = False, False, Recorder()
    core.sleep()
    core.sleep()
    return core, core._engine


def test_an_update_wakes_first_the_weights_then_the_cache() -> None:
    core, engine = sleeping_core()
    core.load([("weight", torch.ones(1, 1))])
    core.load([("weight", torch.ones(1, 1))])
    assert engine.calls == [
        "sleep 2",
        "wake ['weights']",
        "take_weights",
        "wake ['kv_cache']",
        "reset",
        "take_weights",
        "reset",
    ]


def test_a_line_before_the_weights_that_follow_a_sleep_is_refused() -> None:
    core, engine = sleeping_core()
    with pytest.raises(EngineError, match="before the weights that were to follow"):
        core.add("line", [1], max_tokens=1, seed=0)
    assert engine.calls == ["sleep 2"]
