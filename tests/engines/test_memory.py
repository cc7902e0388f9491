"""Memory that a run takes of its device, counted before its weights are read."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.engines.base import engine_kind
from repl_rl.engines.memory import PARTS, Memory, measure, must_recompute, rows_at_once
from repl_rl.errors import ConfigError
from repl_rl.models import loading
from repl_rl.models.loading import ModelFiles, load_weights, num_parameters, read_files
from repl_rl.models.precision import Precision, precision
from repl_rl.rollout.plan import make_plan
from repl_rl.training.runtime import load_policy
from repl_rl.update.grpo import LineGRPOTrainer
from tiny_model import save_tiny_model

GIB = 1 << 30
HALF = torch.bfloat16
MIXED = Precision(update=HALF, sampling=HALF)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return read_files(str(save_tiny_model(tmp_path_factory.mktemp("model"))))


@pytest.fixture(scope="module")
def windowed(files: ModelFiles) -> ModelFiles:
    """A layer of it does not see all, so rows are forwarded in parts."""
    config = copy.deepcopy(files.config)
    config.update({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16})
    return replace(files, config=config)


def test_parameters_are_counted_without_weights(files: ModelFiles) -> None:
    loaded = load_weights(files, device=torch.device("cpu"), precision=Precision())
    assert num_parameters(files.config) == sum(p.numel() for p in loaded.model.parameters())


def test_counting_draws_no_random_number(files: ModelFiles) -> None:
    before = torch.get_rng_state()
    num_parameters(files.config)
    assert torch.equal(before, torch.get_rng_state())


def measured(
    files: ModelFiles,
    held: Precision,
    engine: Any = "hf",
    *,
    recomputes: bool = True,
    **grpo: Any,
) -> Memory:
    """Memory of 3 trajectories of 50 tokens."""
    config = Config(
        model="m", sampling=SamplingConfig(max_in_flight=3, engine=engine), grpo=GRPOConfig(**grpo)
    )
    kind = engine_kind(engine)
    return measure(
        config, kind, files, held, row_tokens=50, is_training=True, recomputes=recomputes
    )


def test_a_run_takes_four_bytes_a_weight_and_four_a_key(files: ModelFiles) -> None:
    """Keys and values of 2 layers x 4 heads x 32; the engine has copies of weights of two bytes."""
    weights = 4 * num_parameters(files.config)
    assert replace(measured(files, MIXED, micro_batch_size=64), activations=0) == Memory(
        weights=weights,
        gradients=weights,
        optimiser=2 * weights,
        keys=2 * 2 * 4 * 32 * 4 * 3 * 50 + weights // 2,
    )


@pytest.mark.parametrize(
    ("micro_batch_size", "num_times"), [(64, 1), (32, 2), (8, 2), (2, 2), (1, 1)]
)
def test_micro_batches_of_parts_hold_their_gradients_beside_those_of_others(
    files: ModelFiles, windowed: ModelFiles, micro_batch_size: int, num_times: int
) -> None:
    """A step of 64 trajectories; autograd sums over the parts of one micro-batch first.

    A tree is one part.
    """
    found = measured(windowed, MIXED, micro_batch_size=micro_batch_size).gradients
    assert found == num_times * 4 * num_parameters(files.config)
    found = measured(files, MIXED, micro_batch_size=micro_batch_size).gradients
    assert found == 4 * num_parameters(files.config)


def test_the_trainer_forwards_as_many_parts_as_are_counted() -> None:
    assert LineGRPOTrainer.length_parts == PARTS


def test_activations_of_a_tree_are_counted(files: ModelFiles) -> None:
    """The 8 rows count as if they shared nothing: gradients take the place of most."""
    vocabulary, gradients = files.config.vocab_size, 4 * num_parameters(files.config)
    head = 8 * 4 * (8 * 50) * vocabulary + 4 * 32 * vocabulary
    handed_on, again = 8 * 4 * 2 * 32 * 50, 4 * 2048 * 8 * 50
    found = measured(files, Precision()).activations
    assert found == max(handed_on - gradients, 0) + again + head


def test_activations_of_a_backward_are_counted(windowed: ModelFiles) -> None:
    """8 rows of 50 tokens in 4 parts of 2, float32; 256 + 94 + 1 ids of 32 numbers.

    Two layers hand on 32 numbers each. A layer keeps 10 x 32 + 4 x 3 x 128 + 4 x 48 = 2048 of a
    token. The head has logits of a part 8 times, and the gradient of its table.
    """
    vocabulary = windowed.config.vocab_size
    handed_on = 4 * 2 * 32 * 50
    head = 8 * 4 * (2 * 50) * vocabulary + 4 * 32 * vocabulary
    found = measured(windowed, Precision()).activations
    assert found == 6 * handed_on + 4 * 2048 * 2 * 50 + head
    found = measured(windowed, Precision(), recomputes=False).activations
    kept, gradients = 4 * 2048 * 2 * 50, 2 * 4 * num_parameters(windowed.config)
    assert found == max(8 * kept - gradients, 6 * kept) + head


@pytest.mark.parametrize(
    ("free", "expected"), [(1600 * 5, 64), (1599 * 5, 32), (800 * 5, 32), (400 * 5, 16), (0, 8)]
)
def test_a_gpu_updates_as_many_rows_at_once_as_fit_in_six_tenths(free: int, expected: int) -> None:
    """Each of 64 rows takes 75 bytes: only divisors count, and no fewer than by default."""

    def taken(num_rows: int) -> Memory:
        return Memory(weights=0, activations=75 * num_rows)

    assert rows_at_once(Config(), 64, taken=taken, free=free) == expected


@pytest.mark.parametrize(
    "config",
    [Config(grpo=GRPOConfig(loss_type="bnpo")), Config(trl={"entropy_coef": 0.01})],
)
def test_rows_at_once_do_not_depend_on_memory_where_the_update_depends_on_them(
    config: Config,
) -> None:
    assert rows_at_once(config, 64, taken=lambda _: Memory(weights=0), free=1) == 8


@pytest.mark.parametrize(
    ("wanted", "device", "expected"), [("auto", "cuda", 64), (16, "cuda", 16), ("auto", "cpu", 8)]
)
def test_rows_of_a_micro_batch_are_those_that_were_asked_for_or_a_gpus(
    wanted: Any, device: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU with room for a step of 64; on a CPU it is what it was."""
    monkeypatch.setattr(loading, "pick_device", lambda *_, **__: torch.device(device))
    monkeypatch.setattr(loading, "free_bytes", lambda _device: 64 << 30)
    loads: dict[str, Any] = {}
    monkeypatch.setattr(loading, "load_weights", lambda _files, **given: loads.update(given))
    folder, said = save_tiny_model(tmp_path), list[str]()
    config = replace(cpu(folder), grpo=GRPOConfig(micro_batch_size=wanted))
    load_policy(make_plan(config), str(folder), say=said.append, is_training=True)
    assert loads["micro_batch_size"] == expected
    text = "  64 trajectories per forward and backward pass (micro_batch_size)"
    assert (text in said) is (expected == 64)


@pytest.mark.parametrize(("free", "expected"), [(1000, 200), (777, 0)])
def test_what_an_update_does_without_is_what_an_engine_may_keep(free: int, expected: int) -> None:
    """Nine tenths of what is free, less two copies of the weights, gradients, moments, activations;
    the engine's own keys are no part of it."""
    memory = Memory(
        weights=100, num_copies=2, gradients=100, optimiser=200, activations=200, keys=1 << 40
    )
    assert memory.spare(free) == expected


def test_a_plan_hands_on_what_its_update_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "free_bytes", lambda _device: 10 << 30)
    folder, found = save_tiny_model(tmp_path), list[Memory]()
    check = Memory.check

    def seen(memory: Memory, free: int) -> None:
        found.append(memory)
        check(memory, free)

    monkeypatch.setattr(Memory, "check", seen)
    loaded = load_policy(make_plan(cpu(folder)), str(folder), say=lambda _: None, is_training=True)
    assert loaded.spare_bytes == 9 * (10 << 30) // 10 - found[0].update_peak


@pytest.mark.parametrize("wanted", [True, False])
def test_who_says_whether_activations_are_made_again_is_heard(wanted: bool) -> None:
    def taken(_recomputes: bool) -> Memory:
        raise AssertionError

    assert must_recompute(wanted, taken, 0) is wanted


@pytest.mark.parametrize(("free", "recomputes"), [(1000, False), (999, True)])
def test_activations_are_made_again_where_keeping_them_leaves_less_than_a_tenth(
    free: int, recomputes: bool
) -> None:
    def taken(recomputes: bool) -> Memory:
        return Memory(weights=300, gradients=300, activations=0 if recomputes else 300)

    assert must_recompute("auto", taken, free) is recomputes


def test_autocast_keeps_a_copy_of_the_layers_in_bfloat16(windowed: ModelFiles) -> None:
    num_layers = num_parameters(windowed.config) - 32 * windowed.config.vocab_size
    mixed, exact = measured(windowed, MIXED), measured(windowed, Precision())
    table = 4 * 32 * windowed.config.vocab_size
    rest = exact.activations - table - 4 * 6 * 2 * 32 * 50  # half of it, but for what is handed on
    assert mixed.activations == 2 * num_layers + table + 4 * 6 * 2 * 32 * 50 + rest // 2


@pytest.mark.parametrize(
    ("optimiser", "num_bytes"),
    [
        ("adamw_torch_8bit", 2),
        ("adamw_torch_4bit", 1),
        ("adafactor", 0),
        ("adamw_torch", 8),
        ("rmsprop", 4),
    ],
)
def test_an_optimiser_that_keeps_less_takes_less(
    files: ModelFiles, optimiser: str, num_bytes: int
) -> None:
    config = Config(model="m", trl={"optim": optimiser})
    found = measure(config, engine_kind("hf"), files, MIXED, row_tokens=50, is_training=True)
    assert found.optimiser == num_bytes * num_parameters(files.config)


@pytest.mark.parametrize(
    ("optimiser", "num_moments"),
    [("adamw_bnb_8bit", 2), ("adamw_8bit", 2), ("paged_adamw_8bit", 2), ("lion_8bit", 1)],
)
@pytest.mark.parametrize("held", [MIXED, Precision(weights=HALF, update=HALF, sampling=HALF)])
def test_bitsandbytes_keeps_moments_of_embeddings_in_float32(
    files: ModelFiles, optimiser: str, num_moments: int, held: Precision
) -> None:
    """The tiny model embeds its vocabulary in 32 numbers each."""
    config = Config(model="m", trl={"optim": optimiser})
    found = measure(config, engine_kind("hf"), files, held, row_tokens=50, is_training=True)
    num_embedded = 32 * files.config.vocab_size
    num_others = num_parameters(files.config) - num_embedded
    assert found.optimiser == num_moments * (num_others + 4 * num_embedded)


def test_a_reference_policy_is_a_second_copy(files: ModelFiles) -> None:
    assert measured(files, MIXED, kl_beta=0.1).num_copies == 2


def test_vllm_has_weights_of_its_own_and_a_server_is_elsewhere(files: ModelFiles) -> None:
    """vLLM's blocks: its rows of 50 tokens take 128 each, and two more are kept."""
    own, a_token = 4 * num_parameters(files.config), 2 * 2 * 4 * 32 * 4
    assert measured(files, Precision()).keys == a_token * 3 * 50
    assert measured(files, Precision(), "vllm").keys == own + a_token * (3 + 2) * 128
    assert measured(files, Precision(), "vllm-server").keys == 0


def test_where_vllm_fits_on_a_gpu_hf_fits_in_its_place(files: ModelFiles) -> None:
    """So what is said for the one holds where `auto` falls back to the other."""
    config = Config(model="m", sampling=SamplingConfig(max_in_flight=3))

    def taken(name: str, row_tokens: int) -> Memory:
        kind = engine_kind(name)
        held = precision(config, kind, device="cuda")
        given: dict[str, Any] = {"row_tokens": row_tokens, "is_training": True, "device": "cuda"}
        return measure(config, kind, files, held, **given)

    for row_tokens in (50, 128, 1000):
        by_vllm, by_hf = taken("vllm", row_tokens), taken("hf", row_tokens)
        assert replace(by_vllm, keys=by_hf.keys) == by_hf
        assert by_vllm.keys >= by_hf.keys


def test_a_row_tells_all_parts_in_80_columns() -> None:
    memory = Memory(
        weights=int(26.4 * GIB),
        num_copies=2,
        gradients=int(26.4 * GIB),
        activations=int(5.2 * GIB),
        optimiser=int(52.8 * GIB),
        keys=int(15.4 * GIB),
    )
    row = f"memory: {memory.row(int(139.8 * GIB))}"
    assert row == "memory: weights 2 x 26.4, optimiser 52.8, update 31.6, keys 15.4 of 140 GiB"
    assert len(row) <= 80


def test_a_small_model_is_told_in_mebibytes() -> None:
    assert (
        Memory(weights=5 << 20, keys=120 << 20).row(2 * GIB) == "weights 5.0, keys 120 of 2,048 MiB"
    )


def test_what_just_fits_is_taken() -> None:
    """Gradients and keys are never there at the same time."""
    memory = Memory(weights=10, num_copies=2, gradients=10, optimiser=20, keys=15)
    memory.check(55)
    with pytest.raises(ConfigError, match=r"lower sampling\.max_in_flight or sampling\.max_tok"):
        memory.check(54)


def test_a_model_that_cannot_be_trained_is_told_of_before_its_keys() -> None:
    memory = Memory(weights=10 * GIB, gradients=10 * GIB, optimiser=20 * GIB, keys=15 * GIB)
    with pytest.raises(ConfigError) as refused:
        memory.check(24 * GIB)
    assert str(refused.value) == (
        "no memory for weights 10.0, optimiser 20.0, update 10.0, keys 15.0 of 24.0 GiB; give a "
        "smaller model, or lora.rank = 16, or grpo.kl_beta = 0, or grpo.dtype = 'bfloat16'"
    )


def cpu(folder: Path, **sampling: Any) -> Config:
    return Config(model=str(folder), sampling=SamplingConfig(device="cpu", **sampling))


def test_a_model_that_cannot_fit_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    """There are none in its folder."""
    folder = save_tiny_model(tmp_path)
    (folder / "model.safetensors").unlink()
    plan = make_plan(cpu(folder, max_in_flight=1 << 40))
    with pytest.raises(ConfigError, match="no memory for weights"):
        load_policy(plan, str(folder), say=print)


def test_what_it_takes_is_said_before_its_weights_are_read(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path)
    (folder / "model.safetensors").unlink()
    said: list[str] = []
    with pytest.raises(ConfigError, match="cannot load a model"):
        load_policy(make_plan(cpu(folder)), str(folder), say=said.append)
    assert [row.partition(",")[0] for row in said] == ["device: cpu", "memory: weights 0.2"]


def test_of_an_update_that_may_not_fit_it_is_said_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "free_bytes", lambda _device: 16 << 20)
    folder = save_tiny_model(tmp_path)
    said: list[str] = []
    config = cpu(folder, max_in_flight=1, max_tokens=777)
    load_policy(make_plan(config), str(folder), say=said.append, is_training=True)
    assert said[2:4] == [
        "  activations are recomputed in the backward pass (gradient_checkpointing)",
        "  an update needs this much only if trajectories have 777 tokens",
    ]
    said.clear()
    monkeypatch.setattr(loading, "free_bytes", lambda _device: 16 << 30)
    load_policy(make_plan(config), str(folder), say=said.append, is_training=True)
    assert len(said) == 2
