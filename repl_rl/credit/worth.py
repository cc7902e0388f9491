"""Worth of a line: the value of the state after it, less that of the state before it.

    a trajectory, continuations of the states before its lines -> [Worth]

A value is the mean of what was sampled from a state on, as in VinePPO (arXiv:2410.01679). Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from repl_rl.records import Line, Scored

# L lines of a trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The mean outcome reward of what follows a state."""

    mean: float
    error: float | None
    """Its standard error; None where one sample tells of none, 0 where nothing is left to chance or
    all samples are equal."""
    count: int

    @classmethod
    def of(cls, outcomes: Sequence[float]) -> Value:
        count = len(outcomes)
        error = statistics.stdev(outcomes) / math.sqrt(count) if count > 1 else None
        return cls(mean=statistics.fmean(outcomes), error=error, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Worth of one line: the gain of the state after it over the one before it."""

    line: Line
    before: Value | None
    """None where that state cannot be had again, or no continuation could be scored."""
    after: Value | None

    @property
    def gain(self) -> Value | None:
        """The difference of the two, which were sampled apart."""
        if self.before is None or self.after is None:
            return None
        before, after = self.before.error, self.after.error
        return Value(
            mean=self.after.mean - self.before.mean,
            error=None if before is None or after is None else math.hypot(after, before),
            count=min(self.after.count, self.before.count),
        )


def outcomes_after(made: Sequence[Scored]) -> dict[int, list[float]]:
    """Outcomes of continuations by the number of lines that they keep, their `group_index`.

    One that could not be scored is left out, and so is one that had to begin at the prompt.
    """
    outcomes: dict[int, list[float]] = {}
    for one in made:
        trajectory, outcome = one.trajectory, one.reward.outcome_reward
        at = trajectory.group_index
        is_there = at == 0 or trajectory.branch is not None
        if is_there and outcome is not None:
            outcomes.setdefault(at, []).append(outcome)
    return outcomes


def worths(scored: Scored, made: Sequence[Scored]) -> list[Worth]:
    """Worth of each line, [L], by the continuations `made` of the states before them."""
    outcomes = outcomes_after(made)
    lines, own = scored.trajectory.lines, scored.reward.outcome_reward
    values = [Value.of(outcomes[at]) if at in outcomes else None for at in range(len(lines))]
    values.append(None if own is None else Value(mean=own, error=0.0, count=1))
    return [
        Worth(line=line, before=values[at], after=values[at + 1]) for at, line in enumerate(lines)
    ]
