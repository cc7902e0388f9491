"""Trackers of a run: transformers' own callbacks, fed with its rows and never needed.

    names, rows of metrics -> on_train_begin, on_log ..., on_train_end

A tracker that fails is dropped with a warning. Knows what each has been given. Does not know what
a row means.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from repl_rl.config import Config
from repl_rl.runs.metrics import Row
from repl_rl.runs.trackers import TENSORBOARD, WANDB, Given
from repl_rl.terminal import one_row

_PROJECT = "repl-rl"
"""Where runs are listed, unless the environment names another project."""
_MODELS = {"WANDB_LOG_MODEL": "false", "WANDB_WATCH": "false"}
"""The callback is given no model that it could keep or watch."""


Shield = Callable[[], contextlib.AbstractContextManager[None]]


class _Arguments(TrainingArguments):
    """What callbacks read of a trainer's arguments. Made without a look at any device."""

    settings: dict[str, Any]  # any value of a config

    def __post_init__(self) -> None:
        pass

    def to_dict(self) -> dict[str, Any]:
        """The run's settings: these are what services show beside a run."""
        return self.settings


@dataclass(slots=True)
class _Tracker:
    name: str
    callback: TrainerCallback
    num_given: int
    """Rows that it has been given."""
    finish: Callable[[], object]
    """Ends what the callback has begun and leaves open."""


class Trackers:
    """Those of a run that work. `open` before the first row, `close` after the last.

    shield: makes what every call of a tracker is inside of. Trackers have threads and locks.
    """

    def __init__(
        self,
        config: Config,
        run: Path,
        *,
        warn: Callable[[str], None] = lambda text: None,
        shield: Shield = contextlib.nullcontext,
    ) -> None:
        self._names = tuple(dict.fromkeys(config.report.trackers))
        self._run = run
        self._warn = warn
        self._shield = shield
        self._given = Given.of(run)
        self._open: list[_Tracker] = []
        self._num_rows = 0
        self._args = _Arguments(
            output_dir=str(run), run_name=self._given.name, project=_PROJECT, report_to="none"
        )
        self._args.settings = msgspec.to_builtins(config)

    def open(self, rows: Sequence[Row], *, step: int = 0) -> None:
        """Begin where the run is: at `step`, with these rows. Each tracker gets what it lacks."""
        for name in self._names:
            with self._guarded(name):
                self._open.append(self._begun(name, rows, step))
        opened = {tracker.name: tracker.num_given for tracker in self._open}
        self._given.rows |= opened
        self._given.dropped = [name for name in self._given.rows if name not in opened]
        if self._given.rows:
            self._given.write(self._run)
        for row in rows:
            self.log(row.step, row.numbers)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """Hand a row to each tracker that has not had it."""
        self._num_rows += 1
        for tracker in tuple(self._open):
            if tracker.num_given < self._num_rows:
                with self._guarded(tracker.name):
                    self._call(tracker.callback.on_log, step, logs=dict(row))
                    tracker.num_given += 1

    def close(self) -> None:
        """Let each write what it holds back."""
        for tracker in tuple(self._open):
            with self._guarded(tracker.name):
                self._call(tracker.callback.on_train_end, 0)
                tracker.finish()
        self._open.clear()

    def _begun(self, name: str, rows: Sequence[Row], step: int) -> _Tracker:
        """TensorBoard's file is cut as the run's is. A service keeps what it has been given."""
        num_given = self._given.rows.get(name, 0)
        with _environment(self._given):
            (kind,) = get_reporting_integration_callbacks([name])
            if name == TENSORBOARD:
                is_whole = self._given.has_all(name)
                num_given = sum(row.step < step for row in rows) if is_whole else 0
                callback = kind(_event_writer(self._run, purge_step=step if is_whole else 0))
            else:
                callback = kind()
            finish = _finish_of(name)
            self._call(callback.on_train_begin, step)
        return _Tracker(name, callback, num_given, finish)

    def _call(self, event: Callable[..., object], step: int, **values: object) -> None:
        event(self._args, TrainerState(global_step=step), TrainerControl(), **values)

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """What a tracker raises ends the tracker, not the run."""
        try:
            with self._shield():
                yield
        except Exception as error:  # noqa: BLE001
            self._drop(name)
            reason = one_row(f"{type(error).__name__}: {error}")
            self._warn(f"the tracker {name} failed and gets no more rows: {reason}")

    def _drop(self, name: str) -> None:
        left = [tracker for tracker in self._open if tracker.name == name]
        self._open = [tracker for tracker in self._open if tracker.name != name]
        self._given.rows |= {tracker.name: tracker.num_given for tracker in left}
        self._given.dropped = [*self._given.dropped, name]
        self._given.write(self._run)


def _finish_of(name: str) -> Callable[[], object]:
    """wandb's callback leaves its run open, and the next one of this process would go on in it."""
    module = importlib.import_module(name)
    is_open = getattr(module, "run", None) is not None  # a person's own
    finish: Callable[[], object] = module.finish if name == WANDB and not is_open else bool
    return finish


def _event_writer(run: Path, *, purge_step: int) -> Any:  # torch types it loosely
    """Events from `purge_step` on that older files hold are not read."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(run / TENSORBOARD), purge_step=purge_step)


@contextlib.contextmanager
def _environment(given: Given) -> Iterator[None]:
    """What wandb and its callback read there; a person's own names come first."""
    wanted = {
        "WANDB_PROJECT": _PROJECT,
        "WANDB_RUN_ID": given.id,
        "WANDB_RESUME": "allow",
    }
    before = {name: os.environ.get(name) for name in (*wanted, *_MODELS)}
    os.environ.update({**wanted, **os.environ, **_MODELS})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
