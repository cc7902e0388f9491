"""Ledger of a trajectory: what each line earned, its share of the update, and its worth.

    scored (B), advantages (B, T) -> Ledger; sums of one process -> metrics of all
    a trajectory, continuations of the states before its lines -> [Worth]

A line's worth is the value of the state after it, less that of the state before it. A value is the
mean of what was sampled from a state on, as in VinePPO (arXiv:2410.01679).

Pure. Does not know how advantages are made, nor screens.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repl_rl.credit.advantages import distinct
from repl_rl.records import Line, OutcomeKind, Scored

# B trajectories, T completion tokens of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line's row."""

    line: Line
    reward: float
    advantage: float
    """Advantage of each of its tokens."""
    share: float
    """Share of the group's gradient mass: |advantage| summed over its tokens, over the group's
    sum."""

    @property
    def num_tokens(self) -> int:
        return self.line.stop - self.line.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One trajectory's rows."""

    scored: Scored
    entries: tuple[Entry, ...]  # [L]
    num_siblings: int
    """Trajectories of its group, itself among them."""

    @property
    def mass(self) -> float:
        """|advantage| summed over its sampled tokens; 0 where it has no gradient."""
        return math.fsum(abs(entry.advantage) * entry.num_tokens for entry in self.entries)

    @property
    def share(self) -> float:
        return math.fsum(entry.share for entry in self.entries)


def ledgers(scored: Sequence[Scored], advantages_BT: Sequence[Sequence[float]]) -> list[Ledger]:
    """One for each trajectory, in their order. Shares are 0 in a group without a gradient.

    Example: two siblings of one line each, 10 and 30 tokens, advantages 1 and -1: the shares are
    0.25 and 0.75.
    """
    masses: defaultdict[int, float] = defaultdict(float)
    sizes: Counter[int] = Counter()
    for item, advantages_T in zip(scored, advantages_BT, strict=True):
        sizes[item.trajectory.group_index] += 1
        masses[item.trajectory.group_index] += math.fsum(map(abs, advantages_T))
    return [
        Ledger(
            scored=item,
            entries=_entries(item, advantages_T, masses[item.trajectory.group_index]),
            num_siblings=sizes[item.trajectory.group_index],
        )
        for item, advantages_T in zip(scored, advantages_BT, strict=True)
    ]


def _entries(scored: Scored, advantages_T: Sequence[float], mass: float) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            line=line,
            reward=reward,
            advantage=advantages_T[line.start],
            share=math.fsum(map(abs, advantages_T[line.start : line.stop])) / mass if mass else 0.0,
        )
        for line, reward in zip(scored.trajectory.lines, scored.reward.line_rewards, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageSums:
    """Sums of advantages over the trajectories of one process; sums of several processes add up."""

    num_tokens: int
    """Sampled ones."""
    total: float
    """Sum of their advantages."""
    by_kind: Mapping[OutcomeKind, float]
    """Sum of absolute advantages of the tokens of its lines."""


def advantage_sums(scored: Sequence[Scored], rows: Sequence[Sequence[float]]) -> AdvantageSums:
    """Sums over `scored` [B], whose tokens have the advantages `rows` [B][T].

    One that stands here again has the advantages 0 the second time, and counts once.
    """
    by_kind = dict.fromkeys(OutcomeKind, 0.0)
    for item, row_T in zip(scored, rows, strict=True):
        for line in item.trajectory.lines:
            by_kind[line.outcome.kind] += math.fsum(map(abs, row_T[line.start : line.stop]))
    return AdvantageSums(
        num_tokens=sum(item.trajectory.num_sampled for item in distinct(scored)),
        total=math.fsum(map(math.fsum, rows)),
        by_kind=by_kind,
    )


def advantage_metrics(parts: Sequence[AdvantageSums]) -> dict[str, float]:
    """Metrics of all processes together; a step without any advantage has 0 everywhere."""
    masses = {kind: math.fsum(part.by_kind[kind] for part in parts) for kind in OutcomeKind}
    whole = math.fsum(masses.values()) or 1.0
    num_tokens = sum(part.num_tokens for part in parts) or 1
    return {
        # The loss of a token is minus its advantage: the ratio of policies is 1.
        "mean_adv_loss": 0.0 - math.fsum(part.total for part in parts) / num_tokens,
        **{f"line/{kind}/adv_mass": mass / whole for kind, mass in masses.items()},
    }


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
    """None where that state cannot be restored, or no continuation could be scored."""
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
