"""Credit by trees: `grpo.credit = "tree"`.

    Attempts -> groups, grown at states that a coin chooses -> siblings_G
    siblings_G -> edges_GE, each held against others from the very state before it, and against the
    rest of the group -> weight_GL, advantage_GL

Trajectories of a group that begin as one another make a tree: an edge is the lines between two
states where somebody leaves, and a leaf is the end of a trajectory. The value of a state is the
mean outcome of what follows it, as in VinePPO (arXiv:2410.01679) and Tree-GRPO (arXiv:2509.21240).
G siblings, L lines of one, E edges of one. Knows which settings trees do not go with. Does not know
trainers.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from repl_rl.base.concurrency import derive_seed
from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.base import Credit, Run, centred, is_silent
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Scored, Stem, Trajectory

_MASKS = ("mask_truncated_completions", "off_policy_mask_threshold")
_MASKS_SHARED = "would mask lines that other trajectories share"
_WHOLE = "lines that trajectories share are in the row of one of them"
_LOSSES = {
    "vespo": f"weighs whole trajectories: {_WHOLE}",
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
                f"[4, 2, 2]: 4 trajectories, each branched once, and each of the 8 once more"
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
            *(
                (f"trl.{one} unset, as it {_MASKS_SHARED}", not config.trl.get(one))
                for one in _MASKS
            ),
            *(
                (f"another loss than {loss!r}, which {does}", grpo.loss_type != loss)
                for loss, does in _LOSSES.items()
            ),
        ):
            if not is_fit:
                raise ConfigError(f"grpo.credit = {name!r} needs {requirement}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Lines of a sibling between two states where somebody leaves, or up to its end."""

    start: int
    """Lines before its beginning."""
    stop: int
    """Lines before its end."""
    before: float | None
    """The value of the state that it begins at; None where nothing behind it was scored."""
    after: float | None
    """The value of the state that it ends at."""
    advantage: float
    """`after` less the mean value of others: the other edges from its beginning and, where that is
    not the prompt, the rest of the group as one more. That is the mean value of the other
    trajectories from the prompt, with all that leave them."""
    weight: float
    """Share of a rollout that it stands for: 1 from the prompt, and behind a state that others
    leave an equal share of what leads to it; 0 where nothing behind it was scored."""


class Outlined(NamedTuple):
    """An edge in its place."""

    depth: int
    """Edges before it, from the prompt or from one who is not there."""
    at: int
    """The place of the sibling whose lines they are."""
    edge: Edge


def tree_edges(siblings: Sequence[Scored], *, as_scored: bool = False) -> list[list[Edge]]:
    """The edges of each sibling's own lines, [G][E], in their order; each stands there once.

    Advantages are unbiased: where a trajectory is left depends on what stands before that state
    alone, so from there on all that leave are alike, and the others' mean is a baseline that none
    of them moves. One other from the same state is a noisy one, so the rest of the group stands in
    it as well. The gradient is the same. `benchmarks/noise.py` has its variance.
    A weight is shared out among all that go on from a state: so what a line adds to the update is
    expected to be what it adds to the gradient of the mean outcome of a single rollout. It depends
    on no number of leaves, as long trajectories are left more often.

    Edges of equal value get exactly 0, and so do an edge without others and one without an outcome.
    With `as_scored` weights are those of all, as if each had one.
    """
    edges_GE: list[list[Edge]] = [[] for _ in siblings]
    for one in _Branching(siblings, as_scored=as_scored).outline():
        edges_GE[one.at].append(one.edge)
    return edges_GE


def outline(siblings: Sequence[Scored]) -> list[Outlined]:
    """All edges, each followed by those that begin where it ends, the same sibling's first."""
    return _Branching(siblings).outline()


class _Branching:
    """No function of it calls itself: a file may hold a tree of any depth."""

    def __init__(self, siblings: Sequence[Scored], *, as_scored: bool = False) -> None:
        self._branches = [one.trajectory.branch for one in siblings]
        self._lengths = [len(one.reward.line_rewards) for one in siblings]
        outcomes = (one.reward.outcome_reward for one in siblings)
        self._outcomes = [0.0 if as_scored else one for one in outcomes]
        self._leaving: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        """By (a sibling's place, a number of lines): who leaves it there."""
        self._begin: defaultdict[tuple[int | None, int], list[int]] = defaultdict(list)
        """By (the sibling that they leave, lines): those that leave none of these. A file may lack
        one that others leave."""
        indices: dict[int | None, int]
        indices = {one.trajectory.sibling_index: at for at, one in enumerate(siblings)}
        stops: defaultdict[int, set[int]] = defaultdict(set)
        for at, left in enumerate(self._branches):
            if left is None:
                self._begin[None, 0].append(at)
                continue
            other = indices.get(left.sibling_index)
            if other is not None and left.num_lines <= self._last_exit(other):
                self._leaving[other, left.num_lines].append(at)
                stops[other].add(left.num_lines)
            else:
                self._begin[left.sibling_index, left.num_lines].append(at)
        self._stops = [sorted(stops[at]) for at in range(len(siblings))]
        """Places where each sibling is left."""
        self._values = self._find_values()

    def outline(self) -> list[Outlined]:
        edges_in_order: list[Outlined] = []
        ahead: list[tuple[Outlined, float | None]] = []
        """Edges whose turn comes, the next one last, and the value of the rest of the group."""
        for (left, start), members in reversed(self._begin.items()):
            num_known = sum(self._values[at, start] is not None for at in members)
            edges = self._from(members, start, num_known, depth=0)
            for one in reversed(edges):
                values = [other.edge.after for other in edges if other is not one]
                known = [value for value in values if value is not None]
                # Of those that leave one who is not here, nobody knows whose trees they are.
                ahead.append((one, statistics.fmean(known) if known and left is None else None))
        while ahead:
            one, rest = ahead.pop()
            edges_in_order.append(one)
            at, stop = one.at, one.edge.stop
            # One that ended right where it was left has an edge of no lines, which ends it.
            if one.edge.start < stop and (below := self._leaving.get((at, stop))):
                edges = self._from(
                    [at, *below], stop, one.edge.weight, depth=one.depth + 1, rest=rest
                )
                ahead += ((edge, rest) for edge in reversed(edges))
        return edges_in_order

    def _from(
        self,
        members: Sequence[int],
        start: int,
        weight: float,
        *,
        depth: int,
        rest: float | None = None,
    ) -> list[Outlined]:
        """The edges of these siblings that begin behind `start` lines, which they share, and that
        share `weight`. `rest` is the value of the rest of the group.
        """
        values = [self._values[at, start] for at in members]
        known = [value for value in values if value is not None]
        before = statistics.fmean(known) if known else None
        peers = known if rest is None else [*known, rest]
        advantages = iter(centred(peers, "leave_one_out"))
        edges = []
        for at, value in zip(members, values, strict=True):
            stop = self._next(at, start)
            edge = Edge(
                start=start,
                stop=self._lengths[at] if stop is None else stop,
                before=before,
                after=value,
                advantage=0.0 if value is None else next(advantages),
                weight=0.0 if value is None else weight / len(known),
            )
            edges.append(Outlined(depth, at, edge))
        return edges

    def _find_values(self) -> dict[tuple[int, int], float | None]:
        """Mean outcomes of what each edge leads to, by (sibling, start of the edge)."""
        starts = [(self._start(at), at) for at in range(len(self._lengths))]
        starts += [(stop, at) for at, stops in enumerate(self._stops) for stop in stops]
        values: dict[tuple[int, int], float | None] = {}
        # What follows an edge begins behind more lines, so the last come first.
        for start, at in sorted(starts, reverse=True):
            stop = self._next(at, start)
            if stop is None:
                values[at, start] = self._outcomes[at]
                continue
            below = [values[one, stop] for one in (at, *self._leaving[at, stop])]
            known = [value for value in below if value is not None]
            values[at, start] = statistics.fmean(known) if known else None
        return values

    def _next(self, at: int, start: int) -> int | None:
        """The first place behind `start` lines where somebody leaves a sibling."""
        stops = self._stops[at]
        index = bisect.bisect_right(stops, start)
        return stops[index] if index < len(stops) else None

    def _start(self, at: int) -> int:
        """Lines before its own, which are copies."""
        branch = self._branches[at]
        return 0 if branch is None else branch.num_lines

    def _last_exit(self, at: int) -> int:
        """The most lines behind which somebody leaves it: its end, if it has a line of its own."""
        return self._lengths[at] - (self._lengths[at] <= self._start(at))


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


def _by_slot(scored: Sequence[Scored]) -> dict[tuple[int, int | None], Scored]:
    """Trajectories by group and slot, without any whose stem was written otherwise by one that
    began again."""
    made: dict[tuple[int, int | None], Scored] = {}
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
    made: dict[tuple[int, int | None], Scored], attempt: Attempt, strides: Sequence[int]
) -> Scored:
    """Return the trajectory made for a slot, or the one that nobody has left in time."""
    slot = attempt.sibling_index
    for stride in reversed(strides):
        key = attempt.group_index, slot - slot % stride
        if key in made:
            return made[key]
    raise AssertionError("a tree begins at slot 0")


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
