"""Refusals of `repl-rl warmstart`, each in one line, before torch is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
MODEL = ("--model", "tiny")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--whole",), "--whole needs a model to fine-tune; give --model PATH"),
        (("--from", "mine.repl"), "--from needs a model to fine-tune; give --model PATH"),
        (("--seed", "3"), "--seed needs a model to fine-tune; give --model PATH"),
        (
            ("--set", "warmstart.demonstrations=100"),
            "settings of warmstart need a model to fine-tune; give --model PATH",
        ),
        ((*MODEL, "--from", "nothere"), "no such file or run folder: 'nothere'"),
        (
            (*MODEL, "--solved"),
            "--solved needs trajectories; name a run or a .jsonl file with --from",
        ),
        (
            (*MODEL, "--from", "rows.jsonl"),
            "--from 'rows.jsonl' holds trajectories, right and wrong; add --solved to take those "
            "that were solved",
        ),
        (
            (*MODEL, "--from", "notes.txt"),
            "--from 'notes.txt'; expected a .repl file, a folder of them, a run's folder or a "
            ".jsonl file of trajectories",
        ),
        ((*MODEL, "--from", "tiny"), "no *.repl file in 'tiny'"),
        (
            (*MODEL, "--whole", "--set", "lora.rank=4"),
            "--whole trains all weights, but lora.rank = 4; give one of the two",
        ),
        (
            (*MODEL, "--demonstrations", "0"),
            "warmstart.demonstrations = 0 and no --from: nothing to show the model",
        ),
        (
            (*MODEL, "--set", "warmstart.keep=good"),
            "warmstart.keep = 'good'; expected one of solved, submitted, all",
        ),
        (
            (*MODEL, "--set", "warmstart.learning_rate=0"),
            "warmstart.learning_rate = 0; expected float or not set, more than 0",
        ),
        ((*MODEL, "--from", "broken.repl"), "broken.repl:1: '>>> x'; expected `config: ...`"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "tiny").mkdir()
    for name in ("rows.jsonl", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "broken.repl").write_text(">>> x\n")
    code, out, err = call("warmstart", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"repl-rl: {said}")
