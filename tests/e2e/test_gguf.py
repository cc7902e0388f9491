"""A GGUF file by the commands that take a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gguf_kit import small_llama, tensors_of, write_gguf
from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def file(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It lies in the current folder."""
    monkeypatch.setenv("REPL_RL_CACHE", str(tmp_path / "cache"))
    return write_gguf(tmp_path / "small.gguf", tensors_of(small_llama()))


def test_a_file_is_trained_measured_and_rolled_out_from_one_folder(
    call: Call, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text('model = "small.gguf"\n')
    lora = set_words("lora.rank=2")
    code, out, err = call("train", "--config", "own.toml", "--output", "run", *small(), *lora)
    assert (code, err) == (0, "")
    (folder,) = (tmp_path / "cache" / "models").glob("small-*")
    assert " ".join(out.split()).count(f"converting 'small.gguf' to '{folder}', once") == 1
    adapter = tmp_path / "run" / "checkpoints" / "final" / "adapter_config.json"
    assert json.loads(adapter.read_text())["base_model_name_or_path"] == str(folder)

    for given in (
        ("eval", "small.gguf", "--against", "run"),
        ("rollout", "--model", "small.gguf"),
        ("merge", "run", "--output", "merged"),
    ):
        options = () if given[0] == "merge" else small()
        code, out, err = call(*given, *options)
        assert code == 0, (given, out, err)
        assert "converting" not in out + err
    assert (tmp_path / "merged" / "model.safetensors").is_file()


def test_a_run_goes_on_where_the_cache_was_emptied(
    repl_rl: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    given = ("train", "--model", "small.gguf", "--output", "run")
    assert repl_rl(*given, *small(grpo__steps=1)).code == 0
    (tmp_path / "cache" / "models").rename(tmp_path / "gone")
    ended = repl_rl("train", "--resume", "run", *set_words("grpo.steps=2"))
    assert ended.code == 0, ended.stderr
    assert "converting" in ended.stdout


@pytest.mark.parametrize("command", ["rollout", "train"])
def test_without_the_package_a_line_says_what_to_install(
    call: Call, file: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    code, _, err = call(command, "--model", "small.gguf", *small())
    assert code == 2
    assert err == (
        "repl-rl: gguf is not installed, but this command needs it; in a checkout of repl-rl: "
        "pip install --editable ./sandbox --editable '.[gguf]'\n"
    )


def test_a_file_that_is_none_is_refused_before_anything_is_loaded(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "small.gguf").write_bytes(b"\x00\x01")
    code, out, err = call("train", "--model", "small.gguf")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'small.gguf' is no GGUF file" in err
