"""The command that measures, from outside: what it prints, what it keeps, what it takes along."""

from __future__ import annotations

import errno
import json
import re
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.config.resolve import resolve, to_toml
from repl_rl.errors import StorageError
from repl_rl.models.loading import LoadedModel
from repl_rl.progress import SILENT
from repl_rl.records import Scored
from repl_rl.rollout.plan import make_plan
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.training import eval_job
from repl_rl.training.evaluate import run_shown
from repl_rl.training.runtime import load_policy
from small_run import small, small_settings

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]


def test_an_evaluation_is_kept_like_a_run_and_told_to_programs(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.symlink_to(tiny_model)
    beside = ("--against", "other", "--picture", "rates.svg")
    given = ("-k", "3", "--json", "--output", "kept", *beside, *small())
    ended = repl_rl("eval", str(tiny_model), *given)
    assert ended.code == 0, ended.stderr
    assert ended.left_behind == []
    facts = json.loads(ended.stdout)
    assert (facts["samples"], facts["problems"], facts["output"]) == (3, 2, "kept")
    assert {"pass@1", "pass@2", "pass@3", "solve_rate", "by_family"} <= set(facts)
    assert (facts["total"], len(facts["interval"])) == (6, 2)
    same = facts["against"]["other"]
    assert (same["solve_rate"], same["difference"]) == (facts["solve_rate"], 0.0)
    assert "held-out solve rate" in (tmp_path / "rates.svg").read_text()
    kept = list(read_trajectories(tmp_path / "kept" / "trajectories" / "eval.jsonl"))
    assert sorted((t.trajectory.group_index, t.trajectory.sibling_index) for t in kept) == [
        (group, sample) for group in (0, 1) for sample in (0, 1, 2)
    ]
    config = resolve(files=[tmp_path / "kept" / "config.toml"])
    assert (config.model, config.sampling.max_lines) == (str(tiny_model), 3)
    for command in (
        ("show", "kept"),
        ("replay", "kept", "--execute"),
        ("reward", "explain", "kept", "-n", "1"),
        ("reward", "explain", "kept", "-n", "1", "--branches", "2", "--model", str(tiny_model)),
    ):
        looked = repl_rl(*command)
        assert looked.code == 0, (command, looked.stderr)
    assert "surprise" in looked.stdout
    again = repl_rl("eval", str(tiny_model), *given)
    assert (again.code, again.stderr) == (
        2,
        "repl-rl: 'kept' already holds a run; give another --output\n",
    )


def test_rates_are_not_lost_where_another_model_cannot_be_measured(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    cut = shutil.copytree(tiny_model, tmp_path / "cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    given = ("eval", str(tiny_model), "--against", str(tiny_model), "--against", "cut")
    for options in (("--output", "kept", "--picture", "rates.svg"), ("--json",)):
        ended = repl_rl(*given, *options, *small())
        assert (ended.code, ended.left_behind) == (2, [])
        assert "cut" in ended.stderr.splitlines()[-1]
        if "--json" not in options:
            assert "\npicture: rates.svg\n\nkept: kept\n" in ended.stdout
            assert (tmp_path / "rates.svg").exists()
    facts = json.loads(ended.stdout)
    assert facts["total"] == 2
    assert facts["against"][str(tiny_model)]["total"] == 2


def test_a_model_is_let_go_before_the_next_one_is_measured(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    """Its memory would be missing where the next one is sized."""
    seen: list[weakref.ref[Any]] = []

    def load(*args: Any, **kwargs: Any) -> LoadedModel:
        assert [model() for model in seen] == [None] * len(seen)
        loaded = load_policy(*args, **kwargs)
        seen.append(weakref.ref(loaded.model))
        return loaded

    monkeypatch.setattr(eval_job, "load_policy", load)
    plan = make_plan(resolve(overrides=[f"model={tiny_model}", *small_settings()]))
    for _ in range(2):
        eval_job.evaluate(plan, SILENT)
    assert len(seen) == 2


def test_what_was_measured_before_an_end_is_kept(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, tmp_path: Path
) -> None:
    made: list[Scored] = []

    def called_off(*args: Any, **kwargs: Any) -> list[Scored]:
        made.extend(run_shown(*args, **kwargs))
        raise KeyboardInterrupt

    plan = make_plan(resolve(overrides=[f"model={tiny_model}", *small_settings()]))
    with monkeypatch.context() as patched:
        patched.setattr(eval_job, "run_shown", called_off)
        with pytest.raises(KeyboardInterrupt):
            eval_job.evaluate(plan, SILENT, output=tmp_path / "part")
    kept = read_trajectories(tmp_path / "part" / "trajectories" / "eval.jsonl")
    assert {one.problem.id for one in kept} == {one.problem.id for one in made} != set()

    make = Path.mkdir

    def mkdir(path: Path, *args: Any, **kwargs: Any) -> None:
        """Refuse as a disk does that has filled since the output was checked."""
        if path.is_relative_to(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
        make(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(StorageError, match=r"No space left on device; solved [\d.]+ % of 2 "):
        eval_job.evaluate(plan, SILENT, output=tmp_path / "whole")
    monkeypatch.setattr(eval_job, "run_shown", called_off)
    with pytest.raises(KeyboardInterrupt):
        eval_job.evaluate(plan, SILENT, output=tmp_path / "whole")


def test_at_temperature_0_all_attempts_at_a_problem_are_the_same(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    ended = repl_rl(
        *("eval", str(tiny_model), "-k", "2", "--temperature", "0", "--output", "kept", *small())
    )
    assert ended.code == 0, ended.stderr
    head = r"^ +solved  of +95 % interval  pass@2 +best single call +guessing\n"
    assert re.search(head, ended.stdout, re.MULTILINE)
    sampled: dict[int, set[tuple[int, ...]]] = {}
    for item in read_trajectories(tmp_path / "kept" / "trajectories" / "eval.jsonl"):
        one = item.trajectory
        sampled.setdefault(one.group_index, set()).add(one.completion_ids)
    assert [len(different) for different in sampled.values()] == [1, 1]
    assert resolve(files=[tmp_path / "kept" / "config.toml"]).sampling.temperature == 0.0


def test_a_checkpoint_keeps_the_settings_of_its_run(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    """The run did not end, so its newest checkpoint is taken, and its number said."""
    run = tmp_path / "runs" / "mine"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "checkpoint-7").symlink_to(tiny_model)
    (run / "config.toml").write_text(to_toml(resolve(overrides=["model=m", *small_settings()])))
    ended = repl_rl("eval", "runs/mine", "--json", "--set", "eval.problems=1")
    assert ended.code == 0, ended.stderr
    assert ended.stderr.startswith(
        "repl-rl: checkpoint-7 of runs/mine\n"
        "repl-rl: settings of runs/mine/config.toml, 1 changed\n"
    )
    facts = json.loads(ended.stdout)
    assert (facts["problems"], facts["model"]) == (1, "runs/mine/checkpoints/checkpoint-7")
