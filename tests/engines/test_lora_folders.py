"""Laws of folders that hold an adapter: any reader takes them, and what is wrong is one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import IA3Config
from safetensors.torch import load_file, save_file

from adapter_kit import CPU, IDS, logits, wrapped
from repl_rl.config import Config
from repl_rl.config.sections import LoraConfig
from repl_rl.errors import ConfigError
from repl_rl.models.loading import LoadedModel, load_model, load_weights, read_files, to_train
from repl_rl.models.precision import Precision
from repl_rl.models.weights import save_merged
from tiny_model import save_tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def loaded(folder: Path) -> LoadedModel:
    return wrapped(folder)


@pytest.fixture
def saved(loaded: LoadedModel, tmp_path: Path) -> Path:
    loaded.model.save_pretrained(tmp_path / "adapter")
    loaded.tokenizer.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_what_is_saved_is_an_adapter_on_the_policy_it_began_from(saved: Path, folder: Path) -> None:
    found = json.loads((saved / "adapter_config.json").read_text())
    assert (found["base_model_name_or_path"], found["r"]) == (str(folder), 4)
    assert (found["lora_alpha"], found["lora_dropout"]) == (32, 0.0)
    weights = load_file(saved / "adapter_model.safetensors")
    assert {name.split(".")[-2] for name in weights} == {"lora_A", "lora_B"}


def test_a_reference_beside_it_is_not_saved(loaded: LoadedModel, tmp_path: Path) -> None:
    loaded.model.add_adapter("ref", loaded.model.peft_config["default"])
    loaded.model.save_pretrained(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_a_folder_with_an_adapter_is_a_model(
    loaded: LoadedModel, saved: Path, with_tokenizer: bool
) -> None:
    if not with_tokenizer:
        for file in saved.glob("tokenizer*"):
            file.unlink()
    again = load_model(str(saved), device=CPU, precision=Precision())
    assert torch.equal(logits(again.model), logits(loaded.model))
    assert again.codec.encode("1+1\n") == loaded.codec.encode("1+1\n")
    assert (again.source, again.base) == (str(saved), loaded.base)


ALONE = """
import json, sys
import torch
from transformers import AutoModelForCausalLM
if sys.argv[1] == "peft":
    from peft import AutoPeftModelForCausalLM as Auto
else:
    sys.modules["peft"] = None
    Auto = AutoModelForCausalLM
model = Auto.from_pretrained(sys.argv[2])
with torch.no_grad():
    logits = model.eval()(torch.tensor([json.loads(sys.argv[3])])).logits
torch.save(logits, sys.argv[4])
"""


@pytest.mark.parametrize("reader", ["peft", "transformers"])
def test_both_exports_load_in_a_process_of_their_own(
    loaded: LoadedModel, saved: Path, tmp_path: Path, reader: str
) -> None:
    if reader == "transformers":
        saved = tmp_path / "merged"
        save_merged(loaded.model, saved)
    out = tmp_path / "logits.pt"
    words = [sys.executable, "-c", ALONE, reader, str(saved), json.dumps(IDS), str(out)]
    subprocess.run(words, check=True, cwd=tmp_path, capture_output=True, timeout=300)
    assert (torch.load(out) - logits(loaded.model)).abs().max() < 1e-5


def changed(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def other_kind(folder: Path) -> None:
    IA3Config(base_model_name_or_path=str(folder.parent / "m")).save_pretrained(str(folder))
    changed(folder, base_model_name_or_path=str(save_tiny_model(folder.parent / "m")))


def drop(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()


def half(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    save_file(dict(list(load_file(path).items())[::2]), path)


def torn(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda one: changed(one, base_model_name_or_path="/nowhere/x"), "belongs to the model '/"),
        (lambda one: changed(one, base_model_name_or_path=None), "does not say which model"),
        (lambda one: changed(one, use_dora=True), r"more than LoRA .* \(use_dora\)"),
        (lambda one: changed(one, bias="all"), "more than LoRA"),
        (other_kind, r"more than LoRA .* \(IA3\)"),
        (lambda one: changed(one, target_modules=["lm_head"]), "is on lm_head; expected linear"),
        (lambda one: changed(one, target_modules=["wq"]), "does not fit: "),
        (lambda one: changed(one, r=8), "its weights are another model's"),
        (lambda one: (one / "adapter_config.json").write_text("{"), "cannot read"),
        (drop, "no weights of an adapter"),
        (half, "its weights are another model's"),
        (torn, "cannot load a model"),
    ],
)
def test_what_is_wrong_with_an_adapter_is_one_line(
    saved: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(saved)
    with pytest.raises(ConfigError, match=said) as refused:
        load_model(str(saved), device=CPU, precision=Precision())
    assert "\n" not in str(refused.value)


# Training on


def test_the_same_settings_train_a_stored_adapter_on(loaded: LoadedModel, saved: Path) -> None:
    files = to_train(read_files(str(saved)), LoraConfig(rank=4))
    again = load_weights(files, device=CPU, precision=Precision())
    assert torch.equal(logits(again.model), logits(loaded.model))
    assert sum(one.requires_grad for one in again.model.parameters()) == 2 * 14
    again.model.save_pretrained(saved / "again")
    found = json.loads((saved / "again" / "adapter_config.json").read_text())
    assert found["base_model_name_or_path"] == loaded.base


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        (LoraConfig(), "lora.rank = 0 trains all weights; give lora.rank = 4, or merge it first"),
        (LoraConfig(rank=8), "asks for another .rank 8, alpha 32, on .*; give the same, or merge"),
        (LoraConfig(rank=4, alpha=8), "asks for another"),
        (LoraConfig(rank=4, targets=("q_proj",)), "asks for another"),
    ],
)
def test_other_settings_do_not(saved: Path, lora: LoraConfig, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        to_train(read_files(str(saved)), lora)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_an_adapter_that_could_not_learn_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match=r"lora\.alpha"):
        Config(lora=LoraConfig(rank=4, alpha=alpha))


def test_targets_of_no_adapter_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"lora.targets = \['q_proj'\] has no effect"):
        Config(lora=LoraConfig(targets=("q_proj",)))
