"""A pretrained model out of a GGUF file: its weights, what it says, and how it reads a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from repl_rl.base.disk import read_text
from repl_rl.models.loading import ModelFiles, read_files
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import prompt_ids

pytestmark = pytest.mark.slow

STATEMENT = "Solve over the reals: 2*x**2 + 12*x  =  1234\n\n12345"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def files(gguf: Path, folder: Path) -> ModelFiles:
    return read_files(str(gguf))


def test_it_holds_and_says_what_transformers_reads_from_the_file(gguf: Path, folder: Path) -> None:
    ours: Any = AutoModelForCausalLM.from_pretrained(folder)
    theirs: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=str(gguf), dtype="float32"
    )
    expected = theirs.state_dict()
    found = ours.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    said, meant = (
        model.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :]
        for model in (ours, theirs)
    )
    assert torch.equal(said, meant)
    assert tokenizer.decode(said) == "The capital of France is Paris.<|im_end|>"


def test_the_end_of_a_turn_is_the_one_stop(files: ModelFiles) -> None:
    assert files.codec.eos_ids == {files.tokenizer.convert_tokens_to_ids("<|im_end|>")} == {2}


def test_digits_stand_alone_behind_whole_runs_of_space(files: ModelFiles) -> None:
    """The model was trained on such pieces; a vocabulary of bytes without such a rule parts the
    spaces."""
    ids = files.codec.encode("x  =   12\n\n34")
    assert [files.codec.decode([i]) for i in ids] == ["x", " ", " =", "   ", *"12", "\n\n", *"34"]


@pytest.mark.parametrize("name", ["python", "chat"])
def test_a_prompt_has_the_ids_of_its_text(files: ModelFiles, name: str) -> None:
    fmt = load_format(name, files.chat_template)
    prompt = fmt.prompt("# Go.\n{{problem}}", STATEMENT, python_version="3.11.7")
    ids = prompt_ids(prompt, files.codec)
    assert ids == files.tokenizer.encode(prompt.text, add_special_tokens=False)
    assert files.codec.decode(ids, is_first=True) == prompt.text


def test_the_turns_before_the_session_are_what_the_template_renders(files: ModelFiles) -> None:
    fmt = load_format("chat", files.chat_template)
    prompt = fmt.prompt("{{problem}}", STATEMENT, python_version="3.11.7")
    rules = {"role": "system", "content": read_text("chat.txt").strip()}
    asked = [rules, {"role": "user", "content": STATEMENT}]
    expected = files.tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_dict=False
    )
    assert prompt_ids(prompt, files.codec)[: len(expected)] == expected


def test_few_ids_carry_text_behind_their_first_newline(files: ModelFiles) -> None:
    """An indent, a second newline, a comment's beginning."""
    run_on = files.codec.run_on_ids
    assert (len(run_on), len(files.tokenizer)) == (125, 49_152)
    assert all(files.codec.decode([one]).partition("\n")[2] for one in run_on)
