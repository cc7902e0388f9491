"""Laws of a run's files: their order, and the one that is looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repl_rl.errors import ConfigError
from repl_rl.runs.folder import RunFolder, RunPart, files, load_run, part_of
from repl_rl.runs.trajectory_file import append
from trajectory_kit import FULL, full_with

IN_ORDER = ["eval-000000", "step-000002", "eval-000010", "step-000010"]


def opened(path: Path, **chosen: object) -> str:
    """The name of what is looked at."""
    return part_of(path, RunPart(**chosen), say=pytest.fail).stem  # type: ignore[arg-type]


def make(folder: Path, *names: str) -> Path:
    (folder / "trajectories").mkdir(parents=True)
    for number, name in enumerate(names):
        item = full_with(policy_version=number)
        append(folder / "trajectories" / f"{name}.jsonl", [item])
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Its files were made in the order of their names backwards."""
    (tmp_path / "trajectories").mkdir()
    for name in reversed(IN_ORDER):
        append(tmp_path / "trajectories" / f"{name}.jsonl", [FULL])
    return tmp_path


def test_files_of_a_run_come_in_the_order_of_its_steps(run: Path) -> None:
    assert [path.stem for path in files(run)] == IN_ORDER


def test_the_folder_of_trajectories_stands_for_its_run(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = run / "trajectories"
    assert files(inside) == files(run)
    assert opened(inside) == "step-000010"
    monkeypatch.chdir(inside)
    assert [path.stem for path in files(Path())] == [path.stem for path in files(run)]


def test_a_run_may_have_the_name_of_that_folder(run: Path) -> None:
    other = run / "b" / "trajectories"
    (run / "trajectories").rename(run / "c")
    other.mkdir(parents=True)
    (run / "c").rename(other / "trajectories")
    assert [path.stem for path in files(other)] == IN_ORDER


def test_any_other_folder_is_no_run(tmp_path: Path) -> None:
    append(tmp_path / "s.jsonl", [FULL])
    with pytest.raises(ConfigError, match="no trajectories in"):
        files(tmp_path)


def test_a_folder_of_runs_names_the_latest(tmp_path: Path) -> None:
    for name, at in (("a", 2e9), ("b", 1e9)):
        metrics = RunFolder(tmp_path / name).path / "metrics.jsonl"
        os.utime(metrics, (at, at))
    with pytest.raises(ConfigError, match=r"run folder; the latest run in it is '.*/a'$"):
        files(tmp_path)


def test_a_file_of_a_run_that_holds_nothing_is_passed_over(run: Path) -> None:
    (run / "trajectories" / "step-000011.jsonl").touch()
    assert [path.stem for path in files(run)] == IN_ORDER


# The part that is looked at


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A run of three steps that was measured before and after."""
    steps = ("step-000000", "step-000001", "step-000002")
    return make(tmp_path / "whole", "eval-000000", *steps, "eval-000003")


def test_a_run_opens_at_its_last_training_step(run: Path, whole: Path) -> None:
    assert opened(whole) == "step-000002"
    assert opened(run) == "step-000010"


def test_a_step_is_chosen_by_its_number(whole: Path) -> None:
    assert opened(whole, step=0) == "step-000000"
    assert opened(whole, step=1) == "step-000001"


def test_held_out_is_the_last_evaluation_or_that_after_a_step(whole: Path, run: Path) -> None:
    assert opened(whole, held_out=True) == "eval-000003"
    assert opened(whole, held_out=True, step=0) == "eval-000000"
    assert opened(run, held_out=True) == "eval-000010"


def test_an_evaluation_alone_is_opened_and_said(tmp_path: Path) -> None:
    kept, said = make(tmp_path / "kept", "eval"), list[str]()
    assert part_of(kept, RunPart(), say=said.append).stem == "eval"
    assert said == [f"{str(kept)!r} has no training step: eval is shown"]
    assert opened(kept, held_out=True) == "eval"


def test_a_warm_start_opens_at_its_last_measurement_and_not_at_its_lessons(tmp_path: Path) -> None:
    warm, said = make(tmp_path, "lessons", "eval-000000", "eval-000029"), list[str]()
    assert [path.stem for path in files(warm)] == ["lessons", "eval-000000", "eval-000029"]
    assert part_of(warm, RunPart(), say=said.append).stem == "eval-000029"
    assert said == [f"{str(warm)!r} has no training step: eval-000029 is shown"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"step": 3}, "has no training step 3; there are 0 to 2"),
        ({"step": 2, "held_out": True}, "has no evaluation after step 2; there are 0, 3"),
    ],
)
def test_a_step_that_is_not_there_is_refused_with_those_that_are(
    whole: Path, chosen: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(whole, **chosen)


def test_a_kind_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no training step; --held-out takes an evaluation"):
        opened(make(tmp_path / "a", "eval-000000"), step=0)
    with pytest.raises(ConfigError, match="has no evaluation; leave out --held-out"):
        opened(make(tmp_path / "b", "step-000000"), held_out=True)
    with pytest.raises(ConfigError, match="evaluation after step 4; it has one, which has no"):
        opened(make(tmp_path / "c", "eval"), held_out=True, step=4)


def test_many_steps_with_gaps_are_named_in_part(tmp_path: Path) -> None:
    names = [f"step-{number:06d}" for number in range(0, 40, 2)]
    with pytest.raises(ConfigError, match=r"0, 2, 4, 6, 8, 10, 12, 14 \.\.\. 38$"):
        opened(make(tmp_path, *names), step=1)


def test_a_file_is_its_own_part(whole: Path) -> None:
    file = whole / "trajectories" / "eval-000000.jsonl"
    assert opened(file) == "eval-000000"
    with pytest.raises(ConfigError, match="is one file; --step and --held-out choose one in a run"):
        opened(file, step=0)


def test_a_folder_without_trajectories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no trajectories in"):
        opened(tmp_path)


# Records


def versions(path: Path, **chosen: object) -> list[int]:
    found = load_run(path, **chosen)  # type: ignore[arg-type]
    return [one.trajectory.policy_version for one in found]


def test_records_are_those_of_all_files_or_of_one_kind_or_one_step(whole: Path) -> None:
    """`make` gives each file a version of its own, in order."""
    assert versions(whole) == [0, 1, 2, 3, 4]
    assert versions(whole, held_out=False) == [1, 2, 3]
    assert versions(whole, held_out=True) == [0, 4]
    assert versions(whole, step=1) == [2]
    assert versions(whole, step=3, held_out=True) == [4]
    with pytest.raises(ConfigError, match="has no training step 7; there are 0 to 2"):
        versions(whole, step=7)
