"""Groups that branch: some of a group's rollouts leave others of it at one of their lines.

    Attempts of whole groups, factors -> roots, then attempts with stems -> Scored -> all rows

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
from typing import Protocol

from repl_rl.rollout.stems import can_leave
from repl_rl.rollout.volatile import kernel_sources, volatile_lines
from repl_rl.seeds import derive_seed
from repl_rl.transcript.format import problem_sources
from repl_rl.types import Attempt, Scored, Stem

More = Callable[[Scored], Sequence[Attempt]]


class Run(Protocol):
    """Rolls attempts out, and those that `more` asks for when one has ended."""

    def __call__(self, attempts: Sequence[Attempt], *, more: More) -> list[Scored]: ...


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

    def leaving(scored: Scored) -> list[Attempt]:
        """Who leaves this one, at each of the levels below its own."""
        trajectory = scored.trajectory
        group, slot = trajectory.group_index, trajectory.sibling_index
        own = next(level for level, stride in enumerate(strides) if slot % stride == 0)
        at, wanted = trajectory.num_copied_lines, list[Attempt]()
        for level in range(own + 1, len(strides)):
            found = _place(scored, at, derive_seed(slots[group, slot].seed, "leave", level), setup)
            if found is None:
                break  # it ended before, so no level below leaves it either
            at, stem = found, Stem(trajectory=trajectory, num_lines=found)
            wanted += [
                replace(slots[group, slot + step], stem=stem)
                for step in range(strides[level], strides[level - 1], strides[level])
            ]
        return wanted

    roots = [one for one in attempts if one.sibling_index % strides[0] == 0]
    made = {
        (one.trajectory.group_index, one.trajectory.sibling_index): one
        for one in run(roots, more=leaving)
    }
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
