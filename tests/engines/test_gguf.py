"""A GGUF file is a model: what it says is what the folder that is made of it holds."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from gguf_kit import CONTEXT, LAYERS, TEMPLATE, TOKENS, small_llama, tensors_of, write_gguf
from repl_rl.errors import ConfigError, ReplRLError, StorageError
from repl_rl.models.loading import LoadedModel, load_model, read_files
from repl_rl.models.precision import Precision

Weights = Mapping[str, np.ndarray[Any, Any]]
IDS = torch.tensor([[1, 20, 30, 40, 50, 60, 70]])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPL_RL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return small_llama()


@pytest.fixture(scope="module")
def weights(model: LlamaForCausalLM) -> Weights:
    return tensors_of(model)


@pytest.fixture
def file(weights: Weights, tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "small.gguf", weights)


def load(name: Path | str) -> LoadedModel:
    return load_model(str(name), device=torch.device("cpu"), precision=Precision())


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(IDS).logits
    return found


def test_a_file_has_the_logits_of_the_model_that_it_was_written_from(
    file: Path, model: LlamaForCausalLM
) -> None:
    assert torch.equal(logits(load(file).model), logits(model))


def test_quantised_weights_are_what_gguf_says_they_stand_for(
    weights: Weights, tmp_path: Path
) -> None:
    kind = GGMLQuantizationType.Q4_1
    loaded = load(write_gguf(tmp_path / "four.gguf", weights, quantised=kind))
    name = "model.layers.0.mlp.up_proj.weight"
    meant = dequantize(quantize(weights["blk.0.ffn_up.weight"], kind), kind)
    assert np.array_equal(loaded.model.state_dict()[name].numpy(), meant)


def test_what_is_read_is_a_folder_that_transformers_loads(file: Path, cache: Path) -> None:
    loaded = load(file)
    folder = Path(loaded.base)
    assert folder.parent == cache / "models"
    assert folder.name.startswith("small-")
    assert loaded.source == loaded.base
    plain: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert plain.dtype is torch.float32
    assert getattr(plain.config, "quantization_config", None) is None
    assert plain.generation_config.eos_token_id == [2]
    assert torch.equal(logits(plain), logits(loaded.model))


def test_a_file_of_the_same_name_in_the_current_folder_is_not_meant(
    file: Path, weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    other = {name: one * 2 for name, one in weights.items()}
    write_gguf(tmp_path / "here" / file.name, other)
    expected = logits(load(file).model)
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.chdir(tmp_path / "here")
    assert torch.equal(logits(load(file).model), expected)


def test_a_file_is_converted_once_and_a_line_says_so(file: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = read_files(str(file), say=said.append)
    assert said == [f"converting 'small.gguf' to {first.base!r}, once"]
    mark = Path(first.base) / "mark"
    mark.touch()
    copy = shutil.copy(file, tmp_path / "elsewhere-small.gguf")
    os.rename(copy, tmp_path / "cache" / "small.gguf")
    assert read_files(str(tmp_path / "cache" / "small.gguf"), say=said.append).base == first.base
    assert len(said) == 1
    assert mark.exists()


def test_another_content_under_the_same_name_is_another_model(file: Path, weights: Weights) -> None:
    """The other content has the size and age of the first, its beginning and its end."""
    before, times = load(file), file.stat()
    other = dict(weights)
    other["blk.0.ffn_up.weight"] = other["blk.0.ffn_up.weight"] + 1
    write_gguf(file, other)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_size == times.st_size
    assert not torch.equal(logits(load(file).model), logits(before.model))


# The tokenizer


def tokens(backend: Tokenizer, text: str) -> list[str]:
    return [
        token.replace("\u0120", "_").replace("\u010a", "$") for token in backend.encode(text).tokens
    ]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        # Each digit stands alone, so the spaces before it belong together.
        ("smollm", "x  1", ["x", "__", "1"]),
        ("smollm", "\n\n1234", ["$$", "1", "2", "3", "4"]),
        # A number takes the last space.
        ("gpt-2", "x  1", ["x", "_", "_", "1"]),
        ("gpt-2", "\n\n1234", ["$", "$", "123", "4"]),
        ("qwen2", "\n\n123", ["$$", "1", "2", "3"]),
        # Digits by threes.
        ("llama-bpe", "x123123", ["x", "123", "123"]),
        ("llama-bpe", "\n\n x", ["$$", "_x"]),
    ],
)
def test_a_vocabulary_splits_text_by_the_rule_that_the_file_names(
    weights: Weights, tmp_path: Path, rule: str, text: str, expected: list[str]
) -> None:
    file = write_gguf(tmp_path / "m.gguf", weights, metadata={"tokenizer.ggml.pre": rule})
    assert tokens(read_files(str(file)).tokenizer.backend_tokenizer, text) == expected


def test_special_tokens_and_the_chat_template_are_those_of_the_file(file: Path) -> None:
    tokenizer = read_files(str(file)).tokenizer
    named = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token)
    assert named == ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>")
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.model_max_length == CONTEXT
    assert tokenizer.encode("<|im_start|>a<think>") == [1, TOKENS.index("a"), len(TOKENS) - 1]
    assert tokenizer.decode([1, len(TOKENS) - 1], skip_special_tokens=True) == "<think>"


def test_a_text_begins_with_a_token_where_the_file_says_so(
    weights: Weights, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "m.gguf", weights, metadata={"tokenizer.ggml.add_bos_token": True})
    assert read_files(str(file)).tokenizer.encode("a") == [1, TOKENS.index("a")]


def test_all_ids_that_end_a_turn_are_stops(weights: Weights, tmp_path: Path) -> None:
    """Such a file names two: the end of a text and the end of a turn."""
    ends = {"tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.eot_token_id": 2}
    file = write_gguf(tmp_path / "m.gguf", weights, metadata=ends)
    assert read_files(str(file)).codec.eos_ids == {0, 2}


def test_every_id_has_its_text(file: Path) -> None:
    codec = read_files(str(file)).codec
    text = "a  12\n\n\t\u00e9\u4e2d <|im_end|>x"
    assert codec.decode(codec.encode(text)) == text
    assert codec.decode(range(len(TOKENS)))[: len("<|endoftext|>")] == "<|endoftext|>"


# Positions


def test_the_positions_of_llama_3_are_scaled_as_the_file_says(
    weights: Weights, tmp_path: Path
) -> None:
    positions = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    scaled = small_llama(rope_parameters=positions, head_dim=8)
    rope: Any = scaled.model.rotary_emb
    factors = 500000.0 ** -(np.arange(4) / 4) / rope.inv_freq.numpy()
    # The longest waves are eight times as long, the third between, the others as they were.
    assert factors == pytest.approx([1, 1, 2.69, 8], abs=0.01)
    tensors = {**tensors_of(scaled), "rope_freqs.weight": factors.astype(np.float32)}
    file = write_gguf(tmp_path / "m.gguf", tensors, metadata={"llama.rope.freq_base": 500000.0})
    assert torch.allclose(logits(load(file).model), logits(scaled), atol=1e-6)


# What is refused


def refusal(name: Path | str) -> str:
    with pytest.raises(ReplRLError) as refused:
        load(name)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, ConfigError | StorageError)
    return str(refused.value)


def test_a_file_that_is_none_is_refused_by_what_it_begins_with(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"PK\x03\x04 and so on")
    said = refusal(tmp_path / "m.gguf")
    assert "is no GGUF file: it begins with b'PK\\x03\\x04'" in said


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.02, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_is_refused(file: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: max(4, int(share * len(whole)))])
    assert refusal(file).startswith(f"cannot load a model from '{file}': ")


@pytest.mark.parametrize("at", range(4, 1000, 83))
def test_a_byte_that_is_not_what_it_should_be_is_refused_or_read(file: Path, at: int) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
    refused = None
    try:
        load(file)
    except (ConfigError, StorageError) as error:
        refused = str(error)
    assert refused is None or "\n" not in refused


def test_an_architecture_that_transformers_does_not_know_is_named(
    weights: Weights, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "m.gguf", weights, architecture="plamo3")
    assert "architecture plamo3 is not supported" in refusal(file)


def test_a_file_that_lacks_weights_is_refused(weights: Weights, tmp_path: Path) -> None:
    """They would be random."""
    some = {name: one for name, one in weights.items() if name != "blk.1.ffn_up.weight"}
    file = write_gguf(tmp_path / "m.gguf", some)
    assert "no weights for model.layers.1.mlp.up_proj.weight" in refusal(file)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"general.type": "adapter"}, "it holds an adapter, not a model"),
        ({"split.count": 2}, "it is one of 2 parts; join them"),
        ({"tokenizer.ggml.pre": "tekken"}, "splits text by a rule, 'tekken', that is not known"),
        ({"llama.rope.scaling.type": "yarn"}, "scales positions (yarn), which would be lost"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_would_be_lost_is_refused(
    weights: Weights, tmp_path: Path, metadata: dict[str, object], said: str
) -> None:
    assert said in refusal(write_gguf(tmp_path / "m.gguf", weights, metadata=metadata))


def test_scaled_positions_that_are_not_those_of_llama_3_are_refused(
    weights: Weights, tmp_path: Path
) -> None:
    tensors = {**weights, "rope_freqs.weight": np.array([1, 2, 3, 4], dtype=np.float32)}
    file = write_gguf(tmp_path / "m.gguf", tensors)
    assert "scales positions (rope_freqs.weight), which would be lost" in refusal(file)


def test_without_the_package_a_module_is_missing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModuleNotFoundError) as missing:
        load(file)
    assert missing.value.name == "gguf"


def test_a_converted_file_needs_the_package_no_more(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load(file)
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert load(file).base == before.base


# The disk


def test_a_disk_without_room_is_told_before_anything_is_read(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(file.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    said = refusal(file)
    assert said.endswith("MiB are needed, 0.0 MiB are free; set REPL_RL_CACHE to another folder")
    assert not list((cache / "models").glob("small-*"))


def test_a_disk_that_fills_up_leaves_nothing(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    assert refusal(file).endswith("No space left on device")
    assert not list((cache / "models").glob("*small-*"))


def test_a_cache_that_cannot_be_written_is_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("REPL_RL_CACHE", str(tmp_path / "taken"))
    assert refusal(file).endswith("set REPL_RL_CACHE to another folder")


def test_layers_are_those_of_the_file(file: Path) -> None:
    assert load(file).config.num_hidden_layers == LAYERS
