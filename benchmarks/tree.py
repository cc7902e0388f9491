"""What a group that branches costs: `python benchmarks/tree.py [--model RUN_OR_PATH]`.

The same number of trajectories of the same problems, rolled out apart and as trees, one after the
other in each round. By formula a tree of [4, 2, 2] whose trajectories are left at a third and at
two thirds of their way samples 0.58 of the tokens. Where they are left is up to coins, and one that
ends before its coin is not left at all, so trees have fewer leaves: `leaves` says how many. Kernel
seconds are those that trajectories waited for kernels, the lines that run again among them.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from policies import add_policy, group_attempts, opened

from repl_rl.credit.advantages import distinct
from repl_rl.credit.trees import grow
from repl_rl.records import Attempt, Scored
from repl_rl.rollout.plan import Plan
from repl_rl.training.runtime import Runtime
from repl_rl.training.steps import ProblemSequence


@dataclass
class Cost:
    """Of all rounds."""

    leaves: int = 0
    tokens: int = 0
    lines: int = 0
    kernel_s: float = 0.0
    wall_s: float = 0.0

    def row(self, name: str) -> str:
        a_leaf = self.tokens / self.leaves
        return (
            f"{name:<12} {self.leaves:>6} {self.tokens:>8,} {a_leaf:>8.1f} {self.lines:>6} "
            f"{self.kernel_s:>9.1f} {self.wall_s:>7.1f} {1000 * self.wall_s / self.leaves:>8.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_policy(parser)
    parser.add_argument("--branching", type=int, nargs="+", default=[4, 2, 2])
    parser.add_argument("--problems", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    with opened(args) as (plan, runtime):
        apart, trees = measure(plan, runtime, args.branching, args.problems, args.rounds)
    print(f"{'':<12} leaves   tokens   a leaf  lines  kernel s  wall s  ms/leaf")
    print(apart.row("apart"))
    print(trees.row(str(args.branching)))
    print(f"of the same leaves: {ratio(trees, apart, 'tokens'):.2f} of the tokens, "
          f"{ratio(trees, apart, 'kernel_s'):.2f} of the kernel seconds, "
          f"{ratio(trees, apart, 'wall_s'):.2f} of the wall time")  # fmt: skip


def ratio(one: Cost, other: Cost, name: str) -> float:
    """Of what a leaf costs."""
    return float(getattr(one, name) / one.leaves / (getattr(other, name) / other.leaves))


def measure(
    plan: Plan, runtime: Runtime, factors: Sequence[int], num_problems: int, rounds: int
) -> tuple[Cost, Cost]:
    problems, size = ProblemSequence(plan.task, seed=0), math.prod(factors)
    tree = replace(plan.config.grpo, branching=tuple(factors))
    apart, trees = Cost(), Cost()

    def attempts(index: int) -> list[Attempt]:
        numbers = range(index * num_problems, (index + 1) * num_problems)
        return group_attempts(problems, numbers, size=size, seed=0, name="tree")

    def timed(
        cost: Cost, roll_out: Callable[[Sequence[Attempt]], list[Scored]], wanted: list[Attempt]
    ) -> None:
        runtime.sync(0)  # no keys of the round before
        runtime.runner.waits.clear()
        num_before, began = runtime.engine.num_sampled, time.monotonic()
        found = distinct(roll_out(wanted))
        cost.wall_s += time.monotonic() - began
        cost.tokens += runtime.engine.num_sampled - num_before
        cost.kernel_s += runtime.runner.waits.kernel_s
        cost.leaves += len(found)
        cost.lines += sum(len(one.trajectory.own_lines) for one in found)

    def as_trees(wanted: Sequence[Attempt]) -> list[Scored]:
        return grow(wanted, tree, runtime.run)

    timed(Cost(), runtime.run, attempts(0))  # memory, kernels
    for index in range(1, rounds + 1):
        for cost, roll_out in ((apart, runtime.run), (trees, as_trees)):
            timed(cost, roll_out, attempts(index))
    return apart, trees


if __name__ == "__main__":
    main()
