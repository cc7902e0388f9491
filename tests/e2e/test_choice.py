"""A run that chooses families and tiers, and goes on with the same choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.runs.trajectory_file import read_trajectories
from run_metrics import read_metrics
from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

CHOICE = set_words('task.families=["modular", "composite"]', "task.tiers=[1, 3]")


def test_a_run_draws_what_was_chosen_and_says_what_else_would_solve_it(
    repl_rl: Callable[..., Any], tiny_model: Path, tmp_path: Path
) -> None:
    limits = {"sampling__max_tokens": 1200, "grpo__problems_per_step": 2}
    given = ("train", "--model", str(tiny_model), *small(**limits), *CHOICE)
    begun = repl_rl(*given, "--output", "run")
    assert begun.code == 0, begun.stderr
    assert "; baselines: best single call " in begun.stdout
    resumed = repl_rl("train", "--resume", "run", *set_words("grpo.steps=3"))
    assert resumed.code == 0, resumed.stderr
    last = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in row][-1]
    assert last["step"] == 3
    assert cells_of(tmp_path / "run") <= {("modular", "1"), ("modular", "3"), ("composite", "3")}


def cells_of(run: Path) -> set[tuple[str, str]]:
    """(family, tier) of each problem that was rolled out."""
    files = (run / "trajectories").glob("step-*.jsonl")
    problems = [scored.problem for file in files for scored in read_trajectories(file)]
    assert problems
    return {(problem.meta["family"], problem.meta["tier"]) for problem in problems}
