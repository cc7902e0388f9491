"""The main job as a newcomer runs it, in small: no model named, so a starter is made and cached."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import make_plan
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.training.starter import Recipe, check_cache
from repl_rl.training.train import train
from repl_rl.viewer.show.display import Screen
from run_metrics import read_metrics

pytestmark = pytest.mark.slow

SMALL = Recipe(
    num_demonstrations=16, steps=2, batch_size=4, hidden_size=32, intermediate_size=64, num_layers=2
)


def small_run(tmp_path: Path, name: str) -> str:
    config = resolve(overrides=["grpo.steps=1", "grpo.problems_per_step=2", "grpo.group_size=2",
                                "eval.problems=4", "sandbox.standby=4"])  # fmt: skip
    out = io.StringIO()
    with Screen(Console(file=out)) as screen:
        train(make_plan(config), tmp_path / name, screen, recipe=SMALL)
    return out.getvalue()


@pytest.mark.kernel
@pytest.mark.train
def test_the_starter_is_made_once_and_the_run_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REPL_RL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    first, second = small_run(tmp_path, "one"), small_run(tmp_path, "two")
    assert "starter: supervised training" in first
    assert "starter:" not in second
    (starter,) = (tmp_path / "cache" / "starters").iterdir()
    versions = json.loads((tmp_path / "two" / "versions.json").read_text())
    assert versions["policy"] == str(starter)
    before = list(read_trajectories(tmp_path / "one" / "trajectories" / "eval-000000.jsonl"))
    assert [len(scored.trajectory.prompt_ids) < 100 for scored in before] == [True] * 4
    rows = read_metrics(tmp_path / "one" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 1]
    assert rows[1]["kl"] == pytest.approx(0.0, abs=1e-6)


def test_a_cache_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="REPL_RL_CACHE"):
        check_cache(tmp_path / "file" / "starters" / "one")


def test_another_recipe_or_sandbox_is_another_starter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from repl_rl.tasks.sympy_proofs import SympyProofs
    from repl_rl.training import starter

    first = starter.recipe_hash(SympyProofs(), SMALL)
    assert starter.recipe_hash(SympyProofs(), SMALL) == first
    assert starter.recipe_hash(SympyProofs(), dataclasses.replace(SMALL, seed=1)) != first
    other = dataclasses.replace(starter.starter_sandbox(), max_output_chars=10)
    monkeypatch.setattr(starter, "starter_sandbox", lambda: other)
    assert starter.recipe_hash(SympyProofs(), SMALL) != first
