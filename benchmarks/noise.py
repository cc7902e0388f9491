"""How noisy is an update? `python benchmarks/noise.py`, less than two minutes.

Worlds whose gradient is known: a trajectory has L lines, each right with a probability of its own,
and is solved where all lines that count are right. The others are of no account. An update of
groups sums advantage times score over lines, by the trainer's own code, with `scale = "none"`. Its
noise is held against its signal:

    N = E|g - E g|^2 / |E g|^2, times the lines that were sampled for g

So N lines make an update whose noise is as large as its signal, and half as many are twice as good.
Columns are groups of independent rollouts (`outcome`, `leave_one_out`) and trees, by the baseline
of a branch:

    state    the others from the state that it leaves
    as is    these and the rest of its group as one more, which is what `credit.trees` takes
    each     these and each other trajectory from the prompt, with all that leave it
"""

import argparse
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.base import Outcome
from repl_rl.credit.trees import Edge, Tree, tree_edges
from repl_rl.records import Branch, Problem, Reward, Scored, StopReason, Trajectory

UNSCALED = 1.0
BASELINES = ("state", "as is", "each")
PROBLEM = Problem(id="", statement="")
Lines = Sequence[bool]
"""Whether each is right."""


@dataclass(frozen=True, kw_only=True)
class World:
    name: str
    chances: Sequence[float]
    """How likely each line is right."""
    counts: Sequence[bool]

    def go_on(self, lines: Lines, rng: random.Random) -> list[bool]:
        return [*lines, *(rng.random() < p for p in self.chances[len(lines) :])]

    def outcome(self, lines: Lines) -> float:
        return float(all(right for right, counts in zip(lines, self.counts, strict=True) if counts))

    def gradient(self) -> list[float]:
        """Of the solve rate, by the logit of each line."""
        rate = math.prod(p for p, counts in zip(self.chances, self.counts, strict=True) if counts)
        return [
            (1 - p) * rate * counts for p, counts in zip(self.chances, self.counts, strict=True)
        ]


def worlds(length: int) -> Iterator[World]:
    yield World(
        name=f"the first of {length} decides",
        chances=[0.4] + [0.5] * (length - 1),
        counts=[True] + [False] * (length - 1),
    )
    yield World(
        name=f"the last of {length} decides",
        chances=[0.5] * (length - 1) + [0.4],
        counts=[False] * (length - 1) + [True],
    )
    for rate in (0.1, 0.4, 0.8):
        yield World(
            name=f"all {length} must be right, {rate:.0%} are",
            chances=[rate ** (1 / length)] * length,
            counts=[True] * length,
        )


@dataclass(frozen=True, kw_only=True)
class Leaf:
    slot: int
    lines: Lines
    branch: Branch | None = None
    start: int = 0
    """The last state on its way that was left."""


Rows = Sequence[Sequence[float]]
Rolled = tuple[Sequence[Leaf], Rows, int]
"""Trajectories, the advantages of their lines, and the rows of the batch that they stand for."""


def group(rng: random.Random, *, world: World, size: int) -> Rolled:
    leaves = [Leaf(slot=slot, lines=world.go_on([], rng)) for slot in range(size)]
    credit = Outcome(GRPOConfig(baseline="leave_one_out"))
    siblings = [rewarded(world, leaf) for leaf in leaves]
    return leaves, credit.line_advantages(siblings, UNSCALED), size


def tree(
    rng: random.Random, *, world: World, factors: Sequence[int], chance: float, baseline: str
) -> Rolled:
    """Left as `credit.trees` has it: a coin at each state, and the first head is taken."""
    size = math.prod(factors)
    stride = size // factors[0]
    leaves = [Leaf(slot=stride * i, lines=world.go_on([], rng)) for i in range(factors[0])]
    for factor in factors[1:]:
        stride //= factor
        grown = []
        for leaf in leaves:
            places = range(leaf.start + 1, len(leaf.lines))
            at = next((at for at in places if rng.random() < chance), None)
            grown.append(replace(leaf, start=len(leaf.lines) if at is None else at))
            if at is None:
                continue
            for i in range(1, factor):
                lines = world.go_on(leaf.lines[:at], rng)
                branch = Branch(sibling_index=leaf.slot, num_lines=at, seed=0)
                slot = leaf.slot + stride * i
                grown.append(Leaf(slot=slot, lines=lines, branch=branch, start=at))
        leaves = grown
    if baseline == "as is":
        return leaves, tree_rows(world, leaves, factors), size
    return leaves, other_rows(world, leaves, size // factors[0], baseline), size


def tree_rows(world: World, leaves: Sequence[Leaf], factors: Sequence[int]) -> Rows:
    config = GRPOConfig(line_credit_weight=0, branching=tuple(factors))
    siblings = [rewarded(world, leaf) for leaf in leaves]
    return Tree(config).line_advantages(siblings, UNSCALED)


def other_rows(world: World, leaves: Sequence[Leaf], num_siblings: int, baseline: str) -> Rows:
    """Advantages by another baseline than that of `credit.trees`."""
    edges = tree_edges([rewarded(world, leaf) for leaf in leaves])
    beside = defaultdict[tuple[int | None, int], list[float]](list)
    for leaf, own in zip(leaves, edges, strict=True):
        for edge in own:
            beside[beginning(leaf, edge)].append(value(edge))
    by_slot: dict[int | None, Leaf] = {leaf.slot: leaf for leaf in leaves}
    first = {
        leaf.slot: value(own[0])
        for leaf, own in zip(leaves, edges, strict=True)
        if leaf.branch is None
    }
    rows = []
    for leaf, own in zip(leaves, edges, strict=True):
        root = leaf
        while root.branch is not None:
            root = by_slot[root.branch.sibling_index]
        row = [0.0] * len(leaf.lines)
        for edge in own:
            others = [*beside[beginning(leaf, edge)]]
            others.remove(value(edge))
            if baseline == "each" and edge.start:
                others += [worth for slot, worth in first.items() if slot != root.slot]
            for line in range(edge.start, edge.stop):
                worth = value(edge) - statistics.fmean(others)
                row[line] = num_siblings * edge.weight * worth
        rows.append(row)
    return rows


def beginning(leaf: Leaf, edge: Edge) -> tuple[int | None, int]:
    """The same for all edges from one state."""
    if edge.start == 0:
        return None, 0
    is_first = leaf.branch is not None and leaf.branch.num_lines == edge.start
    return leaf.branch.sibling_index if leaf.branch and is_first else leaf.slot, edge.start


def value(edge: Edge) -> float:
    assert edge.after is not None
    return edge.after


def rewarded(world: World, leaf: Leaf) -> Scored:
    """A sibling of no tokens: these credits read places and rewards alone."""
    trajectory = Trajectory(
        problem_id="", group_index=0, sibling_index=leaf.slot, policy_version=0, seed=0,
        prompt_text="", prompt_ids=(), completion_ids=(), loss_mask=(), logprobs=(), lines=(),
        stop_reason=StopReason.SUBMITTED, branch=leaf.branch,
    )  # fmt: skip
    outcome = world.outcome(leaf.lines)
    reward = Reward(line_rewards=(0.0,) * len(leaf.lines), outcome_reward=outcome)
    return Scored(trajectory=trajectory, problem=PROBLEM, verdict=None, reward=reward)


def noise(world: World, roll: Callable[[random.Random], Rolled], tries: int) -> float:
    """N; see above."""
    rng, aim = random.Random(0), world.gradient()
    signal = math.fsum(part**2 for part in aim)
    square = num_lines = 0.0
    for _ in range(tries):
        leaves, rows, size = roll(rng)
        found = [0.0] * len(aim)
        for leaf, row in zip(leaves, rows, strict=True):
            num_lines += len(leaf.lines) - (leaf.branch.num_lines if leaf.branch else 0)
            for at, (right, advantage) in enumerate(zip(leaf.lines, row, strict=True)):
                found[at] += advantage * (right - world.chances[at]) / size
        square += math.fsum(part**2 for part in found)
    return (square / tries - signal) / signal * num_lines / tries


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--size", type=int, default=10, help="of a group of independent rollouts")
    parser.add_argument("--branching", type=int, nargs="+", default=[4, 2, 2])
    parser.add_argument("--chance", type=float, default=0.5)
    parser.add_argument("--tries", type=int, default=1000)
    args = parser.parse_args()
    print(f"{'':<36} groups of {args.size:<3}", *(f"{name:>7}" for name in BASELINES))
    for world in (world for length in args.lengths for world in worlds(length)):
        apart = noise(world, partial(group, world=world, size=args.size), args.tries)
        roll = partial(tree, world=world, factors=args.branching, chance=args.chance)
        found = [noise(world, partial(roll, baseline=name), args.tries) for name in BASELINES]
        print(f"{world.name:<36} {apart:>13.0f}", *(f"{one:>7.0f}" for one in found), flush=True)


if __name__ == "__main__":
    main()
