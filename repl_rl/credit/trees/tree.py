"""Credit by trees: `grpo.credit = "tree"`.

    Attempts -> groups, grown at states that a coin chooses -> `edges` -> advantages of lines

Knows which settings trees do not go with. Does not know trainers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from repl_rl.base.concurrency import derive_seed
from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.base import Credit, Run, is_silent
from repl_rl.credit.trees.edges import Edge, tree_edges
from repl_rl.errors import ConfigError
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
        """Distance between the slots of each level."""
        self._probability = config.branch_probability
        self._slots = {(one.group_index, one.sibling_index): one for one in attempts}
        self._left: dict[tuple[int, int], tuple[int, int]] = {}
        """The level that leaves each slot next, and the lines behind which it was left."""

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


_MASKS = ("mask_truncated_completions", "off_policy_mask_threshold")
_TAKES_SHARED = "takes the lines of a trajectory out of the loss that others share"
_WHOLE = "what a trajectory shares with others is in the row of one of them"
_LOSSES = {
    "vespo": f"weighs a trajectory whole: {_WHOLE}",
    **dict.fromkeys(("grpo", "sapo", "bnpo"), f"divides by a row's tokens: {_WHOLE}"),
}
"""Losses that trees do not take."""


class Tree(Credit):
    r"""Groups that branch, with the advantage of every line; 0 for lines that are copies.

        A[i, k] = w[i, k] * ((V[edge] - mean V[others]) / (std R + eps) + weight * (r[i, k] - b))

    Values are those of `tree_edges`, and so are weights, times the siblings that `branching` has
    for each trajectory from the prompt. The weights of a group that branches everywhere are so 1 at
    its leaves, as in one without branches, and sum to its size at the prompt. b is the mean of line
    rewards r by these weights, each line once. With scale "none" and `weight` 0 the expected update
    is the gradient of E[R]; line rewards add what they do in `LineLocal`.

    A sibling that stands here again counts once, and gets 0 the second time. An unscorable one gets
    0 and is part of no value. A group that `is_silent` gets 0 everywhere.
    """

    takes_potential = False

    def roll_out(self, attempts: Sequence[Attempt], run: Run) -> list[Scored]:
        return grow(attempts, self.config, run)

    def shares(self, scored: Sequence[Scored]) -> list[float]:
        """Weights as in `Credit.shares`, of siblings that stand together, scored or not.

        Long trajectories are left more often, so a tree has too many long ends. With these weights
        a mean over ends is expected to be that over rollouts of their own, whose weights are 1: one
        of two rollouts, and one that left it, have a half each.
        """
        groups = groupby(scored, key=lambda one: one.trajectory.group_index)
        edges = (tree_edges(list(group), as_scored=True) for _, group in groups)
        return [own[-1].weight for edges_GE in edges for own in edges_GE]

    def metrics(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Metrics of the size of a step's groups, and of branches that began at the prompt."""
        num_groups = len({one.trajectory.group_index for one in scored}) or 1
        num_roots = sum(one.trajectory.branch is None for one in scored)
        return {
            "group/leaves": len(scored) / num_groups,
            "group/stems_lost": num_roots - num_groups * self.config.branching[0],
        }

    def line_advantages(self, siblings: Sequence[Scored], scale: float) -> list[list[float]]:
        rows = [[0.0] * len(one.reward.line_rewards) for one in siblings]
        if is_silent(siblings):
            return rows
        own = [
            (at, line, edge, siblings[at].reward.line_rewards[line])
            for at, line, edge in _own_lines(siblings)
        ]
        total = math.fsum(edge.weight for *_, edge, _ in own)
        weight = self.config.line_credit_weight
        mean = math.fsum(r * edge.weight for *_, edge, r in own) / total if total else 0.0
        for at, line, edge, r in own:
            value = edge.advantage / scale + weight * (r - mean)
            rows[at][line] = self._num_siblings * edge.weight * value
        return rows

    def line_weights(self, siblings: Sequence[Scored]) -> list[list[float]]:
        rows = [[0.0] * len(one.reward.line_rewards) for one in siblings]
        for at, line, edge in _own_lines(siblings, as_scored=True):
            rows[at][line] = self._num_siblings * edge.weight
        return rows

    @property
    def _num_siblings(self) -> int:
        return math.prod(self.config.branching[1:])

    def check(self, config: Config, *, samples_lines: bool) -> None:
        super().check(config, samples_lines=samples_lines)
        grpo, factors, name = config.grpo, config.grpo.branching, config.grpo.credit
        if len(factors) < 2 or min(factors) < 1 or factors[0] < 2:
            raise ConfigError(
                f"grpo.credit = {name!r} with grpo.branching = {list(factors)}; expected such as "
                f"[4, 2, 2]: 4 trajectories, each left by one other, and again"
            )
        if (size := math.prod(factors)) != grpo.group_size:
            raise ConfigError(
                f"grpo.branching = {list(factors)} makes groups of {size}; expected "
                f"grpo.group_size = {size}, not {grpo.group_size}"
            )
        for requirement, is_fit in (
            ("sampling.sampler = 'lines'", samples_lines),
            ("sampling.max_think_tokens = 0", not config.sampling.max_think_tokens),
            ("grpo.rerolls = 0", not grpo.rerolls),
            *((f"no trl.{one}, which {_TAKES_SHARED}", not config.trl.get(one)) for one in _MASKS),
            *(
                (f"no loss {loss!r}, which {does}", grpo.loss_type != loss)
                for loss, does in _LOSSES.items()
            ),
        ):
            if not is_fit:
                raise ConfigError(f"grpo.credit = {name!r} takes {requirement}")


def _own_lines(
    siblings: Sequence[Scored], *, as_scored: bool = False
) -> Iterator[tuple[int, int, Edge]]:
    """Each line that was sampled for a sibling, where that one stands first, with its edge."""
    slots = [(one.trajectory.sibling_index, at) for at, one in enumerate(siblings)]
    first = sorted(dict(reversed(slots)).values())
    edges_GE = tree_edges([siblings[at] for at in first], as_scored=as_scored)
    for at, edges in zip(first, edges_GE, strict=True):
        for edge in edges:
            yield from ((at, line, edge) for line in range(edge.start, edge.stop))
