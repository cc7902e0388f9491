"""A run that draws its problems by a curriculum, and goes on with the same one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.training.curriculum import rates_in
from run_metrics import read_metrics
from small_run import set_words, small

pytestmark = [pytest.mark.train, pytest.mark.kernel]

CHOICE = set_words(
    'task.families=["modular", "composite"]', "task.tiers=[1, 3]", "task.curriculum=true"
)


def test_rates_of_cells_stand_in_the_metrics_and_are_what_a_run_goes_on_from(
    repl_rl: Callable[..., Any], tiny_model: Path, tmp_path: Path
) -> None:
    """The tiny model solves nothing: its cells' rates are 0, and stay so in the steps to come."""
    limits = {"sampling__max_tokens": 1200, "grpo__problems_per_step": 2}
    given = ("train", "--model", str(tiny_model), *small(**limits), *CHOICE)
    begun = repl_rl(*given, "--output", "run")
    assert begun.code == 0, begun.stderr
    assert "; baselines: best single call " in begun.stdout
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in row]
    cells = rates_in(rows[-1])
    assert cells
    assert set(cells) <= {"modular-1", "modular-3", "composite-3"}
    assert set(cells.values()) == {0.0}
    resumed = repl_rl("train", "--resume", "run", *set_words("grpo.steps=3"))
    assert resumed.code == 0, resumed.stderr
    last = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in row][-1]
    assert last["step"] == 3
    assert cells.keys() <= rates_in(last).keys()
