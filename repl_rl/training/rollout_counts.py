"""What one step's rollouts took: counts of engine, kernels and grader, and the split of the time.

RolloutCounts before the rollouts, Scored after them -> rows of metrics
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from repl_rl.runs.rollout_metrics import percentiles, rollout_metrics
from repl_rl.training.ranks import Ranks
from repl_rl.training.runtime import Runtime
from repl_rl.types import Scored


class RolloutCounts:
    """Counters as they are before a step's rollouts; latencies are those of this rank alone."""

    def __init__(self, runtime: Runtime, ranks: Ranks) -> None:
        self._runtime = runtime
        self._ranks = ranks
        runtime.waits.clear()
        self._started = time.monotonic()
        self._num_retries = runtime.num_retries
        self._guesses = runtime.guesses()
        self._num_sampled = runtime.engine.num_sampled
        self._busy_s = runtime.engine.busy_s
        self._prefix = runtime.engine.prefix_tokens

    def metrics(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The numbers of the rollouts that have ended with these trajectories, those of all ranks.

        All ranks call it; the first one has the trajectories, the others get nothing.
        """
        runtime, seconds = self._runtime, time.monotonic() - self._started
        own_sampled = runtime.engine.num_sampled - self._num_sampled
        begun, hits = (now - was for now, was in zip(runtime.guesses(), self._guesses, strict=True))
        own = (runtime.num_retries - self._num_retries, own_sampled, begun, hits)
        retries, sampled, begun, hits = map(sum, zip(*self._ranks.gather([own]), strict=True))
        if not self._ranks.is_first:
            return {}
        num_kept = sum(sum(item.trajectory.loss_mask) for item in scored)
        return {
            **rollout_metrics(scored, seconds=seconds),
            "rollout/retries": retries,
            "rollout/wasted_tokens": sampled - num_kept,
            **percentiles("kernel/start", runtime.waits.starts_ms),
            **percentiles("grader/verdict", runtime.waits.verdicts_ms),
            **self._engine(own_sampled, seconds),
            **_guess_metrics(begun, hits),
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


def _guess_metrics(begun: int, hits: int) -> dict[str, float]:
    """Metrics of speculative lines; none where none were begun."""
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
