"""Growth of trees: some of a group's rollouts leave others of it at one of their lines.

    Attempts of whole groups, factors -> roots, then attempts with stems -> Scored -> all rows

Where a rollout is left, a coin says at each of its states that can be had again, as it comes to it,
until one is taken: whoever leaves it there is asked for at once. So the place depends on what
stands before it alone, and all that go on from there are alike, the first one too. A choice among
the lines of the whole trajectory would not be: long ones would be left at other places than short
ones (see `edges`). Knows attempts and lines. Does not know sources, models or the update.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

from repl_rl.base.concurrency import derive_seed
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.base import Run
from repl_rl.records import Attempt, Scored, Stem, Trajectory


def grow(attempts: Sequence[Attempt], config: GRPOConfig, run: Run) -> list[Scored]:
    """A row for each attempt, in their order, with the factors of `grpo.branching`.

    Attempts are those of whole groups, with as many siblings as the factors' product. A sibling's
    index is its slot: with [4, 2, 2] slots 0, 4, 8 and 12 begin at the prompt, 2 leaves 0, and 1
    leaves 0 as well, later. A trajectory that ends before it is left stands in the slots of all
    that would have left it, as the very same object.
    """
    growth = _Growth(attempts, config)
    roots = [one for one in attempts if one.sibling_index % growth.strides[0] == 0]
    made = _by_slot(run(roots, more=growth.leaving))
    return [_of_slot(made, one, growth.strides) for one in attempts]


class _Growth:
    """Plan of the branches of a step: it says who leaves a trajectory under way, state by state."""

    def __init__(self, attempts: Sequence[Attempt], config: GRPOConfig) -> None:
        products = itertools.accumulate(config.branching[:0:-1], lambda a, b: a * b, initial=1)
        self.strides = [*products][::-1]
        """Of each level, how far apart its slots lie."""
        self._probability = config.branch_probability
        self._slots = {(one.group_index, one.sibling_index): one for one in attempts}
        self._left: dict[tuple[int, int], tuple[int, int]] = {}
        """Of each slot: the level that leaves it next, and the lines behind which it was left."""

    def leaving(self, so_far: Trajectory) -> list[Attempt]:
        """Return the attempts that leave this one where it stands: the next level's, or none."""
        key, at = (so_far.group_index, so_far.sibling_index), len(so_far.lines)
        level, last = self._left.get(key, (self._own_level(so_far.sibling_index) + 1, 0))
        # One that begins again, because its kernel was lost, comes to the same states again.
        if level == len(self.strides) or at <= last:
            return []
        attempt = self._slots[key]
        coin = random.Random(derive_seed(attempt.seed, "leave", level, at)).random()
        if coin >= self._probability:
            return []
        self._left[key] = level + 1, at
        return self._with_stem(Stem(trajectory=so_far, num_lines=at), level)

    def _with_stem(self, stem: Stem, level: int) -> list[Attempt]:
        """All of a level that leave the trajectory of `stem`."""
        group, slot = stem.trajectory.group_index, stem.trajectory.sibling_index
        steps = range(self.strides[level], self.strides[level - 1], self.strides[level])
        return [replace(self._slots[group, slot + step], stem=stem) for step in steps]

    def _own_level(self, slot: int) -> int:
        return next(level for level, stride in enumerate(self.strides) if slot % stride == 0)


def _by_slot(scored: Sequence[Scored]) -> dict[tuple[int, int], Scored]:
    """Trajectories by group and slot, without any whose stem was written otherwise by one that
    began again."""
    made: dict[tuple[int, int], Scored] = {}
    for one in sorted(scored, key=lambda one: one.trajectory.sibling_index):  # who is left is first
        trajectory = one.trajectory
        if (branch := trajectory.branch) is not None:
            other = made.get((trajectory.group_index, branch.sibling_index))
            copied = trajectory.completion_ids[: trajectory.num_copied]
            if other is None or other.trajectory.completion_ids[: len(copied)] != copied:
                continue
        made[trajectory.group_index, trajectory.sibling_index] = one
    return made


def _of_slot(
    made: dict[tuple[int, int], Scored], attempt: Attempt, strides: Sequence[int]
) -> Scored:
    """Return the trajectory made for a slot, or the one that nobody has left in time."""
    slot = attempt.sibling_index
    for stride in reversed(strides):
        key = attempt.group_index, slot - slot % stride
        if key in made:
            return made[key]
    raise AssertionError("a tree begins at slot 0")
