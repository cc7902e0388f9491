"""Laws of adapters: they are measured before weights are read, and merging moves no weight."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from adapter_kit import CPU, IDS, logits, wrapped
from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, LoraConfig, SamplingConfig
from repl_rl.engines.base import AdaptedWeights
from repl_rl.engines.hf import HF
from repl_rl.engines.memory import Memory, measure
from repl_rl.engines.vllm.server import _write
from repl_rl.errors import ConfigError
from repl_rl.models.loading import (
    LoadedModel,
    load_model,
    load_weights,
    logprobs,
    num_parameters,
    read_files,
    to_train,
)
from repl_rl.models.lora import tuned_layers
from repl_rl.models.precision import Precision
from repl_rl.models.weights import AdaptedModel, leaving_weights, named_weights, save_merged
from repl_rl.training.runtime import sync
from tiny_model import save_tiny_model

ALL = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def loaded(folder: Path) -> LoadedModel:
    return wrapped(folder)


def base_weights(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    state = loaded.model.state_dict()
    return {name: one.clone() for name, one in state.items() if "lora_" not in name}


# What is trained


def test_without_targets_all_linear_layers_but_the_head_have_an_adapter(
    loaded: LoadedModel,
) -> None:
    names = {name.rpartition(".")[2] for name in tuned_layers(loaded.model)}
    assert ", ".join(sorted(names)) == ALL
    assert len(tuned_layers(loaded.model)) == 2 * 7


def test_targets_are_the_last_parts_of_names(folder: Path) -> None:
    loaded = wrapped(folder, targets=("q_proj", "layers.1.mlp.up_proj"))
    names = [
        name.removeprefix("base_model.model.model.layers.") for name in tuned_layers(loaded.model)
    ]
    assert names == ["0.self_attn.q_proj", "1.self_attn.q_proj", "1.mlp.up_proj"]


@pytest.mark.parametrize("target", ["wq", "lm_head", "embed_tokens", "input_layernorm", "proj"])
def test_a_target_that_is_no_linear_layer_is_refused_with_those_that_are(
    folder: Path, target: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        to_train(read_files(str(folder)), LoraConfig(rank=4, targets=("q_proj", target)))
    assert str(refused.value) == (
        f"lora.targets names {target!r}, which is no linear layer of this model; expected some of "
        f"{ALL}"
    )


def test_an_adapter_is_float32_on_whatever_weights(folder: Path) -> None:
    model = wrapped(folder, precision=Precision(weights=torch.bfloat16)).model
    trained = [one for one in model.parameters() if one.requires_grad]
    assert {one.dtype for one in trained} == {torch.float32}
    assert model.dtype is torch.bfloat16


def test_an_adapter_begins_without_effect_and_changes_the_policy_after(folder: Path) -> None:
    plain = logits(load_model(str(folder), device=CPU, precision=Precision()).model)
    files = to_train(read_files(str(folder)), LoraConfig(rank=4))
    fresh = load_weights(files, device=CPU, precision=Precision())
    assert torch.equal(logits(fresh.model), plain)
    assert (logits(wrapped(folder).model) - plain).abs().max() > 0.01


# Memory


def test_gradients_and_optimiser_are_those_of_the_adapter(folder: Path) -> None:
    """Rank 4: (in + out) * 4 numbers a layer. A reference is a second adapter, not a model."""
    files = to_train(read_files(str(folder)), LoraConfig(rank=4))
    attention, mlp = 4 * (32 + 128), 3 * (32 + 48)
    trained = 4 * (2 * 4 * (attention + mlp))
    whole = 2 * num_parameters(files.config)
    held = Precision(weights=torch.bfloat16, update=torch.bfloat16, sampling=torch.bfloat16)

    def measured(**grpo: Any) -> Memory:
        config = Config(
            model="m", sampling=SamplingConfig(max_in_flight=3), grpo=GRPOConfig(**grpo)
        )
        return measure(config, HF(), files, held, row_tokens=50, is_training=True)

    alone = measured()
    assert (alone.weights, alone.num_copies) == (whole + trained, 1)
    assert (alone.gradients, alone.optimiser) == (trained, 2 * trained)
    assert measured(kl_beta=0.1).weights == alone.weights + trained
    assert measured(kl_beta=0.1).num_copies == 1


def test_counting_an_adapter_draws_no_random_number(folder: Path) -> None:
    before = torch.get_rng_state()
    to_train(read_files(str(folder)), LoraConfig(rank=4))
    assert torch.equal(before, torch.get_rng_state())


# Merging


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hundred_exports_leave_the_base_as_it_is(
    folder: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    loaded = wrapped(folder, precision=Precision(weights=dtype))
    before, first = base_weights(loaded), dict(named_weights(loaded.model))
    for _ in range(98):
        last = dict(named_weights(loaded.model))
    _write(named_weights(loaded.model), tmp_path / "weights.safetensors")
    save_merged(loaded.model, tmp_path)
    after = base_weights(loaded)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(first[name], last[name]) for name in first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_leaves_has_the_names_order_and_types_of_the_model_itself(
    folder: Path, dtype: torch.dtype
) -> None:
    precision = Precision(weights=dtype)
    plain = load_model(str(folder), device=CPU, precision=precision).model
    merged = dict(named_weights(wrapped(folder, precision=precision).model))
    assert [(name, one.shape, one.dtype) for name, one in merged.items()] == [
        (name, one.shape, one.dtype) for name, one in plain.named_parameters()
    ]
    moved = {
        name.rpartition(".weight")[0].rpartition(".")[2]
        for name, one in plain.named_parameters()
        if not torch.equal(one, merged[name])
    }
    assert ", ".join(sorted(moved)) == ALL


def test_a_merged_weight_is_the_sum_that_the_paper_defines(loaded: LoadedModel) -> None:
    """W + alpha / r * B A, in float64."""
    name = "model.layers.1.mlp.down_proj"
    layer = dict(loaded.model.get_base_model().named_modules())[name]
    a, b = (one["default"].weight.double() for one in (layer.lora_A, layer.lora_B))
    expected = layer.base_layer.weight.double() + 32 / 4 * (b @ a)
    found = dict(named_weights(loaded.model))[f"{name}.weight"].double()
    assert (found - expected).abs().max() < 1e-6


def test_a_second_adapter_is_not_merged(loaded: LoadedModel) -> None:
    before = dict(named_weights(loaded.model))
    loaded.model.add_adapter("ref", loaded.model.peft_config["default"])
    for layer in tuned_layers(loaded.model).values():
        layer.lora_B["ref"].weight.data.fill_(1.0)
    after = dict(named_weights(loaded.model))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_model_without_an_adapter_leaves_as_it_is(folder: Path) -> None:
    model = load_model(str(folder), device=CPU, precision=Precision()).model
    given, own = list(named_weights(model)), list(model.named_parameters())
    assert [(name, id(one)) for name, one in given] == [(name, id(one)) for name, one in own]


def test_tied_weights_leave_once(tmp_path: Path, folder: Path) -> None:
    model = load_model(str(folder), device=CPU, precision=Precision()).model
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path)
    read_files(str(folder)).tokenizer.save_pretrained(tmp_path)
    tied = wrapped(tmp_path)
    assert "lm_head.weight" not in dict(named_weights(tied.model))
    save_merged(tied.model, tmp_path / "merged")
    tied.tokenizer.save_pretrained(tmp_path / "merged")
    merged = load_model(str(tmp_path / "merged"), device=CPU, precision=Precision()).model
    assert (logits(merged) - logits(tied.model)).abs().max() < 1e-5


def test_layers_that_hold_their_weights_transposed_are_merged_too(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    config = GPT2Config(
        vocab_size=351,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=256,
        bos_token_id=None,
        eos_token_id=350,
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    loaded = wrapped(tmp_path)
    assert len(tuned_layers(loaded.model)) == 2 * 4
    save_merged(loaded.model, tmp_path / "merged")
    merged = GPT2LMHeadModel.from_pretrained(tmp_path / "merged")
    assert (logits(merged) - logits(loaded.model)).abs().max() < 1e-5


def test_a_servers_file_is_the_merged_model(loaded: LoadedModel, tmp_path: Path) -> None:
    _write(named_weights(loaded.model), tmp_path / "weights.safetensors")
    plain = load_model(loaded.base, device=CPU, precision=Precision()).model
    plain.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    assert (logits(plain) - logits(loaded.model)).abs().max() < 1e-5


# By itself


def test_an_adapter_that_leaves_by_itself_has_its_own_bytes_and_is_what_peft_loads(
    loaded: LoadedModel, folder: Path, tmp_path: Path
) -> None:
    """Two layers of rank 4, four bytes a number, of (in + out) numbers a matrix and rank."""
    weights = leaving_weights(loaded.model)
    assert isinstance(weights, AdaptedWeights)
    assert weights.why_whole() is None
    weights.save_adapter(tmp_path)
    written = {one.name for one in tmp_path.iterdir()}
    assert written == {"adapter_config.json", "adapter_model.safetensors"}
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    attention, mlp = 4 * (32 + 128), 3 * (32 + 48)
    assert sum(one.nbytes for one in tensors.values()) == 4 * (2 * 4 * (attention + mlp))
    plain = load_model(loaded.base, device=CPU, precision=Precision()).model
    assert torch.equal(logits(PeftModel.from_pretrained(plain, tmp_path)), logits(loaded.model))


def test_weights_without_an_adapter_leave_whole(folder: Path) -> None:
    plain = load_model(str(folder), device=CPU, precision=Precision()).model
    assert not isinstance(leaving_weights(plain), AdaptedWeights)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa'"),
        ({"init_lora_weights": "olora"}, "init_lora_weights = 'olora'"),
    ],
)
def test_an_adapter_that_a_server_would_read_as_another_one_leaves_whole(
    loaded: LoadedModel, changed: dict[str, Any], named: str
) -> None:
    """vLLM reads one rank and one alpha; some beginnings change the weights beside them."""
    vars(loaded.model.peft_config["default"]).update(changed)
    why = AdaptedModel(loaded.model).why_whole()
    assert why == f"vLLM does not read the adapter's {named}"


# Sampling


def test_an_engine_on_the_wrapped_model_samples_what_the_trainer_computes(
    loaded: LoadedModel,
) -> None:
    config = Config(model="m", sampling=SamplingConfig(max_in_flight=4))

    async def lines() -> list[Any]:
        engine = HF().open(config, loaded, row_tokens=200)
        await sync(engine, loaded, IDS, version=1, temperature=1.0)
        asked = [engine.line([*IDS, n], max_tokens=20, seed=n) for n in range(4)]
        found = await asyncio.gather(*asked)
        await engine.aclose()
        return found

    for number, line in enumerate(asyncio.run(lines())):
        ids = [*IDS, number, *line.ids]
        scored = logprobs(loaded, ids, len(IDS) + 1, temperature=1.0)
        assert max(abs(a - b) for a, b in zip(scored, line.logprobs, strict=True)) < 1e-5
