"""Edges of a tree of trajectories: each is held against others from the very state before it, and
against the rest of the group.

    branches_G, outcomes_G -> edges_GE -> weight_GL, advantage_GL

Trajectories of a group that begin as one another make a tree: an edge is the lines between two
states where somebody leaves, and a leaf is the end of a trajectory. The value of a state is the
mean outcome of what follows it, as in VinePPO (arXiv:2410.01679) and Tree-GRPO (arXiv:2509.21240).
Pure: lists in, lists out. G siblings, L lines of one, E edges of one.
"""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from repl_rl.credit.base import centred
from repl_rl.records import Scored


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
    for one in _Tree(siblings, as_scored=as_scored).outline():
        edges_GE[one.at].append(one.edge)
    return edges_GE


def outline(siblings: Sequence[Scored]) -> list[Outlined]:
    """All edges, each followed by those that begin where it ends, the same sibling's first."""
    return _Tree(siblings).outline()


class _Tree:
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
