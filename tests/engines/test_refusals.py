"""Models, tokenizers and requests that cannot be served are refused before a token is sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPTNeoConfig,
    JambaConfig,
    Lfm2Config,
    Llama4TextConfig,
    MambaConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    RwkvConfig,
)

from engine_kit import GROUPED, SIZE, phi3, qwen3, run
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.errors import ConfigError
from repl_rl.models.loading import context_tokens, load_model
from repl_rl.models.precision import Precision
from repl_rl.testing.under_test import prompt, random_model, worst_difference

NONE: frozenset[int] = frozenset()


def open_engine(config: PretrainedConfig, *, num_rows: int = 2) -> HFEngine:
    model = random_model(lambda: config)
    return HFEngine(model, newline_ids=NONE, eos_ids=NONE, num_rows=num_rows)


def load(path: Path) -> object:
    return load_model(str(path), device=torch.device("cpu"), precision=Precision())


# Models


def long_rope(original: int) -> PretrainedConfig:
    return phi3(
        original_max_position_embeddings=original,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 4,
            "long_factor": [4.0] * 4,
        },
    )


WITH_STATE: Mapping[str, Callable[[], PretrainedConfig]] = {
    "mamba": lambda: MambaConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2),
    "rwkv": lambda: RwkvConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2),
    "jamba": lambda: JambaConfig(**SIZE, attn_layer_period=2, attn_layer_offset=1),
    "lfm2": lambda: Lfm2Config(**SIZE, layer_types=["conv", "full_attention"]),
    "gpt_neo": lambda: GPTNeoConfig(vocab_size=48, hidden_size=32, num_layers=24),
    "llama4_text": lambda: Llama4TextConfig(**GROUPED, attention_chunk_size=8),
}


@pytest.mark.parametrize("kind", WITH_STATE)
def test_layers_that_keep_no_keys_by_position_are_refused_before_weights_are_read(
    kind: str, tmp_path: Path
) -> None:
    WITH_STATE[kind]().save_pretrained(tmp_path)
    message = rf"'{tmp_path}': a {kind} model has layers of .*; give a model that has no others"
    with pytest.raises(ConfigError, match=message):
        load(tmp_path)


def test_a_config_that_does_not_tell_its_length_is_refused(tmp_path: Path) -> None:
    BloomConfig(vocab_size=48, hidden_size=32, n_head=4, n_layer=2).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"bloom model has no max_position_embeddings; give a"):
        load(tmp_path)


def test_a_model_that_gives_other_logits_from_a_row_is_refused() -> None:
    """A recurrent one whose config has the looks of attention ignores the cache it is given."""
    config = RwkvConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2)
    config.num_attention_heads = 4
    with pytest.raises(ConfigError, match=r"with a rwkv model \(logits are off by .*; give a"):
        open_engine(config)


def test_a_model_whose_forward_does_not_take_a_mask_per_token_is_refused() -> None:
    config = BloomConfig(vocab_size=48, hidden_size=32, n_head=4, n_layer=2)
    config.max_position_embeddings = 512
    with pytest.raises(ConfigError, match=r"with a bloom model \(ValueError: .*; give a model"):
        open_engine(config)


def test_a_model_that_was_refused_is_as_it_was(model: Any) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("no such argument")

    model.train()
    model.forward = broken
    with pytest.raises(ConfigError, match="no such argument"):
        HFEngine(model, newline_ids=NONE, eos_ids=NONE, num_rows=2)
    assert model.training


def test_a_model_is_tried_with_a_single_row_too() -> None:
    open_engine(qwen3(), num_rows=1)


def test_positions_that_change_with_the_length_end_the_context_where_they_change() -> None:
    """LongRoPE turns all keys of a sequence at its original length, those in the cache too."""
    assert context_tokens(long_rope(32)) == 32
    assert context_tokens(long_rope(4096)) == 512


def test_up_to_the_original_length_logprobs_are_exact() -> None:
    model = random_model(lambda: long_rope(32))
    line = run(
        model,
        lambda engine: engine.line(prompt(0), max_tokens=25, seed=0),
        newline_ids=NONE,
        eos_ids=NONE,
    )
    assert worst_difference(model, [*prompt(0), *line.ids], [*[None] * 7, *line.logprobs]) < 1e-5


# Tokenizers


def save_tokenizer(path: Path, vocab: Mapping[str, int]) -> None:
    backend = Tokenizer(models.BPE(vocab=dict(vocab), merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="a").save_pretrained(path)


def save_model(path: Path) -> None:
    AutoModelForCausalLM.from_config(qwen3()).save_pretrained(path)


NEWLINE = "\u010a"
"""How byte-level vocabularies write it."""


def test_a_tokenizer_without_a_newline_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path)
    save_tokenizer(tmp_path, {"a": 0, "b": 1})
    message = r"no token that ends in a newline.*; give a model whose tokenizer keeps newlines"
    with pytest.raises(ConfigError, match=message):
        load(tmp_path)


def test_a_tokenizer_whose_ids_have_holes_may_be_too_large_with_few_entries(
    tmp_path: Path,
) -> None:
    """Three entries, but id 48 is one more than a model of 48 embeds."""
    save_model(tmp_path)
    save_tokenizer(tmp_path, {"a": 0, NEWLINE: 1, "b": 48})
    with pytest.raises(ConfigError, match="has 49 entries, its model embeds 48"):
        load(tmp_path)
