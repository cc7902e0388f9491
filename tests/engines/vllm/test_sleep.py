"""In which order a GPU's memory is taken back around an update. No vLLM is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from repl_rl.engines.base import Weights
from repl_rl.engines.vllm.core import VLLMCore


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
    core.wake()
    assert engine.calls == [
        "sleep 1",
        "wake ['weights']",
        "take_weights",
        "wake ['kv_cache']",
        "reset",
    ]


def test_a_line_wakes_everything_once() -> None:
    core, engine = sleeping_core()
    core.wake()
    core.wake()
    assert engine.calls == ["sleep 1", "wake None"]


def test_an_engine_that_is_awake_is_not_woken_for_an_update() -> None:
    core, engine = sleeping_core()
    core.wake()
    core.load([("weight", torch.ones(1, 1))])
    assert engine.calls == ["sleep 1", "wake None", "take_weights", "reset"]
