"""What one step's rollouts took: counts of engine, kernels and grader, and the split of the time.

RolloutCounts before the rollouts, Scored after them -> rows of metrics
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repl_rl.runs.rollout_metrics import percentiles, rollout_metrics
from repl_rl.training.ranks import Ranks
from repl_rl.training.runtime import Runtime
from repl_rl.types import Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """What the rollouts of one rank took."""

    seconds: float
    num_retries: int
    num_sampled: int
    busy_s: float
    """With a line in flight."""
    prefix: tuple[int, int]
    """(tokens that needed no forward, tokens that lines were asked for after)."""
    starts_ms: Sequence[float]
    verdicts_ms: Sequence[float]


class RolloutCounts:
    """Counters as they are before a step's rollouts."""

    def __init__(self, runtime: Runtime, ranks: Ranks) -> None:
        self._runtime = runtime
        self._ranks = ranks
        runtime.waits.clear()
        self._started = time.monotonic()
        self._num_retries = runtime.num_retries
        self._num_sampled = runtime.engine.num_sampled
        self._busy_s = runtime.engine.busy_s
        self._prefix = runtime.engine.prefix_tokens

    def metrics(self, scored: Sequence[Scored], shares: Sequence[float]) -> dict[str, float]:
        """The numbers of the rollouts that have ended with these trajectories, those of all ranks.

        `shares` are those of `Credit.shares`.

        All ranks call it; the first one has the trajectories, the others get nothing.
        """
        seconds = time.monotonic() - self._started
        made = self._ranks.gather_first([self._own(seconds)])
        if not self._ranks.is_first:
            return {}
        num_kept = sum(item.trajectory.num_sampled for item in scored)
        return {
            **rollout_metrics(scored, seconds=seconds, weights=shares),
            "rollout/retries": sum(one.num_retries for one in made),
            "rollout/wasted_tokens": sum(one.num_sampled for one in made) - num_kept,
            **percentiles("kernel/start", [ms for one in made for ms in one.starts_ms]),
            **percentiles("grader/verdict", [ms for one in made for ms in one.verdicts_ms]),
            **_engine_metrics(made),
        }

    def _own(self, seconds: float) -> _Counts:
        runtime, engine = self._runtime, self._runtime.engine
        return _Counts(
            seconds=seconds,
            num_retries=runtime.num_retries - self._num_retries,
            num_sampled=engine.num_sampled - self._num_sampled,
            busy_s=engine.busy_s - self._busy_s,
            prefix=_since(self._prefix, engine.prefix_tokens),
            starts_ms=runtime.waits.starts_ms,
            verdicts_ms=runtime.waits.verdicts_ms,
        )


def _since(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    return after[0] - before[0], after[1] - before[1]


def _engine_metrics(made: Sequence[_Counts]) -> dict[str, float]:
    """Of the engines of all ranks. None of what they do not count, or were not asked for."""
    busy_s = sum(one.busy_s for one in made)
    kept, asked = map(sum, zip(*(one.prefix for one in made), strict=True))
    speeds = [one.num_sampled / one.busy_s for one in made if one.busy_s]
    return {
        "engine/idle_share": max(0.0, 1 - busy_s / sum(one.seconds for one in made)),
        **({"engine/tokens_per_s": sum(speeds)} if speeds else {}),
        **({"engine/prefix_hit_rate": kept / asked} if asked else {}),
    }


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
