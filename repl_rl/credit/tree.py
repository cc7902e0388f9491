"""Credit of a tree of trajectories: a line is held against others from the very state before it.

    branches_G, outcomes_G -> weight_GL, advantage_GL

Trajectories of a group that begin as one another make a tree: an edge is the lines between two
states where somebody leaves, and a leaf is the end of a trajectory. The value of a state is the
mean outcome of what follows it, as in VinePPO (arXiv:2410.01679) and Tree-GRPO (arXiv:2509.21240).
Pure: lists in, lists out. G siblings, L lines of one.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from repl_rl.types import Branch


@dataclass(frozen=True, slots=True, kw_only=True)
class Twig:
    """As much of a sibling as its place in the tree depends on."""

    sibling_index: int
    branch: Branch | None
    num_lines: int
    outcome: float | None
    """None where it could not be scored."""


@dataclass(slots=True)
class TreeCredit:
    """Advantages and weights of lines, [G][L]; both 0 for a line that is a copy."""

    advantages: list[list[float]]
    """The value of the edge's end less the mean value of the other edges from its beginning."""
    weights: list[list[float]]
    """The share of an edge in the mean over leaves, times their number: 1 in a group without
    branches. An edge that is left by one other near its end has the weight of two leaves."""


def tree_credit(twigs: Sequence[Twig]) -> TreeCredit:
    """Advantages of the lines of a group, each with the weight that it has in an update.

    Unbiased: where a trajectory is left depends on what stands before that state alone, so from
    there on all that leave are alike, and the others' mean is a baseline that none of them moves.
    Weights halve at a state that two leave: so what a line adds to the update is expected to be
    what it adds to the gradient of the mean outcome of a single rollout.

    Edges of equal value get exactly 0, and so do an edge without others and one without an outcome.

    >>> left = Branch(sibling_index=0, num_lines=1, seed=0)
    >>> found = tree_credit([
    ...     Twig(sibling_index=0, branch=None, num_lines=2, outcome=1.0),
    ...     Twig(sibling_index=1, branch=left, num_lines=2, outcome=0.0),
    ...     Twig(sibling_index=2, branch=None, num_lines=1, outcome=0.0),
    ... ])
    >>> found.advantages
    [[0.5, 1.0], [0.0, -1.0], [-0.5]]
    >>> found.weights
    [[1.5, 0.75], [0.0, 0.75], [1.5]]
    """
    return _Tree(twigs).credit()


@dataclass(slots=True)
class _Tree:
    twigs: Sequence[Twig]
    _leaving: defaultdict[int, defaultdict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """By a twig's place and a number of lines: who leaves it there."""
    _roots: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        places = {twig.sibling_index: at for at, twig in enumerate(self.twigs)}
        for at, twig in enumerate(self.twigs):
            if twig.branch is None:
                self._roots.append(at)
            else:
                self._leaving[places[twig.branch.sibling_index]][twig.branch.num_lines].append(at)

    def credit(self) -> TreeCredit:
        found = TreeCredit(
            advantages=[[0.0] * twig.num_lines for twig in self.twigs],
            weights=[[0.0] * twig.num_lines for twig in self.twigs],
        )
        num_leaves = sum(twig.outcome is not None for twig in self.twigs)
        self._share(found, self._roots, 0, float(num_leaves))
        return found

    def _share(self, found: TreeCredit, edges: Sequence[int], start: int, weight: float) -> None:
        """Fill in the edges of these twigs that begin behind `start` lines, and all below them."""
        values = [self._value(at, start) for at in edges]
        known = [value for value in values if value is not None]
        if not known:
            return
        weight /= len(known)
        for at, value in zip(edges, values, strict=True):
            if value is None:
                continue
            stop = self._next(at, start)
            end = self.twigs[at].num_lines if stop is None else stop
            advantage = _beside(value, known)
            for line in range(start, end):
                found.advantages[at][line] = advantage
                found.weights[at][line] = weight
            if stop is not None:
                self._share(found, [at, *self._leaving[at][stop]], stop, weight)

    def _value(self, at: int, start: int) -> float | None:
        """The mean outcome of what a twig's edge behind `start` lines leads to."""
        stop = self._next(at, start)
        if stop is None:
            return self.twigs[at].outcome
        below = [self._value(one, stop) for one in (at, *self._leaving[at][stop])]
        known = [value for value in below if value is not None]
        return statistics.fmean(known) if known else None

    def _next(self, at: int, start: int) -> int | None:
        """The first place behind `start` lines where somebody leaves a twig."""
        return min((stop for stop in self._leaving[at] if stop > start), default=None)


def _beside(value: float, values: Sequence[float]) -> float:
    """`value` less the mean of the others of `values`, which hold it."""
    if len(values) < 2 or max(values) - min(values) < 1e-12:
        return 0.0
    # x - (sum - x) / (n - 1) is (x - mean) n / (n - 1).
    return (value - statistics.fmean(values)) * len(values) / (len(values) - 1)
