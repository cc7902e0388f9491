"""Held-out problems, measured between updates: one rate for each step that is asked for.

    step -> Scored -> trajectories/eval-NNNNNN.jsonl, a row of metrics.jsonl, a Report

Knows a run's folder and its runtime. Does not know the update.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from repl_rl.interrupts import Interrupts
from repl_rl.progress import Progress
from repl_rl.runs.folder import evaluation_name
from repl_rl.runs.rollout_metrics import habits
from repl_rl.runs.sink import Sink
from repl_rl.runs.summary import NO_BASELINES, Baselines
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.training.evaluate import Report, report, run_shown, warn_of_ungraded
from repl_rl.training.ranks import ALONE, Ranks
from repl_rl.training.runtime import Runtime
from repl_rl.types import Attempt, Scored


class HeldOut:
    """The measurements of one run. A step that is on record already is read back.

    `rates` are those on record, by their steps. `keep_best` is called after each measurement that
    beats all earlier ones, the weights of the start apart. Each of several ranks samples its share;
    the first has the `sink`, and gets the rows of all.
    """

    def __init__(
        self,
        attempts: Sequence[Attempt],
        runtime: Runtime,
        progress: Progress,
        *,
        sink: Sink | None,
        interrupts: Interrupts,
        rates: Mapping[int, float] = MappingProxyType({}),
        keep_best: Callable[[], None] | None = None,
        ranks: Ranks = ALONE,
        baselines: Baselines = NO_BASELINES,
    ) -> None:
        self._baselines = baselines
        self._attempts = attempts
        self._runtime = runtime
        self._progress = progress
        self._sink = sink
        self._interrupts = interrupts
        self._rates = dict(rates)
        self._keep_best = keep_best
        self._ranks = ranks

    def measure(self, step: int) -> Report | None:
        """The solve rate after so many updates, one trajectory for each problem.

        None where there is no problem: nothing is measured, and nothing is written. None as well
        where a measurement is on record and somebody has taken its file away.
        """
        if not self._attempts:
            return None
        name = evaluation_name(step)
        if step not in self._rates:
            scored = self._sample(step, name)
        elif self._sink is not None and (file := self._sink.folder.trajectories(name)).exists():
            scored = list(read_trajectories(file))
        else:
            scored = []
        return self._ranks.from_first(report(scored, self._baselines) if scored else None)

    def _sample(self, step: int, name: str) -> list[Scored]:
        """The rows of all ranks, for the first one."""
        started = time.monotonic()
        own, title = self._ranks.share(self._attempts), f"held-out, step {step}"
        sampled = self._interrupts.stoppable(
            lambda: run_shown(self._runtime, own, title, self._progress)
        )
        scored = self._ranks.gather_first(sampled or [])
        self._interrupts.release()
        if self._sink is not None:
            self._sink.folder.append_trajectories(name, scored)
            self._record(self._sink, step, scored, seconds=time.monotonic() - started)
        return scored

    def _record(self, sink: Sink, step: int, scored: Sequence[Scored], *, seconds: float) -> None:
        """The weights are kept first: once the row is there, the measurement is not made again."""
        warn_of_ungraded(scored, self._progress)
        found = report(scored).all
        if self._keep_best is not None and self._is_best(step, found.rate):
            self._keep_best()
        self._rates[step] = found.rate
        sink.write(
            step,
            {
                "eval_solve_rate": found.rate,
                "eval_total": found.total,
                "eval_ungraded": found.ungraded,
                **{f"eval_{name}": value for name, value in habits(scored).items()},
                "eval_runtime": seconds,
            },
        )

    def _is_best(self, step: int, rate: float) -> bool:
        return step > 0 and all(rate > found for at, found in self._rates.items() if at > 0)
