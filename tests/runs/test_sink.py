"""Laws of a run's rows: its file has them all, trackers those of a process, none ends a run."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.summary.writer import event_file_writer

from event_file import rows_of_events, rows_of_file, same_rows
from repl_rl.base import concurrency as interrupts
from repl_rl.base.concurrency import Interrupts
from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import ReportConfig
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import make_plan
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.resume import Begun, cut
from repl_rl.runs.sink import Sink, check_trackers
from run_metrics import read_metrics

Rows = list[tuple[int, dict[str, float]]]

ROWS: Rows = [
    (0, {"eval_solve_rate": 0.1}),
    (1, {"loss": 0.5, "line/ok_output/share": 0.25}),
    (2, {"loss": 0.25}),
    (2, {"eval_solve_rate": 0.2}),
    (3, {"loss": 0.125}),
]


def config(*trackers: Any) -> Config:
    return Config(model="m", report=ReportConfig(trackers=trackers))


class Killed(BaseException):
    """Error that a test raises where a run would be killed."""


def written(
    folder: RunFolder, rows: Rows, *trackers: str, step: int = 0, said: list[str] | None = None
) -> None:
    """Write rows as a run that is at `step` does."""
    said = [] if said is None else said
    with Sink(folder, config(*trackers), warn=said.append, step=step) as sink:
        for at, row in rows:
            sink.write(at, row)


def killed_at(folder: RunFolder, step: int) -> None:
    """The folder as a resumed run finds it, whose newest checkpoint is that of `step`."""
    checkpoint = folder.path / "checkpoints" / f"checkpoint-{step}" if step else None
    cut(Begun(run=folder.path, checkpoint=checkpoint, policy="m"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    # Files of one second are told apart by this number, and read in the order of their names.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    return RunFolder(tmp_path / "run")


# The sink


def test_every_row_says_how_long_the_run_has_taken(folder: RunFolder) -> None:
    """Over all of its parts: 20 s at the last row that is kept, then 3."""
    written(folder, ROWS[:1])
    (folder.path / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5, "wall_s": 20.0}\n')
    now = iter([100.0, 103.0])
    with Sink(folder, config(), warn=print, step=1, clock=lambda: next(now)) as sink:
        sink.write(2, {"loss": 0.25})
    assert read_metrics(folder.path / "metrics.jsonl")[-1] == {
        "step": 2,
        "loss": 0.25,
        "wall_s": 23.0,
    }


def test_steps_never_fall(folder: RunFolder) -> None:
    with Sink(folder, config(), warn=print) as sink:
        sink.write(2, {})
        sink.write(2, {})
        with pytest.raises(AssertionError, match="a row of step 1 after one of step 2"):
            sink.write(1, {})


def test_a_run_without_trackers_leaves_no_word_of_them(folder: RunFolder) -> None:
    written(folder, ROWS)
    assert {path.name for path in folder.path.iterdir()} == {
        *("metrics.jsonl", "trajectories", "checkpoints"),
    }


# TensorBoard


def test_the_event_file_holds_the_rows_of_the_metrics(folder: RunFolder) -> None:
    written(folder, ROWS, "tensorboard")
    assert len(rows_of_file(folder.path)) == 11
    assert same_rows(folder.path)


@pytest.mark.parametrize("step", [0, 2])
def test_it_holds_them_after_a_kill_and_a_resume(folder: RunFolder, step: int) -> None:
    with pytest.raises(Killed):
        written_until_killed(folder, ROWS)
    killed_at(folder, step)
    kept = len(read_metrics(folder.path / "metrics.jsonl"))
    written(folder, [*ROWS[kept:], (4, {"loss": 0.5})], "tensorboard", step=step)
    assert [step for step, name, _ in rows_of_events(folder.path) if name == "train/loss"] == [
        *(1, 2, 3, 4)
    ]
    assert same_rows(folder.path)


def written_until_killed(folder: RunFolder, rows: Rows) -> None:
    with Sink(folder, config("tensorboard"), warn=print) as sink:
        for at, row in rows:
            sink.write(at, row)
        # The last row reached the run's file alone.
        folder.append_metrics(4, {"loss": 0.75})
        raise Killed


def test_rows_of_the_step_that_a_run_goes_on_at_stay(folder: RunFolder) -> None:
    """The checkpoint of step 2 was written, and held-out problems measured, before the end."""
    written(folder, ROWS[:4], "tensorboard")
    killed_at(folder, 2)
    written(folder, ROWS[4:], "tensorboard", step=2)
    assert same_rows(folder.path)


def test_one_that_joins_a_run_later_gets_the_rows_from_there_on(folder: RunFolder) -> None:
    written(folder, ROWS[:4])
    killed_at(folder, 2)
    written(folder, ROWS[4:], "tensorboard", step=2)
    assert {step for step, _, _ in rows_of_events(folder.path)} == {3}


# Services


STAND_IN = """
calls, run = [], None

class Run:
    def log(self, row, *, step):
        calls.append(("log", (step, row)))

    def finish(self):
        calls.append(("finish", {}))

def init(**values):
    calls.append(("init", values))
    return run or Run()
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[Any]:
    """A module in place of a service's own, which keeps what it is asked to do."""
    name = request.param
    package = tmp_path / "modules" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(package.parent)
    module = __import__(name)
    yield module
    del sys.modules[name]


SERVICES = pytest.mark.parametrize("service", ["wandb", "trackio"], indirect=True)


def given(service: Any, what: str) -> list[Any]:
    return [values for call, values in service.calls if call == what]


def logged(service: Any) -> list[int]:
    """The steps of the rows that it was given."""
    return [step for step, _ in given(service, "log")]


@SERVICES
def test_a_service_gets_the_rows_and_the_settings(service: Any, folder: RunFolder) -> None:
    written(folder, ROWS, service.__name__)
    assert logged(service) == [step for step, _ in ROWS]
    assert given(service, "log")[0][1].items() >= {"eval/solve_rate": 0.1}.items()
    assert given(service, "log")[1][1].items() >= {"train/loss": 0.5}.items()
    (begun,) = given(service, "init")
    assert begun["config"]["grpo"]["steps"] == 200
    assert (begun["project"], begun["group"]) == ("repl-rl", "run")
    assert [call for call, _ in service.calls][-1] == "finish"


@SERVICES
def test_a_resumed_run_is_one_more_of_its_group_there(service: Any, folder: RunFolder) -> None:
    """Step 2 is trained again: no run there has a step twice, or one that falls."""
    (folder.path / "trackers.json").write_text('{"id": "1a", "name": "run-1a", "rows": {}}')
    written(folder, ROWS[:3], service.__name__)
    killed_at(folder, 1)
    written(folder, ROWS[2:], service.__name__, step=1)
    assert logged(service) == [0, 1, 2, 2, 2, 3]
    calls = [call for call, _ in service.calls]
    assert calls == ["init", *["log"] * 3, "finish", "init", *["log"] * 3, "finish"]
    first, second = given(service, "init")
    assert first["group"] == second["group"] == "run"
    assert first["name"] != second["name"]


@SERVICES
def test_a_run_that_was_open_there_stays_open(service: Any, folder: RunFolder) -> None:
    service.run = service.Run()
    written(folder, ROWS, service.__name__)
    assert given(service, "finish") == []


@SERVICES
def test_one_that_fails_is_dropped_with_one_warning(
    service: Any, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(run: object, row: dict[str, float], *, step: int) -> None:
        if step == 2:
            raise OSError("no\nspace")
        service.calls.append(("log", (step, row)))

    said: list[str] = []
    name = service.__name__
    monkeypatch.setattr(service.Run, "log", full)
    written(folder, ROWS, name, "tensorboard", said=said)
    assert said == [f"the tracker {name} failed and gets no more rows: OSError: no\\nspace"]
    assert logged(service) == [0, 1]
    assert same_rows(folder.path)


@SERVICES
def test_a_signal_waits_until_the_tracker_has_the_row(
    service: Any, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes locks, and one that a KeyboardInterrupt left taken hangs the end of the run."""
    log = service.Run.log

    def interrupted(run: object, row: dict[str, float], *, step: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        log(run, row, step=step)

    monkeypatch.setattr(service.Run, "log", interrupted)
    monkeypatch.setattr(interrupts, "received_signals", [])
    with (
        Interrupts() as asked,
        Sink(folder, config(service.__name__), warn=print, shield=asked.shield) as sink,
        pytest.raises(KeyboardInterrupt),
    ):
        sink.write(0, {"eval_solve_rate": 0.1})
    assert logged(service) == [0]


@SERVICES
def test_one_that_cannot_begin_is_dropped(
    service: Any, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(service, "init", lambda **_: json.loads("{"))
    written(folder, ROWS, service.__name__, said=said)
    assert len(said) == 1
    assert len(read_metrics(folder.path / "metrics.jsonl")) == 5


# What is refused


def test_a_tracker_that_is_not_installed_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^report\.trackers: wandb is not installed: pip inst"):
        check_trackers(["tensorboard", "wandb"])


def test_an_unknown_one_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ConfigError, match=r"\['tensorbord'\]; expected list of one of tensorb"):
        resolve(overrides=['report.trackers=["tensorbord"]'])


def test_one_that_is_not_installed_hinders_nothing_but_training() -> None:
    make_plan(resolve(overrides=['report.trackers=["wandb"]']))


def test_a_folder_of_logs_is_no_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="wandb is not installed"):
        check_trackers(["wandb"])
