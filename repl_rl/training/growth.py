"""Groups that branch: some of a group's rollouts leave others of it at one of their lines.

    Attempts of whole groups, factors -> level by level: attempts with stems -> Scored -> all rows

Where a rollout is left, a coin says at each of its states, in order, until one is taken. So the
place depends on what stands before it alone: whoever goes on from there is like any other that
does, the first one too. A choice among the lines of the whole trajectory would not be: long ones
would be left at other places than short ones (see `credit.tree`). Knows attempts and lines. Does
not know models or the update.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from repl_rl.rollout.stems import can_leave
from repl_rl.rollout.volatile import kernel_sources, volatile_lines
from repl_rl.seeds import derive_seed
from repl_rl.transcript.format import problem_sources
from repl_rl.types import Attempt, Scored, Stem

Run = Callable[[Sequence[Attempt]], list[Scored]]

_TAKEN = 0.5
"""How likely a state is left, of those that can be and come before a trajectory's end."""


def grow(
    attempts: Sequence[Attempt], factors: Sequence[int], run: Run, *, setup: Sequence[str]
) -> list[Scored]:
    """A row for each attempt, in their order; `factors` are those of `grpo.branching`.

    Attempts are those of whole groups, with as many siblings as the factors' product. A sibling's
    index is its slot: with [4, 2, 2] slots 0, 4, 8 and 12 begin at the prompt, 2 leaves 0, and 1
    leaves 0 as well, later. A trajectory that ends before it is left stands in the slots of all
    that would have left it, as the very same object. `setup` is what kernels ran before a problem's
    own sources.
    """
    strides = [*itertools.accumulate(factors[:0:-1], lambda a, b: a * b, initial=1)][::-1]
    slots = {(one.group_index, one.sibling_index): one for one in attempts}
    made: dict[tuple[int, int], Scored] = {}
    left_at: dict[tuple[int, int], int] = {}
    wanted = [one for one in attempts if one.sibling_index % strides[0] == 0]
    for level, stride in enumerate(strides):
        if level:
            wanted = []
            for (group, slot), parent in sorted(made.items(), key=lambda pair: pair[0]):
                own = slots[group, slot]
                seed = derive_seed(own.seed, "leave", level)
                at = _place(parent, left_at[group, slot], seed, setup)
                # Once it was not left in time it never is: that it had ended was to come.
                left_at[group, slot] = len(parent.trajectory.lines) if at is None else at
                if at is None:
                    continue
                stem = Stem(trajectory=parent.trajectory, num_lines=at)
                wanted += [
                    replace(slots[group, slot + step], stem=stem)
                    for step in range(stride, strides[level - 1], stride)
                ]
        for attempt, scored in zip(wanted, run(wanted), strict=True):
            key = attempt.group_index, attempt.sibling_index
            made[key], left_at[key] = scored, scored.trajectory.num_copied_lines
    return [_of_slot(made, one, strides) for one in attempts]


def distinct(scored: Sequence[Scored]) -> list[Scored]:
    """Each trajectory once, in their order."""
    found = {(one.trajectory.group_index, one.trajectory.sibling_index): one for one in scored}
    return list(found.values())


def tree_metrics(scored: Sequence[Scored], factors: Sequence[int]) -> dict[str, float]:
    """How large the groups of a step came out, and how many branches began at the prompt."""
    num_groups = len({one.trajectory.group_index for one in scored})
    if not num_groups:
        return {}
    num_roots = sum(one.trajectory.branch is None for one in scored)
    return {
        "group/leaves": len(scored) / num_groups,
        "group/stems_lost": num_roots - num_groups * factors[0],
    }


def _place(scored: Scored, start: int, seed: int, setup: Sequence[str]) -> int | None:
    """How many lines are kept where it is left, more than `start`; None where it ended before."""
    trajectory, coin = scored.trajectory, random.Random(seed)
    sources = (*setup, *problem_sources(scored.problem))
    reasons_L = volatile_lines(kernel_sources(trajectory.lines), setup=sources)
    for at in range(start + 1, len(trajectory.lines)):
        is_fit = can_leave(trajectory, at) and not any(reasons_L[:at])
        if is_fit and coin.random() < _TAKEN:
            return at
    return None


def _of_slot(
    made: dict[tuple[int, int], Scored], attempt: Attempt, strides: Sequence[int]
) -> Scored:
    """What was made for a slot, or the one that nobody has left in time."""
    slot = attempt.sibling_index
    for stride in reversed(strides):
        key = attempt.group_index, slot - slot % stride
        if key in made:
            return made[key]
    raise AssertionError("a tree begins at slot 0")
