"""Types that a run's weights are held in and its forwards compute in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.engines.base import engine_kind
from repl_rl.errors import ConfigError
from repl_rl.models import precision as precision_module
from repl_rl.models.precision import (
    Precision,
    precision,
    share_moved_in_bfloat16,
    slowness,
    unwrapped,
    warning,
)

SINGLE, HALF = torch.float32, torch.bfloat16


def chosen(
    device: str, grpo: Any = "auto", sampling: Any = "auto", engine: Any = "hf"
) -> Precision:
    config = Config(
        grpo=GRPOConfig(dtype=grpo), sampling=SamplingConfig(dtype=sampling, engine=engine)
    )
    return precision(config, engine_kind(engine), device=device)


def as_tuple(found: Precision) -> tuple[torch.dtype, torch.dtype, torch.dtype]:
    return found.weights, found.update, found.sampling


@pytest.mark.parametrize("engine", ["hf", "vllm", "vllm-server"])
def test_a_gpu_keeps_single_weights_and_computes_in_half(engine: str) -> None:
    assert as_tuple(chosen("cuda", engine=engine)) == (SINGLE, HALF, HALF)


def test_a_cpu_does_all_in_single() -> None:
    assert as_tuple(chosen("cpu")) == (SINGLE, SINGLE, SINGLE)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("grpo", "expected"),
    [
        ("mixed", (SINGLE, HALF, HALF)),
        ("float32", (SINGLE, SINGLE, SINGLE)),
        ("bfloat16", (HALF, HALF, HALF)),
    ],
)
def test_what_is_named_is_the_same_on_all_devices(
    device: str, grpo: str, expected: tuple[torch.dtype, ...]
) -> None:
    assert as_tuple(chosen(device, grpo)) == expected


@pytest.mark.parametrize(
    ("grpo", "sampling", "engine"),
    [("float32", "bfloat16", "hf"), ("mixed", "float32", "vllm"), ("auto", "bfloat16", "vllm")],
)
def test_an_engine_may_compute_in_another_type_than_the_trainer(
    grpo: str, sampling: str, engine: str
) -> None:
    found = chosen("cpu", grpo, sampling, engine)
    assert found.sampling is getattr(torch, sampling)
    assert not found.is_exact


def test_on_a_gpu_the_copy_that_is_sampled_from_may_be_more_exact_than_the_update() -> None:
    assert as_tuple(chosen("cuda", "auto", "float32", "hf")) == (SINGLE, HALF, SINGLE)


@pytest.mark.parametrize(
    ("device", "grpo"), [("cuda", "bfloat16"), ("cpu", "mixed"), ("cpu", "bfloat16")]
)
def test_the_trainers_own_model_computes_in_what_the_trainer_does(device: str, grpo: str) -> None:
    with pytest.raises(ConfigError, match=r"give grpo\.dtype = 'float32' as well"):
        chosen(device, grpo, "float32", "hf")


@pytest.mark.parametrize(
    ("learning_rate", "share"),
    # Weights below 2**-11, 2**-8, 2**-5 of those that are normal with 0.02.
    [(1e-6, 0.0195), (1e-5, 0.1549), (1e-4, 0.8818), (0.0, 0.0)],
)
def test_a_weight_moves_where_half_its_last_place_is_less_than_the_step(
    learning_rate: float, share: float
) -> None:
    assert share_moved_in_bfloat16(learning_rate) == pytest.approx(share, abs=1e-4)
    weights = 0.02 * torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    held = torch.nn.Parameter(weights.to(HALF))
    before = held.detach().clone()
    held.grad = torch.ones_like(held)
    torch.optim.AdamW([held], lr=learning_rate, weight_decay=0.0).step()
    assert (held != before).float().mean().item() == pytest.approx(share, abs=5e-3)


def test_half_weights_that_hardly_move_are_told_of_in_one_sentence() -> None:
    said = warning(chosen("cuda", "bfloat16"), learning_rate=1e-6)
    assert said is not None
    assert "grpo.learning_rate = 1e-06: a step moves about 1.9% of the weights" in said
    assert "\n" not in said


@pytest.mark.parametrize(("grpo", "learning_rate"), [("auto", 1e-6), ("bfloat16", 5e-4)])
def test_weights_that_move_are_not_told_of(grpo: str, learning_rate: float) -> None:
    assert warning(chosen("cuda", grpo), learning_rate=learning_rate) is None


@pytest.mark.parametrize(
    ("grpo", "sampling", "named"),
    [("mixed", "auto", "grpo"), ("bfloat16", "auto", "grpo"), ("float32", "bfloat16", "sampling")],
)
def test_a_type_that_a_cpu_has_no_instructions_for_is_told_of(
    grpo: str, sampling: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    types, cpu = chosen("cpu", grpo, sampling), torch.device("cpu")
    monkeypatch.setattr(precision_module, "is_fast_in_bfloat16", lambda device: False)
    said = slowness(types, cpu)
    assert said is not None
    assert said.startswith(f"warning: {named}.dtype asks for bfloat16, which this cpu has no")
    assert slowness(chosen("cpu", "auto"), cpu) is None  # float32
    assert slowness(chosen("cpu", "float32", "bfloat16", "vllm-server"), cpu) is None
    monkeypatch.setattr(precision_module, "is_fast_in_bfloat16", lambda device: True)
    assert slowness(types, cpu) is None


def test_what_accelerate_wraps_around_a_forward_can_be_left_out() -> None:
    layer = torch.nn.Linear(2, 2)
    # As its `prepare_model` does. An Accelerator keeps its precision for the whole process.
    vars(layer)["_original_forward"] = layer.forward
    vars(layer)["forward"] = torch.autocast("cpu", torch.bfloat16)(layer.forward)
    seen = torch.tensor([[1.0, 1 / 3]])
    single = torch.nn.functional.linear(seen, layer.weight, layer.bias)
    assert not torch.equal(layer(seen), single)  # of weights that were rounded
    with unwrapped(layer):
        assert torch.equal(layer(seen), single)
    assert not torch.equal(layer(seen), single)
