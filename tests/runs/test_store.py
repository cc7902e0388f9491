"""Laws of a run's folder: what is written is read back, and what is foreign is refused."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from repl_rl import __version__
from repl_rl.config import Config
from repl_rl.config.resolve import to_toml
from repl_rl.config.sections import SandboxConfig, TaskConfig
from repl_rl.errors import ConfigError
from repl_rl.records import GRADING, Origin, OutcomeKind, Scored, Trajectory
from repl_rl.runs.folder import (
    RunFolder,
    check_output,
    installed_versions,
    make_origin,
    new_run_path,
    read_versions,
)
from repl_rl.runs.trajectory_file import places, read_trajectories
from run_metrics import read_metrics

ORIGIN = Origin(
    config="seed = 0\n",
    setup=("x = 1",),
    tokenizer=None,
    isolation="strict",
    versions={"python": "3.11.7", "sympy": "1.13"},
)


@pytest.fixture
def scored(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> Scored:
    return make_scored(make_trajectory([("x\n", OutcomeKind.BLANK, None)]), 1.0)


def test_records_are_appended(tmp_path: Path, scored: Scored) -> None:
    folder = RunFolder(tmp_path)
    folder.append_trajectories("step", [scored])
    folder.append_trajectories("step", [scored, scored])
    assert list(read_trajectories(tmp_path / "trajectories" / "step.jsonl")) == [scored] * 3


def test_every_file_begins_with_the_origin_of_the_run(tmp_path: Path, scored: Scored) -> None:
    folder = RunFolder(tmp_path)
    folder.write_config(ORIGIN, policy="p", device="cpu")
    for name in ("before", "step-000000"):
        folder.append_trajectories(name, [scored])
        (place,) = places(tmp_path / "trajectories" / f"{name}.jsonl")
        assert place.origin == ORIGIN


def test_metrics_are_one_row_a_step(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append_metrics(1, {"loss": 0.5})
    folder.append_metrics(2, {"loss": -0.25})
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": -0.25}]


def test_a_config_is_saved_as_it_is_resolved(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_config(ORIGIN, policy="p", device="cuda")
    assert (tmp_path / "config.toml").read_text() == "seed = 0\n"


def test_versions_name_what_the_run_was_made_with(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_config(ORIGIN, policy="p", device="cuda")
    written = {
        "python": "3.11.7",
        "sympy": "1.13",
        "policy": "p",
        "device": "cuda",
        "isolation": "strict",
    }
    assert json.loads((tmp_path / "versions.json").read_text()) == written
    assert read_versions(tmp_path) == written


@pytest.mark.parametrize("foreign", ["", "{", "[1]", '"policy"', "null"])
def test_versions_that_cannot_be_read_are_none(tmp_path: Path, foreign: str) -> None:
    (tmp_path / "versions.json").write_text(foreign)
    assert read_versions(tmp_path) == {}


def test_a_run_that_goes_on_keeps_the_oldest_version_of_its_graders(tmp_path: Path) -> None:
    (tmp_path / "versions.json").write_text('{"policy": "p"}')
    origin = make_origin(Config(), setup=(), tokenizer=None, isolation="")
    assert origin.versions["grading"] == str(GRADING)
    RunFolder(tmp_path, is_begun=True).write_config(origin, policy="p", device="cpu")
    assert read_versions(tmp_path)["grading"] == "1"


def test_only_texts_are_versions(tmp_path: Path) -> None:
    (tmp_path / "versions.json").write_text('{"policy": 5, "torch": "2"}')
    assert read_versions(tmp_path) == {"torch": "2"}


def test_a_run_without_versions_has_none(tmp_path: Path) -> None:
    assert read_versions(tmp_path) == {}


def test_an_origin_holds_what_it_takes_to_run_lines_again() -> None:
    config = Config(task=TaskConfig(name="t"), sandbox=SandboxConfig(preload=("sympy",)))
    origin = make_origin(config, setup=["x = 1"], tokenizer="owner/name", isolation="basic")
    assert origin == Origin(
        config=to_toml(config),
        setup=("x = 1",),
        tokenizer="owner/name",
        isolation="basic",
        versions={**installed_versions(["sympy"]), "grading": str(GRADING)},
    )


def test_versions_here_are_those_of_what_trains() -> None:
    found = installed_versions([])
    assert found["repl_rl"] == __version__
    assert found["python"] == platform.python_version()
    assert {name: found[name] for name in ("torch", "trl", "sympy")} == {
        name: version(name) for name in ("torch", "trl", "sympy")
    }


def test_what_kernels_have_loaded_has_a_version() -> None:
    assert "mpmath" not in installed_versions([])
    assert installed_versions(["mpmath"])["mpmath"] == version("mpmath")


def test_a_module_is_named_by_its_package() -> None:
    """The package `rich` holds `rich.text`; `PyYAML` holds `yaml`."""
    assert installed_versions(["rich.text", "yaml"]).keys() - installed_versions([]).keys() == {
        "rich",
        "PyYAML",
    }


def test_a_module_of_the_standard_library_has_no_version_of_its_own() -> None:
    assert installed_versions(["fractions", "math", "no_such_module"]) == installed_versions([])


def test_what_is_installed_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = installed_versions(["mpmath"])

    def read_again() -> None:
        pytest.fail("all that is installed is read again")

    monkeypatch.setattr(importlib.metadata, "packages_distributions", read_again)
    assert installed_versions(["mpmath"]) == found


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run")
    with pytest.raises(ConfigError, match="already holds a run; give another --output"):
        RunFolder(tmp_path / "run")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to '.*file/run': Not a directory"):
        RunFolder(tmp_path / "file" / "run")


def test_a_file_in_place_of_the_folder_is_not_called_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="cannot write to"):
        RunFolder(tmp_path / "run")


@pytest.mark.parametrize("name", ["", "run", "deep/down/run"])
def test_a_free_output_is_left_as_it_was(tmp_path: Path, name: str) -> None:
    check_output(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_holds_a_run_is_refused_beforehand(tmp_path: Path) -> None:
    RunFolder(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run; give another --output"):
        check_output(tmp_path)


@pytest.mark.parametrize("name", ["config.toml", "versions.json", "trajectories", "tokenizer"])
def test_an_output_with_files_of_somebody_else_is_refused_beforehand(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    check_output(tmp_path)
    (tmp_path / name / "mine").touch()
    with pytest.raises(ConfigError, match=f"holds {name}, which a run has files of its own for"):
        check_output(tmp_path)


@pytest.mark.parametrize("name", ["final", "best", "checkpoint-12"])
def test_weights_of_somebody_else_are_refused_and_a_trainers_logs_stay(
    tmp_path: Path, name: str
) -> None:
    """transformers makes `runs/` below the folder of checkpoints before the first rollout."""
    (tmp_path / "checkpoints" / "runs").mkdir(parents=True)
    (tmp_path / "checkpoints" / "runs" / "events").touch()
    check_output(tmp_path)
    (tmp_path / "checkpoints" / name).mkdir()
    with pytest.raises(ConfigError, match=f"holds checkpoints/{name}, which a run has files of"):
        check_output(tmp_path)


@pytest.mark.parametrize("place", ["/proc", "/proc/deep"])
def test_a_place_that_takes_no_file_is_refused_beforehand(place: str) -> None:
    """/proc refuses even root."""
    with pytest.raises(ConfigError, match=f"cannot write to '{place}/run'"):
        check_output(Path(place) / "run")


@pytest.mark.parametrize(
    ("task", "stem"),
    [
        ("../data/rows.jsonl", "rows-2"),
        ("hf:owner/name@v1", "name-v1-2"),
        ("a.json", "a-2"),
        ("b/a.csv", "a-2"),
    ],
)
def test_a_run_of_data_is_named_by_the_last_part(tmp_path: Path, task: str, stem: str) -> None:
    assert new_run_path(task, tmp_path).name.startswith(stem)


def test_runs_that_start_within_a_second_have_folders_of_their_own(tmp_path: Path) -> None:
    assert new_run_path("a.json", tmp_path) != new_run_path("a.json", tmp_path)


def test_a_run_path_holds_no_separator_of_the_task(tmp_path: Path) -> None:
    path = new_run_path("my.tasks/x:Task", tmp_path)
    assert path.parent == tmp_path
    assert path.name.startswith("my.tasks-x-Task-")
