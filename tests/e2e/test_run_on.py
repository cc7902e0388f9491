"""Tokens with text behind a newline, from outside: counted, or forbidden from engine to update."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.runs.metrics import read_rows
from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
FORBID = set_words(
    *("sampling.run_on=forbid", "sampling.temperature=0.8", "grpo.importance=line"),
    *("grpo.kl_beta=0.1", "lora.rank=4"),
)


@pytest.fixture(scope="session")
def run_on_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every fifth token of its vocabulary has a character behind a newline."""
    from tiny_model import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("run-on"), runs_on=True)


def said(text: str, name: str) -> str:
    (found,) = re.findall(rf"^ok  {name}  +(.+)$", text, re.M)
    return str(found)


def test_allowed_tokens_are_counted(repl_rl: Command, run_on_model: Path) -> None:
    ended = repl_rl("audit", str(run_on_model), "-n", "4", *small())
    assert (ended.code, ended.stderr) == (0, "")
    assert said(ended.stdout, "run-on ids").startswith("94 have text after their first newline")
    assert re.fullmatch(r"[1-9]\d* of \d+", said(ended.stdout, "run-on lines"))


def test_forbidden_tokens_are_neither_sampled_nor_expected_by_the_update(
    repl_rl: Command, run_on_model: Path, tmp_path: Path
) -> None:
    given = ("train", "--model", str(run_on_model), "--output", "run")
    ended = repl_rl(*given, *small(grpo__steps=1), *FORBID)
    assert (ended.code, ended.stderr, ended.left_behind) == (0, "", [])
    (row,) = (row.numbers for row in read_rows(tmp_path / "run") if "loss" in row.numbers)
    assert row["line/run_on_share"] == 0.0
    for name, expected in (("importance/ratio_min", 1), ("importance/ratio_max", 1), ("kl", 0)):
        assert row[name] == pytest.approx(expected, abs=1e-4), name

    ended = repl_rl("audit", "run", "-n", "4")
    assert (ended.code, "!!" in ended.stdout) == (0, False), ended.stdout
    assert said(ended.stdout, "run-on lines").startswith("0 of ")
    ended = repl_rl("rollout", "--model", "run/checkpoints/final", *small(), *FORBID[:2])
    assert (ended.code, "!!" in ended.stdout) == (0, False), ended.stdout
    assert "in 0 of " in ended.stdout
