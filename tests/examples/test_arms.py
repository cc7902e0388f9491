"""Numbers that the scripts of experiments compute from runs, with numbers worked out by hand."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.runs.folder import RunFolder, rollouts_name

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


pytestmark = pytest.mark.slow  # the scripts import torch


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("arms")


@pytest.fixture
def credit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("credit")


def points(arms: ModuleType, *pairs: tuple[int, float]) -> list[object]:
    return [
        arms.Point(step=step, tokens=tokens, steps_s=0.0, rate=rate)
        for step, (tokens, rate) in enumerate(pairs)
    ]


def test_a_rate_between_measurements_lies_on_the_line_between_them(arms: ModuleType) -> None:
    found = points(arms, (0, 0.2), (100, 0.4), (300, 0.3))
    assert arms.rate_at(found, 50) == pytest.approx(0.3)
    assert arms.rate_at(found, 200) == pytest.approx(0.35)
    assert arms.rate_at(found, 900) == pytest.approx(0.3)


def test_tokens_to_a_rate_are_those_of_its_first_time(arms: ModuleType) -> None:
    found = points(arms, (0, 0.2), (100, 0.4), (300, 0.3), (400, 0.6))
    assert arms.tokens_to(found, 0.1) == 0.0
    assert arms.tokens_to(found, 0.3) == pytest.approx(50)
    assert arms.tokens_to(found, 0.5) == pytest.approx(300 + 100 * 2 / 3)
    assert arms.tokens_to(found, 0.7) is None


def test_the_interval_of_equal_seeds_is_their_value(arms: ModuleType) -> None:
    assert arms.interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    low, high = arms.interval([0.0, 1.0])
    assert (low, high) == (0.0, 1.0)  # one draw in four has both alike


def test_a_table_holds_arms_against_the_baseline(arms: ModuleType) -> None:
    """The baseline comes from 0.2 to 0.4 in 100 tokens, the other arm in 50."""
    habits = {"errors": 0.1, "errors in right ones": 0.05, "submits at line 1": 0.0}
    runs = [
        arms.Run(arm=name, seed=0, points=found, cpu_s=1.0, tokens=[100], habits=[habits])
        for name, found in (
            ("outcome", points(arms, (0, 0.2), (100, 0.4))),
            ("tree", points(arms, (0, 0.2), (100, 0.6))),
        )
    ]
    head, outcome, tree = arms.table(runs, baseline="outcome").splitlines()
    assert "tokens to 40.0%" in head
    assert "1.00 (1 of 1)" in outcome
    assert "60.0% (60.0% to 60.0%)" in tree
    assert "0.50 (1 of 1)" in tree


def test_ranks_that_agree_correlate_to_1_and_ties_share_a_rank(credit: ModuleType) -> None:
    assert credit.ranks([3.0, 1.0, 3.0]) == [1.5, 0.0, 1.5]
    assert credit.spearman([(0.1, 1.0), (0.2, 4.0), (0.3, 9.0)]) == pytest.approx(1.0)
    assert credit.spearman([(0.1, 9.0), (0.2, 4.0), (0.3, 1.0)]) == pytest.approx(-1.0)
    assert credit.spearman([(0.5, 1.0), (0.5, 2.0)]) == 0.0


def test_an_estimate_of_0_is_half_right(credit: ModuleType) -> None:
    assert [credit.agreement(value, 0.5) for value in (0.1, -0.1, 0.0)] == [1.0, 0.0, 0.5]
    assert credit.agreement(-0.3, -0.1) == 1.0


def test_the_noise_of_the_truth_is_not_laid_to_an_estimate(credit: ModuleType) -> None:
    """Off by 0.3 and 0.1, the truth by 0.1 each: (0.09 + 0.01) / 2 - 0.01."""
    lines = [
        credit.Judged(
            problem="p", source="x", kind="ok_output", charge=0.0, at=0, of=2,
            truth=truth, error=0.1, estimates={"outcome": estimate},
        )
        for truth, estimate in ((0.5, 0.2), (0.1, 0.2))
    ]  # fmt: skip
    found = credit.score("outcome", lines, 30.0)
    assert found.error == pytest.approx(0.04)
    assert (found.lines, found.decided, found.agree) == (2, 1, 1.0)


def test_a_run_is_read_while_its_folder_is_someone_elses(
    arms: ModuleType,
    tmp_path: Path,
    make_trajectory: Callable[..., Trajectory],
    make_scored: Callable[..., Scored],
) -> None:
    """A run of two steps: a line of 3 sampled tokens each, and an error in the second."""
    kinds = OutcomeKind.OK_SILENT, OutcomeKind.NAME_ERROR
    folder = RunFolder(tmp_path / "run")
    sampled = 0
    for step, kind in enumerate(kinds):
        scored = make_scored(make_trajectory([(" x\n", kind, None)]), 0.0)
        sampled += scored.trajectory.num_sampled
        folder.append_trajectories(rollouts_name(step), [scored])
        folder.append_metrics(step, {"eval_solve_rate": 0.25 * (step + 1), "eval_total": 4})
        folder.append_metrics(step + 1, {"loss": 0.0, "step_time": 1.5})
    folder.append_metrics(2, {"eval_solve_rate": 0.75, "eval_total": 4})
    (folder.path / "cpu_s").write_text("1.5\n2.0\n")
    run = arms.read_run(folder.path, "tree", 7)
    assert [(one.step, one.rate) for one in run.points] == [(0, 0.25), (1, 0.5), (2, 0.75)]
    assert [one.tokens for one in run.points] == [0, sampled // 2, sampled]
    assert run.cpu_s == 3.5
    assert run.tokens == [sampled // 2, sampled]
    assert [step["errors"] for step in run.habits] == [0.0, 1.0]
    arms.draw_habits([run, run], tmp_path / "habits.svg")
    assert "errors in right ones, %" in (tmp_path / "habits.svg").read_text()


def test_a_run_that_ended_after_its_driver_is_made_again(
    arms: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has counted its seconds; of one that was counted nothing is made."""
    called: list[list[str]] = []

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        called.append(words)
        (tmp_path / "run").mkdir(exist_ok=True)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(arms.subprocess, "run", run)
    arms.hold(tmp_path / "run", {"task": "t", "seed": 0})
    folder = RunFolder(tmp_path / "run")
    final = tmp_path / "run" / "checkpoints" / "final"
    final.mkdir(parents=True)
    (tmp_path / "run" / "config.toml").touch()
    with pytest.raises(SystemExit, match="another process writes"):
        arms.train(tmp_path / "run", {"task": "t"}, 0, beside=tmp_path)
    assert called == []
    assert final.exists()
    folder.close()
    arms.train(tmp_path / "run", {"task": "t"}, 0, beside=tmp_path)
    assert ["--resume" in words for words in called] == [False]
    final.mkdir(parents=True)
    arms.train(tmp_path / "run", {"task": "t"}, 0, beside=tmp_path)
    assert len(called) == 1


def test_the_seconds_of_a_run_are_those_of_all_its_parts(
    arms: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that fails has taken its seconds, too."""
    run = tmp_path / "run"
    work = (
        "import os, sys, time\n"
        "os.makedirs('run', exist_ok=True)\n"
        "while time.process_time() < 0.2: pass\n"
    )
    for code in (1, 0):
        monkeypatch.setattr(arms, "COMMAND", [sys.executable, "-c", f"{work}sys.exit({code})"])
        failing = pytest.raises(SystemExit) if code else contextlib.nullcontext()
        with failing:
            arms.train(run, {"task": "t"}, 0, beside=tmp_path)
        assert (run / "ended").exists() == (code == 0)
    spent = [float(row) for row in (run / "cpu_s").read_text().split()]
    assert len(spent) == 2
    assert min(spent) >= 0.2
    arms.train(run, {"task": "t"}, 0, beside=tmp_path)
    for other, seed in (({"task": "t", "grpo.steps": 9}, 0), ({"task": "t"}, 1)):
        with pytest.raises(SystemExit, match=r"has other settings, .* give another --output"):
            arms.train(run, other, seed, beside=tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(SystemExit, match=r"run\.json is gone; give another --output"):
        arms.train(run, {"task": "t"}, 0, beside=tmp_path)
