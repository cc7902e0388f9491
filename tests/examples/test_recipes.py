"""The recipes resolve, and take the memory that they say: by the shapes of their models alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from transformers import LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from repl_rl.config.resolve import resolve
from repl_rl.engines.base import AUTO, engine_kind
from repl_rl.engines.memory import Memory, measure, must_recompute
from repl_rl.models.loading import read_files, to_train
from repl_rl.models.precision import precision
from repl_rl.rollout.plan import make_plan
from tiny_model import save_tiny_model

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
PROMPT_TOKENS = 256
GIB = 1 << 30
Call = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class Machine:
    shape: PreTrainedConfig
    device: str
    gib: float
    """Memory that the trainer may take."""


def qwen3(hidden: int, *, layers: int, heads: int, is_tied: bool) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=is_tied,
    )


QWEN_HALF = Qwen2Config(
    vocab_size=151_936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    max_position_embeddings=32_768,
    tie_word_embeddings=True,
)
SMOL = LlamaConfig(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
)
MACHINES = {
    "0.5b-12gb-lora": Machine(QWEN_HALF, "cuda", 12),
    "1.7b-24gb-lora": Machine(qwen3(2048, layers=28, heads=16, is_tied=True), "cuda", 24),
    "8b-80gb-lora-server": Machine(qwen3(4096, layers=36, heads=32, is_tied=False), "cuda", 40),
    "smollm2-135m-cpu-lora": Machine(SMOL, "cpu", 8),
    "smollm2-135m-cpu-whole": Machine(SMOL, "cpu", 8),
}


def test_every_recipe_is_held_to_a_machine() -> None:
    assert {path.stem for path in RECIPES.iterdir()} == set(MACHINES)


@pytest.fixture(params=MACHINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str, tmp_path: Path) -> str:
    """A folder with the shape of the recipe's model, and no weights of it."""
    folder = save_tiny_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    MACHINES[name].shape.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("on_gpu", ["hf", "vllm"])
def test_a_recipe_takes_the_memory_that_it_says(name: str, model: str, on_gpu: str) -> None:
    """And leaves a tenth of the machine's: for torch, and for keys that are moved as they grow.

    The same for both engines that `auto` may come to.
    """
    machine, path = MACHINES[name], RECIPES / f"{name}.toml"
    config = resolve(files=[path], flags={"model": model})
    free_choice = on_gpu if machine.device == "cuda" else "hf"
    named = config.sampling.engine
    engine = engine_kind(free_choice if named == AUTO else named)

    def taken(recomputes: bool) -> Memory:
        return measure(
            config,
            engine,
            to_train(read_files(model), config.lora),
            precision(config, engine, device=machine.device),
            row_tokens=PROMPT_TOKENS + config.sampling.max_tokens,
            is_training=True,
            recomputes=recomputes,
            device=machine.device,
        )

    free = int(machine.gib * GIB)
    memory = taken(must_recompute(config.grpo.gradient_checkpointing, taken, free))
    said = re.findall(r"^# memory: (.+)$", path.read_text(), re.M)
    assert said == [memory.row(free)]
    most = max(memory.update_peak, memory.sampling + memory.keys // 2)
    assert most <= 0.9 * machine.gib * GIB


def test_a_dry_run_prints_what_a_recipe_sets(
    name: str, model: str, call: Call, tmp_path: Path
) -> None:
    path = RECIPES / f"{name}.toml"
    given = ("--config", str(path), "--model", model, "--set", "sampling.device=cpu")
    code, out, err = call("train", "--dry-run", *given)
    assert code == 0, err
    assert "\nmemory: " in err
    (tmp_path / "resolved.toml").write_text(out)
    overrides = ["sampling.device=cpu"]
    expected = make_plan(resolve(files=[path], flags={"model": model}, overrides=overrides)).config
    assert resolve(files=[tmp_path / "resolved.toml"]) == expected


def test_a_recipe_says_whether_it_was_tried(name: str) -> None:
    text = (RECIPES / f"{name}.toml").read_text()
    assert f"--config {name}.toml" in text
    assert re.search(r"^# Tried: (no\.|.*\d)", text, re.M)
