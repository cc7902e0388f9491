"""Laws of loading a model: what is wrong with a folder is said in one line."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.vllm.server import VLLMServer, VLLMServerEngine
from repl_rl.errors import ConfigError
from repl_rl.models.loading import (
    LoadedModel,
    about_device,
    check_memory,
    load_model,
    pick_device,
    read_files,
    rows_that_fit,
    usable_context,
)
from repl_rl.models.precision import Precision

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers over bytes, whose generation config names a second end id."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: i for i, symbol in enumerate([*symbols, "<|end|>"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    config = Qwen3Config(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=100,
        bos_token_id=None,
        eos_token_id=256,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = [256, 7]
    path: Path = tmp_path_factory.mktemp("models") / "whole"
    model.save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>").save_pretrained(path)
    return path


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


@pytest.fixture(scope="module")
def loaded(whole: Path) -> LoadedModel:
    return load_model(str(whole), device=CPU, precision=Precision())


def test_every_end_id_that_a_model_names_ends_a_sequence(loaded: LoadedModel) -> None:
    assert loaded.codec.eos_ids == {256, 7}


def test_a_tokenizer_without_padding_pads_with_its_end(loaded: LoadedModel) -> None:
    assert loaded.tokenizer.pad_token_id == 256


def test_the_context_is_that_of_the_model(loaded: LoadedModel) -> None:
    assert loaded.context_tokens == 100


def test_weights_have_the_type_that_was_asked_for(whole: Path) -> None:
    model = load_model(str(whole), device=CPU, precision=Precision(weights=torch.bfloat16)).model
    assert model.dtype is torch.bfloat16


def cut(name: str) -> Callable[[Path], None]:
    def break_(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:50])

    return break_


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    "break_",
    [
        cut("config.json"),
        remove("config.json"),
        cut("model.safetensors"),
        remove("model.safetensors"),
        cut("tokenizer.json"),
        remove("tokenizer.json"),
    ],
    ids=[
        f"{how}-{what}" for what in ("config", "weights", "tokenizer") for how in ("cut", "missing")
    ],
)
def test_a_broken_folder_is_a_config_error_of_one_line(
    folder: Path, break_: Callable[[Path], None]
) -> None:
    break_(folder)
    with pytest.raises(ConfigError, match="cannot load a model from") as error:
        load_model(str(folder), device=CPU, precision=Precision())
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_models_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no config\.json in .*; expected a model's fo"):
        load_model(str(tmp_path), device=CPU, precision=Precision())


class Hostile:
    """Makes a folder where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("unpickled",)


def torch_file(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (torch_file({"a": Hostile()}), "has more than weights, which may be code"),
        (torch_file({"a": torch.zeros(9)})[:-200], "is cut off"),
        (b"", "is cut off"),
    ],
)
def test_a_pickle_is_read_as_weights_or_not_at_all(
    folder: Path,
    content: bytes,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ConfigError, match=f"cannot load a model from .*{reason}") as error:
        load_model(str(folder), device=CPU, precision=Precision())
    assert "\n" not in str(error.value)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("name", ["/no/such", "no-slash", "a/b/c", "../up"])
def test_a_name_that_is_neither_folder_nor_hub_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no such run or folder .*expected a run, a model"):
        load_model(name, device=CPU, precision=Precision())


def test_a_tokenizer_larger_than_its_model_is_refused(folder: Path) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["<one>", "<two>"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ConfigError, match="has 259 entries, its model embeds 257"):
        load_model(str(folder), device=CPU, precision=Precision())


# Memory: 2 (keys, values) x 2 layers x 2 heads x 8 x 4 bytes = 256 bytes a token, and half as
# much again while rows grow: 50 tokens ask for 75


def test_keys_and_values_that_just_fit_are_accepted(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_free(monkeypatch, 256 * 3 * 75)
    check_memory(loaded, num_rows=3, row_tokens=50)


def test_keys_and_values_that_lack_a_byte_are_refused(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_free(monkeypatch, 256 * 3 * 75 - 1)
    with pytest.raises(ConfigError, match="3 trajectories of 50 tokens with their prompts need"):
        check_memory(loaded, num_rows=3, row_tokens=50)


@pytest.mark.parametrize(("spare", "num_rows"), [(0, 3), (-1, 2), (10**9, 4), (-(10**9), 1)])
def test_rows_are_as_many_as_fit_and_one_at_least(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, spare: int, num_rows: int
) -> None:
    set_free(monkeypatch, max(0, 256 * 3 * 75 + spare))
    assert rows_that_fit(loaded, most=4, row_tokens=50) == num_rows


def test_a_cpu_keeps_single_keys_and_values_of_half_forwards(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = dataclasses.replace(loaded, precision=Precision(sampling=torch.bfloat16))
    set_free(monkeypatch, 256 * 3 * 75 - 1)
    with pytest.raises(ConfigError, match="3 trajectories of 50 tokens with their prompts need"):
        check_memory(half, num_rows=3, row_tokens=50)


def test_no_row_is_longer_than_the_context(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_free(monkeypatch, 256 * 3 * 150)
    check_memory(loaded, num_rows=3, row_tokens=10_000)


def test_a_model_that_names_no_key_heads_has_as_many_as_query_heads(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2 has neither name: 2 x 2 layers x 4 heads x 8 x 4 bytes = 512 bytes a token."""
    bare = SimpleNamespace(num_hidden_layers=2, num_attention_heads=4, hidden_size=32)
    model = SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: bare), dtype=torch.float32, device=CPU
    )
    set_free(monkeypatch, 512 * 15 - 1)
    with pytest.raises(ConfigError, match=r"lower sampling\.max_in_flight"):
        check_memory(
            dataclasses.replace(loaded, model=model, config=model.config), num_rows=1, row_tokens=10
        )


# Context: 100 tokens


def with_text_config(loaded: LoadedModel, **values: object) -> LoadedModel:
    config = SimpleNamespace(**values)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config))
    return dataclasses.replace(loaded, model=model, config=model.config)


def test_a_model_of_full_attention_can_use_all_its_context(loaded: LoadedModel) -> None:
    assert usable_context(loaded, row_tokens=1000) == 100


def test_a_window_that_holds_a_trajectory_is_the_context(loaded: LoadedModel) -> None:
    assert usable_context(with_text_config(loaded, sliding_window=60), row_tokens=60) == 60


def test_a_window_shorter_than_a_trajectory_is_refused(loaded: LoadedModel) -> None:
    kinds = ["full_attention", "sliding_attention"]
    sliding = with_text_config(loaded, sliding_window=59, layer_types=kinds)
    with pytest.raises(ConfigError, match=r"the last 59 tokens.*may have 60; lower"):
        usable_context(sliding, row_tokens=60)


def test_a_window_that_no_layer_uses_does_not_count(loaded: LoadedModel) -> None:
    full = with_text_config(loaded, sliding_window=5, layer_types=["full_attention"] * 2)
    assert usable_context(full, row_tokens=60) == 100


def set_free(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    memory = SimpleNamespace(available=num_bytes)
    monkeypatch.setattr("repl_rl.models.loading.psutil.virtual_memory", lambda: memory)


def test_a_client_of_servers_opens_for_a_model_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    files = read_files(str(folder))
    assert files.vocabulary == 257
    sampling = SamplingConfig(engine="vllm-server", servers=("http://localhost:1",))
    engine = VLLMServer().open(Config(sampling=sampling), files, row_tokens=64)
    assert isinstance(engine, VLLMServerEngine)
    assert engine.line_timeout_s == sampling.engine_timeout_s == 600
    asyncio.run(engine.aclose())


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch sees no GPU; use 'auto' or 'cpu'"):
        pick_device("cuda")


def test_the_cpu_may_always_be_asked_for() -> None:
    assert pick_device("cpu") == CPU


# What is said of the device


@pytest.mark.parametrize(
    ("nodes", "visible", "expected"),
    [
        (["nvidia0", "nvidiactl", "nvidia-uvm", "tty1"], "0", "GPU"),
        (
            [*(f"nvidia{i}" for i in range(8)), "nvidiactl", "nvidia-caps"],
            "0",
            "GPU 0 of 8, chosen by CUDA_VISIBLE_DEVICES",
        ),
        (["nvidia0", "nvidia1"], "1", "GPU 1 of 2, chosen by CUDA_VISIBLE_DEVICES"),
        (["nvidia0", "nvidia1"], None, "GPU 0 of 2, chosen by CUDA_VISIBLE_DEVICES"),
        ([], "0", "GPU"),
    ],
)
def test_one_gpu_of_several_is_named(
    nodes: list[str], visible: str | None, expected: str, tmp_path: Path
) -> None:
    for name in nodes:
        (tmp_path / name).touch()
    assert about_device(torch.device("cuda"), visible=visible, nodes=tmp_path) == expected


@pytest.mark.parametrize(("visible", "expected"), [(None, "GPU 1 of 4"), ("3,2", "GPU 2 of 4")])
def test_a_rank_names_the_gpu_of_its_own(
    visible: str | None, expected: str, tmp_path: Path
) -> None:
    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    about = about_device(torch.device("cuda", 1), visible=visible, nodes=tmp_path)
    assert about == f"{expected}, chosen by CUDA_VISIBLE_DEVICES"


def test_a_cpu_is_a_cpu(tmp_path: Path) -> None:
    assert about_device(CPU, visible="0", nodes=tmp_path) == "cpu"


def test_decoding_takes_no_space_out(folder: Path) -> None:
    """Some tokenizers ask for it, and are warned of at each start."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.save_pretrained(folder)
    assert read_files(str(folder)).tokenizer.clean_up_tokenization_spaces is False
