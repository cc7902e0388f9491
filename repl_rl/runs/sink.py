"""Sink of a run's rows of metrics: its own file first, then every tracker of `report.trackers`.

    step, numbers -> metrics.jsonl, TensorBoard, wandb, trackio

A tracker gets the rows of this process and no earlier ones. One that fails is dropped with a
warning. Keeps the run's clock. Does not know what the numbers are.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

import msgspec

from repl_rl.base.terminal import one_row
from repl_rl.config import Config
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.metrics import read_rows

TENSORBOARD = "tensorboard"

Shield = Callable[[], contextlib.AbstractContextManager[None]]


def check_trackers(names: Sequence[str]) -> None:
    """ConfigError for a tracker that is not installed."""
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:  # a tracker's own folder of logs has no origin
            raise ConfigError(f"report.trackers: {name} is not installed: pip install {name}")


class _Tracker(Protocol):
    def log(self, step: int, row: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class _TensorBoard:
    """Events in `RUN/tensorboard`. Those beyond `step` that older files hold are not read."""

    def __init__(self, run: Path, *, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run / TENSORBOARD), purge_step=step + 1)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Service:
    """wandb, or trackio, which has its functions: a run there for each process, one group a run."""

    def __init__(self, service: ModuleType, config: Config, run: Path) -> None:
        before = getattr(service, "run", None)
        name = run.absolute().name
        self._run = service.init(
            project=os.environ.get("WANDB_PROJECT", "repl-rl"),
            group=name,
            name=f"{name}-{secrets.token_hex(4)}",
            config=msgspec.to_builtins(config),
        )
        self._is_ours = self._run is not before  # else it is a person's own, and stays open

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        if self._is_ours:
            self._run.finish()


def _begun(name: str, config: Config, run: Path, *, step: int) -> _Tracker:
    if name == TENSORBOARD:
        return _TensorBoard(run, step=step)
    return _Service(importlib.import_module(name), config, run)


class Sink:
    """Writes rows, whose steps never fall; each gets `wall_s`, the seconds of the run so far."""

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        *,
        warn: Callable[[str], None],
        shield: Shield = contextlib.nullcontext,
        step: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on after the rows that the folder of a run at `step` holds.

        shield: makes what every call of a tracker is inside of. Trackers have threads and locks.
        """
        rows = list(read_rows(folder.path))
        self.folder = folder
        """Folder of the run. Whoever has the sink writes everything else that belongs there."""
        self._warn, self._shield, self._clock = warn, shield, clock
        self._step = max((row.step for row in rows), default=0)
        self._began = clock() - max((row.numbers.get("wall_s", 0.0) for row in rows), default=0.0)
        self._trackers: dict[str, _Tracker] = {}
        for name in dict.fromkeys(config.report.trackers):
            with self._guarded(name):
                self._trackers[name] = _begun(name, config, folder.path, step=step)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        """Let each tracker write what it holds back."""
        for name, tracker in tuple(self._trackers.items()):
            with self._guarded(name):
                tracker.close()

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a row. Raises StorageError where the disk refuses it; trackers never raise."""
        assert step >= self._step, f"a row of step {step} after one of step {self._step}"
        self._step = step
        row = {**numbers, "wall_s": self._clock() - self._began}
        self.folder.append_metrics(step, row)
        named = {_tracked_name(name): value for name, value in row.items()}
        for name, tracker in tuple(self._trackers.items()):
            with self._guarded(name):
                tracker.log(step, named)

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Let an error of a tracker end the tracker, not the run."""
        try:
            with self._shield():
                yield
        except Exception as error:  # noqa: BLE001
            self._trackers.pop(name, None)
            reason = one_row(f"{type(error).__name__}: {error}")
            self._warn(f"the tracker {name} failed and gets no more rows: {reason}")


def _tracked_name(name: str) -> str:
    return f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}"
