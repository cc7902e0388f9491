"""Counts of what the rollouts and the parts of a step take.

    counters before, counters after -> Taken of each rank -> a row of metrics
    seconds of a step -> parts of it

Rollouts may be made in a thread beside the update of the step before, so what they took is read
where they end. Knows a runtime's counters. Does not know folders, problems or the update.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from repl_rl.records import Scored
from repl_rl.runs.metrics import percentiles, rollout_metrics
from repl_rl.training.runtime import Runtime


class Laps:
    """A clock that always counts for one part, from the first `begin` on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._part: str | None = None
        self._since = 0.0
        self._seconds: dict[str, float] = {}

    def begin(self, part: str) -> None:
        """Count the time from here on for `part`."""
        now = self._clock()
        if self._part is not None:
            self._seconds[self._part] = self._seconds.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now

    def take(self, then: str) -> dict[str, float]:
        """Seconds by part since the last `take`; what follows goes to `then`."""
        self.begin(then)
        taken, self._seconds = self._seconds, {}
        return taken


class _Counters(NamedTuple):
    """Counters of one rank, or how far rollouts have moved them."""

    seconds: float
    num_retries: int
    num_sampled: int
    busy_s: float
    """With a line in flight."""
    num_shared: int
    """Tokens before lines that needed no forward."""
    num_before: int
    """Tokens that lines were asked for after."""


def _counters(runtime: Runtime) -> _Counters:
    engine = runtime.engine
    retries = runtime.runner.num_retries
    return _Counters(
        time.monotonic(), retries, engine.num_sampled, engine.busy_s, *engine.prefix_tokens
    )


@dataclass(frozen=True, slots=True)
class Taken:
    """Counts of what the rollouts of one rank have taken."""

    counters: _Counters
    starts_ms: list[float]
    verdicts_ms: list[float]
    shares: tuple[float, float]
    """Shares as `Waits.shares` gives them."""


def taken_metrics(
    takens: Sequence[Taken], scored: Sequence[Scored], shares: Sequence[float]
) -> dict[str, float]:
    """The numbers of the rollouts that have ended with these trajectories.

    `takens` are of all ranks, the first one's first. `shares` are those of `Credit.shares`.
    """
    counts = [one.counters for one in takens]
    total = _Counters(*map(sum, zip(*counts, strict=True)))
    num_tokens = sum(item.trajectory.num_sampled for item in scored)
    speeds = [one.num_sampled / one.busy_s for one in counts if one.busy_s]
    starts_ms = [ms for one in takens for ms in one.starts_ms]
    verdicts_ms = [ms for one in takens for ms in one.verdicts_ms]
    row = {
        **rollout_metrics(scored, seconds=counts[0].seconds, weights=shares),
        "rollout/retries": total.num_retries,
        "rollout/wasted_tokens": total.num_sampled - num_tokens,
        **percentiles("kernel/start", starts_ms),
        **percentiles("grader/verdict", verdicts_ms),
        "engine/idle_share": max(0.0, 1 - total.busy_s / total.seconds),
    }
    if speeds:  # none of an engine that was not asked, nor prefixes of one that counts none
        row["engine/tokens_per_s"] = sum(speeds)
    if total.num_before:
        row["engine/prefix_hit_rate"] = total.num_shared / total.num_before
    return row


class RolloutCounts:
    """Counters as they are before a step's rollouts."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        runtime.runner.waits.clear()
        self._before = _counters(runtime)

    def taken(self) -> Taken:
        """Return how far the rollouts since then have moved them."""
        waits = self._runtime.runner.waits
        return Taken(
            _Counters(*map(operator.sub, _counters(self._runtime), self._before)),
            waits.starts_ms,
            waits.verdicts_ms,
            waits.shares(),
        )


def time_metrics(
    spent: Mapping[str, float], kernel_share: float, grading_share: float
) -> dict[str, float]:
    """Seconds of a step by what they went into; they add up to all of `spent`.

    Rollouts overlap: one trajectory is sampled while the kernel of another is at work. So the time
    of the rollouts is divided as their trajectories' own times are, taken together.
    """
    rollouts = spent.get("rollout", 0.0)
    kernel, grading = rollouts * kernel_share, rollouts * grading_share
    return {
        "time/rollout": rollouts - kernel - grading,
        "time/kernel": kernel,
        "time/grading": grading,
        **{f"time/{part}": spent.get(part, 0.0) for part in ("sync", "update", "other")},
    }
