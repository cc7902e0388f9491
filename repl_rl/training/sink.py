"""The one place where a run's rows of metrics go: its file first, then every tracker.

    step, numbers -> metrics.jsonl, trackers

Keeps the run's clock. Does not know what the numbers are.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from repl_rl.config import Config
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.metrics import read_rows
from repl_rl.training.trackers import Shield, Trackers


class Sink:
    """Writes rows, whose steps never fall; each gets `wall_s`, the seconds of the run so far."""

    def __init__(
        self,
        folder: RunFolder,
        trackers: Trackers,
        *,
        step: int = 0,
        wall_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        """Of the run. What else belongs there is written by whoever has the sink."""
        self._trackers = trackers
        self._step = step
        self._clock = clock
        self._began = clock() - wall_s

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a row. Raises StorageError where the disk refuses it; trackers never raise."""
        assert step >= self._step, f"a row of step {step} after one of step {self._step}"
        self._step = step
        row = {**numbers, "wall_s": self._clock() - self._began}
        self.folder.append_metrics(step, row)
        self._trackers.log(step, row)


@contextlib.contextmanager
def open_sink(
    folder: RunFolder,
    config: Config,
    *,
    warn: Callable[[str], None],
    shield: Shield = contextlib.nullcontext,
    step: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Sink]:
    """The sink of a run that is at `step`, after the rows that its folder holds.

    `shield` is the trackers': see `Trackers`.
    """
    rows = list(read_rows(folder.path))
    trackers = Trackers(config, folder.path, warn=warn, shield=shield)
    trackers.open(rows, step=step)
    wall_s = max((row.numbers.get("wall_s", 0.0) for row in rows), default=0.0)
    last = max((row.step for row in rows), default=0)
    try:
        yield Sink(folder, trackers, step=last, wall_s=wall_s, clock=clock)
    finally:
        trackers.close()
