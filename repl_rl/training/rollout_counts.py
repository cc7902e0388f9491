"""What one step's rollouts took: counts of engine, kernels and grader, and the split of the time.

RolloutCounts before the rollouts, Scored after them -> rows of metrics
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from repl_rl.runs.rollout_metrics import percentiles, rollout_metrics
from repl_rl.training.runtime import Runtime
from repl_rl.types import Scored


class RolloutCounts:
    """Counters as they are before a step's rollouts."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        runtime.waits.clear()
        self._started = time.monotonic()
        self._num_retries = runtime.num_retries
        self._guesses = runtime.guesses()
        self._num_sampled = runtime.engine.num_sampled
        self._busy_s = runtime.engine.busy_s
        self._prefix = runtime.engine.prefix_tokens

    def metrics(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The numbers of the rollouts that have ended with these trajectories."""
        runtime, seconds = self._runtime, time.monotonic() - self._started
        num_sampled = runtime.engine.num_sampled - self._num_sampled
        num_kept = sum(sum(item.trajectory.loss_mask) for item in scored)
        return {
            **rollout_metrics(scored, seconds=seconds),
            "rollout/retries": runtime.num_retries - self._num_retries,
            "rollout/wasted_tokens": num_sampled - num_kept,
            **percentiles("kernel/start", runtime.waits.starts_ms),
            **percentiles("grader/verdict", runtime.waits.verdicts_ms),
            **self._engine(num_sampled, seconds),
            **_guess_metrics(self._guesses, runtime.guesses()),
        }

    def _engine(self, num_sampled: int, seconds: float) -> dict[str, float]:
        """None of what the engine does not count, or was not asked for."""
        engine = self._runtime.engine
        busy_s = engine.busy_s - self._busy_s
        kept, asked = (
            now - was for now, was in zip(engine.prefix_tokens, self._prefix, strict=True)
        )
        return {
            "engine/idle_share": max(0.0, 1 - busy_s / seconds),
            **({"engine/tokens_per_s": num_sampled / busy_s} if busy_s else {}),
            **({"engine/prefix_hit_rate": kept / asked} if asked else {}),
        }


def _guess_metrics(before: tuple[int, int], after: tuple[int, int]) -> dict[str, float]:
    """Metrics of speculative lines between two counts; none where none were begun."""
    begun, hits = after[0] - before[0], after[1] - before[1]
    return {"speculation/guesses": begun, "speculation/hit_rate": hits / begun} if begun else {}


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
