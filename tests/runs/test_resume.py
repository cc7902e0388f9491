"""Laws of going on: which checkpoint counts, and what stays of a run's folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repl_rl.commands.options import NEWEST, plan_to_resume
from repl_rl.config import Config
from repl_rl.config.resolve import resolve, to_toml
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import make_plan
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.resume import (
    are_later,
    begun,
    best_rate,
    cut,
    evaluated_steps,
    has_ended,
    newest_run,
)
from repl_rl.training.train import train


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Measured at 0, 2 and 4, with checkpoints at 2 and 4, and ended in the rollouts of step 6."""
    path = tmp_path / "run"
    folder = RunFolder(path)
    (path / "config.toml").write_text(to_toml(resolve(overrides=["grpo.steps=6"])))
    (path / "versions.json").write_text(json.dumps({"policy": "owner/name"}))
    folder.append_metrics(0, {"eval_solve_rate": 0.1})
    for step in range(1, 6):
        folder.append_metrics(step, {"loss": 0.5})
        if step in (2, 4):
            folder.append_metrics(step, {"eval_solve_rate": 0.2})
    for name in ["eval-000000", "eval-000002", "eval-000004"]:
        folder.trajectories(name).touch()
    for version in range(6):
        folder.trajectories(f"step-{version:06d}").touch()
    for step in (2, 4):
        (path / "checkpoints" / f"checkpoint-{step}").mkdir()
        (path / "checkpoints" / f"checkpoint-{step}" / "COMPLETE").touch()
    return path


def names(run: Path) -> list[str]:
    return sorted(path.stem for path in (run / "trajectories").iterdir())


def steps(run: Path) -> list[int]:
    return [json.loads(row)["step"] for row in (run / "metrics.jsonl").read_text().splitlines()]


def test_it_goes_on_from_the_newest_whole_checkpoint(run: Path) -> None:
    found = begun(run)
    assert (found.step, found.policy) == (4, "owner/name")
    assert found.checkpoint == run / "checkpoints" / "checkpoint-4"
    (run / "checkpoints" / "checkpoint-4" / "COMPLETE").unlink()
    assert begun(run).step == 2


def test_what_lies_beyond_is_cut_and_said(run: Path) -> None:
    assert cut(begun(run)) == [
        "metrics.jsonl: removed 1 rows beyond step 4",
        "trajectories: removed 2 files beyond step 4 (step-000004.jsonl ... step-000005.jsonl)",
    ]
    assert steps(run) == [0, 1, 2, 2, 3, 4, 4]
    assert names(run) == [
        *("eval-000000", "eval-000002", "eval-000004"),
        *("step-000000", "step-000001", "step-000002", "step-000003"),
    ]
    assert evaluated_steps(run) == {0: 0.1, 2: 0.2, 4: 0.2}
    assert cut(begun(run)) == []


def test_a_measurement_that_did_not_end_is_made_again(run: Path) -> None:
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(row for row in rows[:-2]))  # without that at 4
    mine = run / "trajectories" / "mine.jsonl"
    mine.touch()
    cut(begun(run))
    assert evaluated_steps(run) == {0: 0.1, 2: 0.2}
    assert "eval-000004" not in names(run)
    assert mine.exists()


def test_a_row_that_was_cut_off_is_taken_out_and_said(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    assert cut(begun(run))[0] == "metrics.jsonl: removed a row that was cut off"
    assert steps(run)[-1] == 4


def test_without_a_checkpoint_only_the_first_measurement_stays(run: Path) -> None:
    for step in (2, 4):
        (run / "checkpoints" / f"checkpoint-{step}" / "COMPLETE").unlink()
        (run / "checkpoints" / f"checkpoint-{step}").rmdir()
    found = begun(run)
    assert (found.checkpoint, found.step) == (None, 0)
    cut(found)
    assert (steps(run), names(run)) == ([0], ["eval-000000"])


def test_a_later_checkpoint_that_is_not_whole_goes(run: Path) -> None:
    (run / "checkpoints" / "checkpoint-6").mkdir()
    (run / "checkpoints" / "final").mkdir()
    cut(begun(run))
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
        "checkpoint-2",
        "checkpoint-4",
    ]


@pytest.mark.parametrize(("step", "stays"), [(2, True), (4, True), (6, False)])
def test_the_best_weights_go_with_their_measurement(run: Path, step: int, stays: bool) -> None:
    """Killed behind a measurement at 6, it goes on from 4 and may never do as well."""
    RunFolder(run, is_begun=True).append_metrics(6, {"eval_solve_rate": 0.9})
    best = run / "checkpoints" / "best"
    best.mkdir()
    (best / "UPDATES").write_text(f"{step}\n")
    messages = cut(begun(run))
    assert best.is_dir() == stays
    told = "checkpoints: removed best, whose measurement is not on record"
    assert (told in messages) != stays


def test_best_weights_that_do_not_say_their_step_stay(run: Path) -> None:
    (run / "checkpoints" / "best").mkdir()
    cut(begun(run))
    assert (run / "checkpoints" / "best").is_dir()


def test_weights_that_are_later_than_the_run_are_told(run: Path, tmp_path: Path) -> None:
    """Its first weights may have been trained on, merged or made again in the same place."""
    weights = tmp_path / "base" / "model.safetensors"
    weights.parent.mkdir()
    weights.touch()
    begins = (run / "trajectories" / "step-000000.jsonl").stat().st_mtime
    found = replace(begun(run), policy=str(weights.parent))
    for seconds in (-1, 1):
        os.utime(weights, (begins, begins + seconds))
        assert are_later(found) == (seconds > 0)
    assert not are_later(begun(run))


@pytest.mark.parametrize(
    ("kept", "rate"), [("2\n", 0.5), ("4\n", 0.3), (None, -1.0), ("", 0.5), ("6\n", -1.0)]
)
def test_the_bar_for_the_best_weights_is_the_rate_of_those_that_are_kept(
    run: Path, kept: str | None, rate: float
) -> None:
    """Without the weights of step 2 its rate would be a bar that no measurement may reach."""
    folder = RunFolder(run, is_begun=True)
    for step, solved in ((0, 0.9), (2, 0.5), (4, 0.3), (6, 0.9)):
        folder.append_metrics(step, {"eval_solve_rate": solved})
    if kept is not None:
        best = run / "checkpoints" / "best"
        best.mkdir()
        (best / "UPDATES").write_text(kept)
    cut(begun(run))
    assert best_rate(run) == rate


def test_a_run_has_ended_once_its_last_weights_are_kept_and_measured(run: Path) -> None:
    assert not has_ended(begun(run), steps=6, measures=True)
    assert not has_ended(begun(run), steps=4, measures=True)
    (run / "checkpoints" / "final").mkdir()
    assert has_ended(begun(run), steps=4, measures=True)


def test_a_run_that_measures_nothing_has_ended_once_its_last_weights_are_kept(run: Path) -> None:
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(row for row in rows if "eval_" not in row))
    assert not has_ended(begun(run), steps=4, measures=False)
    (run / "checkpoints" / "final").mkdir()
    assert has_ended(begun(run), steps=4, measures=False)
    assert not has_ended(begun(run), steps=4, measures=True)


def test_a_measurement_of_no_problem_is_not_on_record(run: Path) -> None:
    """Earlier versions wrote such rows, without a file of trajectories."""
    row = {"step": 5, "eval_solve_rate": 0.0, "eval_total": 0}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert 5 not in evaluated_steps(run)


def test_weights_alone_are_refused_with_what_to_do(run: Path) -> None:
    for mark in run.glob("checkpoints/*/COMPLETE"):
        mark.unlink()
    with pytest.raises(ConfigError, match="checkpoint-4' holds weights alone, without the opt"):
        begun(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.toml", "versions.json"])
def test_a_folder_that_is_no_run_is_refused(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(ConfigError, match="holds no run; expected a folder that `train` has made"):
        begun(run)


def test_a_name_that_is_no_run_is_refused_with_what_it_is(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such run folder: .*/rum'; did you mean '.*/run'\?"):
        begun(tmp_path / "rum")
    checkpoint = run / "checkpoints" / "checkpoint-2"
    with pytest.raises(ConfigError, match=r"checkpoint-2' is a checkpoint; give its run, '.*/run'"):
        begun(checkpoint)
    with pytest.raises(ConfigError, match=r"metrics.jsonl' holds no run; expected a folder"):
        begun(run / "metrics.jsonl")


@pytest.mark.parametrize("name", ["play", "eval"])
def test_what_was_only_played_or_measured_is_not_resumed(
    run: Path, tmp_path: Path, name: str
) -> None:
    game = RunFolder(tmp_path / "game")
    game.trajectories(name).touch()
    for file in ("config.toml", "versions.json"):
        (game.path / file).write_bytes((run / file).read_bytes())
    os.utime(run / "metrics.jsonl", (1e9, 1e9))
    assert newest_run(tmp_path) == game.path
    assert newest_run(tmp_path, to_resume=True) == run
    with pytest.raises(ConfigError, match="holds no run; expected a folder that `train` has made"):
        begun(game.path)


def test_the_newest_run_is_the_one_that_was_written_last(run: Path, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other").path
    os.utime(run / "metrics.jsonl", (2e9, 2e9))
    os.utime(other / "metrics.jsonl", (1e9, 1e9))
    assert newest_run(tmp_path) == run
    with pytest.raises(ConfigError, match=r"no run in .*; name its folder"):
        newest_run(tmp_path / "nowhere")


def test_two_processes_do_not_write_one_run(run: Path) -> None:
    held = os.open(run, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(ConfigError, match=r"another process writes to .*; let it end first"):
        RunFolder(run, is_begun=True)
    os.close(held)
    RunFolder(run, is_begun=True)


def test_a_folder_that_is_closed_is_free_in_the_same_process(run: Path) -> None:
    first = RunFolder(run, is_begun=True)
    with pytest.raises(ConfigError, match=r"let it end first"):
        RunFolder(run, is_begun=True)
    first.close()
    RunFolder(run, is_begun=True)


# Settings


def options(**given: Any) -> dict[str, Any]:
    return {"files": (), "overrides": (), **given}


def test_a_resumed_run_has_its_own_settings(run: Path) -> None:
    found, plan = plan_to_resume(run, options())
    assert (found, plan.config) == (run, make_plan(resolve(overrides=["grpo.steps=6"])).config)


def test_it_may_be_given_more_steps(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, plan = plan_to_resume(run, options(overrides=("grpo.steps=9", "report.sample_every=3")))
    assert (plan.config.grpo.steps, plan.config.report.sample_every) == (9, 3)
    assert "repl-rl: grpo.steps = 9, 6 before\n" in capsys.readouterr().err


def test_a_setting_of_a_file_that_has_no_effect_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[grpo]\nsteps = 9\n")
    assert plan_to_resume(run, options(files=(file,)))[1].config.grpo.steps == 6
    said = "repl-rl: grpo.steps = 9 of --config has no effect: the run goes on with 6\n"
    assert capsys.readouterr().err == said


def test_a_run_that_nobody_named_is_said(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    Path("runs").mkdir()
    run.rename("runs/mine")
    assert plan_to_resume(NEWEST, options())[0] == Path("runs/mine")
    assert capsys.readouterr().err == "repl-rl: runs/mine, the newest run\n"


def test_a_folder_that_somebody_named_is_not_another_one(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, run / "runs" / "other")
    monkeypatch.chdir(run)
    assert plan_to_resume(Path("."), options())[0] == Path(".")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": 1}, r"^seed = 1 here, 0 in '.*run'; a resumed run keeps its settings; only "),
        ({"overrides": ("grpo.learning_rate=1",)}, r"^grpo\.learning_rate = 1\.0 here, "),
        ({"overrides": ("reward.line.timeout=-0.05",)}, r"^reward\.line\.timeout = -0\.05 here, "),
        ({"overrides": ("grpo.steps=3",)}, r"is at step 4; expected grpo\.steps of at least"),
    ],
)
def test_other_settings_would_be_another_run(
    run: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_to_resume(run, options(**given))


def test_a_caller_is_refused_other_settings_too(run: Path) -> None:
    """Else the checkpoint would go on under them, and the record of the old ones would be lost."""
    given = ["grpo.steps=6", "grpo.learning_rate=1"]
    plan = make_plan(resolve(flags={"model": str(run)}, overrides=given), to_train=True)
    with pytest.raises(ConfigError, match=r" here, .* in '.*run'; a resumed run keeps its setti"):
        train(plan, run, resume=True)


def test_a_schedule_over_all_steps_would_be_another_in_a_longer_run(run: Path) -> None:
    settings = ["grpo.steps=6", "trl.lr_scheduler_type=cosine"]
    (run / "config.toml").write_text(to_toml(resolve(overrides=settings)))
    assert plan_to_resume(run, options())[1].config.trl == {"lr_scheduler_type": "cosine"}
    with pytest.raises(
        ConfigError, match=r"trl\.lr_scheduler_type = 'cosine' depends on the number of ste"
    ):
        plan_to_resume(run, options(overrides=("grpo.steps=9",)))


def test_a_run_that_has_ended_says_how_to_go_on(run: Path) -> None:
    (run / "checkpoints" / "final").mkdir()
    with pytest.raises(ConfigError, match=r"has ended after step 4; give it more to do with --set"):
        plan_to_resume(run, options(overrides=("grpo.steps=4",)))


def test_every_setting_of_a_config_compares() -> None:
    assert Config() == resolve(saved=to_toml(Config()), overrides=["grpo.steps=200"])
