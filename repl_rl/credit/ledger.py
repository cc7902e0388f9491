"""Where a trajectory's gradient comes from: what each line earned, and its share of the update.

    scored (B), advantages (B, T) -> Ledger

Pure. Does not know how advantages are made, nor screens.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from repl_rl.types import Line, Scored

# B trajectories, T completion tokens of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line's row."""

    line: Line
    reward: float
    advantage: float
    """Of each of its tokens."""
    share: float
    """Of the group's gradient mass: |advantage| summed over its tokens, over the group's sum."""

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
