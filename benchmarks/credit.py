"""How near credit comes to what a line was worth: `python benchmarks/credit.py --output DIR`.

The truth about a line is the mean outcome of `--truth` continuations of the state after it, less
that of as many continuations of the state before it; each goes on from the exact state of the
interpreter. Lines are those of rollouts on problems that the policy solves at a rate between 0.2
and 0.8, by rollouts of their own. Every estimator is the trainer's own code, with `scale = "none"`
and the mean of the others as baseline, so that all are in units of the outcome reward:

    outcome, line_local ...   from the group of 16 that holds the line
    tree                      from groups of [4, 2, 2] of the same problems, on lines of theirs,
                              with a truth of theirs
    K continuations           of the states before and after the line, other ones than the truth's
    nothing                   0 for every line; `nothing of trees` for those of trees

`agree` is the share of lines whose estimate has the sign of the truth (half a point for an estimate
of 0), among those whose truth is two standard errors from 0. `rank` is Spearman's correlation, and
`error` the mean square of estimate less truth, less what the truth's own error adds to it. `tokens`
are sampled for each trajectory of a group. Raw rows go to DIR/lines.jsonl, a picture to
DIR/credit.svg.
"""

import argparse
import itertools
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from policies import add_policy, group_attempts, opened

from repl_rl.base.concurrency import derive_seed
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.advantages import distinct, load_credit
from repl_rl.credit.ledger import Value, outcomes_after
from repl_rl.credit.trees import grow, tree_edges
from repl_rl.records import Attempt, Scored
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.prefixes import attempts_around
from repl_rl.runs.summary import is_solved
from repl_rl.training.runtime import Runtime
from repl_rl.training.steps import ProblemSequence

mpl.use("Agg")

GROUP, BRANCHING = 16, (4, 2, 2)
WEIGHTS = (0.25, 0.5, 1.0)
CONTINUATIONS = (1, 2, 4, 9)
NOTHING, NOTHING_OF_TREES = "nothing", "nothing of trees"
PER_PROBLEM = 3
"""Trajectories of one problem whose lines are judged."""

UNSCALED = 1.0
IN_REWARDS = GRPOConfig(baseline="leave_one_out")
FLAT = {
    "outcome": replace(IN_REWARDS, credit="outcome"),
    **{
        f"{credit} {weight}": replace(IN_REWARDS, credit=credit, line_credit_weight=weight)
        for credit in ("line_local", "return_to_go", "potential")
        for weight in WEIGHTS
    },
}


@dataclass(kw_only=True)
class Judged:
    """A line with its truth and all that was estimated of it."""

    problem: str
    source: str
    kind: str
    charge: float
    at: int
    of: int
    """Lines of its trajectory."""
    truth: float
    error: float
    """The truth's standard error."""
    estimates: dict[str, float] = field(default_factory=dict)

    @property
    def is_decided(self) -> bool:
        return abs(self.truth) > 2 * self.error


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_policy(parser)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--truth", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    with opened(args) as (plan, runtime):
        bench = Bench(plan, runtime, seed=args.seed, num_truth=args.truth)
        problems, same = itertools.tee(bench.hard_problems())
        flat, flat_tokens, more = bench.flat_lines(problems, args.lines)
        trees, tree_tokens = bench.tree_lines(same, args.lines)
    for lines, name in ((flat, NOTHING), (trees, NOTHING_OF_TREES)):
        for line in lines:
            line.estimates[name] = 0.0
    costs = dict.fromkeys(FLAT, flat_tokens) | {"tree": tree_tokens}
    costs |= dict.fromkeys((NOTHING, NOTHING_OF_TREES), 0.0)
    costs |= {name_of(count): flat_tokens + count * more for count in CONTINUATIONS}
    with (args.output / "lines.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(line)) + "\n" for line in (*flat, *trees))
    table = [score(name, lines, costs[name]) for name, lines in by_estimator(flat, trees)]
    print(f"{'':<18} lines decided  agree   rank   error  tokens")
    print("\n".join(map(str, table)))
    print(f"\n{'outcome':<16} lines    worth (standard error)  charge  points the right way")
    print("\n".join(by_outcome(flat)))
    draw(table, args.output / "credit.svg")


class Bench:
    """Rollouts of one policy."""

    def __init__(self, plan: Plan, runtime: Runtime, *, seed: int, num_truth: int) -> None:
        self._runtime = runtime
        self._seed = seed
        self._num_truth = num_truth
        self._problems = ProblemSequence(plan.task, seed=seed)
        self._tree = replace(plan.config.grpo, branching=BRANCHING)

    def hard_problems(self) -> Iterator[int]:
        """Numbers of those solved at a rate between 0.2 and 0.8, for ever."""
        number = 0
        while True:
            wanted = range(number, number + 8)
            found = self._runtime.run(self._attempts(wanted, "screen"))
            for index, group in groupby(found, key=lambda one: one.trajectory.group_index):
                rate = statistics.fmean(is_solved(one) for one in group)
                if 0.2 < rate < 0.8:
                    yield index
            number += 8

    def flat_lines(
        self, problems: Iterable[int], num_lines: int
    ) -> tuple[list[Judged], float, float]:
        """Lines of groups of 16; tokens a trajectory, and those of a continuation of every line."""
        found: list[Judged] = []
        tokens: list[int] = []
        more: list[float] = []
        for number in problems:
            group = self._runtime.run(self._attempts([number], "group"))
            tokens += [one.trajectory.num_sampled for one in group]
            rows = {
                name: load_credit(config).line_advantages(group, UNSCALED)
                for name, config in FLAT.items()
            }
            for place in self._chosen(number, group):
                lines, continued = self._judged(group[place], max(CONTINUATIONS))
                for at, line in lines:
                    line.estimates |= {name: row[place][at] for name, row in rows.items()}
                found += [line for _, line in lines]
                more.append(continued)
            progress("lines of groups", len(found), num_lines)
            if len(found) >= num_lines:
                break
        return found, statistics.fmean(tokens), statistics.fmean(more)

    def tree_lines(self, problems: Iterable[int], num_lines: int) -> tuple[list[Judged], float]:
        """Lines of trees; tokens a leaf."""
        found: list[Judged] = []
        num_tokens = num_leaves = 0
        for number in problems:
            wanted = self._attempts([number], "tree")
            leaves = distinct(grow(wanted, self._tree, self._runtime.run))
            num_leaves += len(leaves)
            num_tokens += sum(one.trajectory.num_sampled for one in leaves)
            edges_GE = tree_edges(leaves)
            for place in self._chosen(number, leaves):
                for at, line in self._judged(leaves[place], 0)[0]:
                    for edge in edges_GE[place]:
                        if edge.start <= at < edge.stop and edge.weight:  # not a copy
                            line.estimates["tree"] = edge.advantage
                            found.append(line)
            progress("lines of trees", len(found), num_lines)
            if len(found) >= num_lines:
                break
        return found, num_tokens / num_leaves

    def _judged(self, scored: Scored, num_more: int) -> tuple[list[tuple[int, Judged]], float]:
        """Its lines with their truth and estimates by continuations; tokens of one of each line."""
        runtime, trajectory = self._runtime, scored.trajectory
        setup = (*runtime.origin.setup, *scored.problem.setup)
        count = self._num_truth + num_more
        made = runtime.run(attempts_around(scored, setup, num_branches=count))
        outcomes = outcomes_after(made)
        own = scored.reward.outcome_reward
        if own is not None:
            outcomes[len(trajectory.lines)] = [own] * count  # it has ended: nothing is left to it
        lines = []
        for at, line in enumerate(trajectory.lines):
            before, after = outcomes.get(at), outcomes.get(at + 1)
            if before is None or after is None or min(len(before), len(after)) < count:
                continue
            first, second = Value.of(before[num_more:]), Value.of(after[num_more:])
            estimates = {
                name_of(k): statistics.fmean(after[:k]) - statistics.fmean(before[:k])
                for k in CONTINUATIONS
                if k <= num_more
            }
            assert first.error is not None
            assert second.error is not None
            judged = Judged(
                problem=scored.problem.id,
                source=line.source,
                kind=str(line.outcome.kind),
                charge=scored.reward.line_rewards[at],
                at=at,
                of=len(trajectory.lines),
                truth=second.mean - first.mean,
                error=math.hypot(first.error, second.error),
                estimates=estimates,
            )
            lines.append((at, judged))
        return lines, sum(one.trajectory.num_sampled for one in made) / count

    def _chosen(self, number: int, group: Sequence[Scored]) -> list[int]:
        rng = random.Random(derive_seed(self._seed, "chosen", number))
        return sorted(rng.sample(range(len(group)), min(PER_PROBLEM, len(group))))

    def _attempts(self, numbers: Iterable[int], name: str) -> list[Attempt]:
        return group_attempts(self._problems, numbers, size=GROUP, seed=self._seed, name=name)


def name_of(count: int) -> str:
    return f"{count} continuation{'s' if count > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class Score:
    name: str
    lines: int
    decided: int
    agree: float
    rank: float
    error: float
    tokens: float

    def __str__(self) -> str:
        return (
            f"{self.name:<18} {self.lines:>5} {self.decided:>7}  {self.agree:>5.1%} "
            f"{self.rank:>6.2f} {self.error:>7.3f} {self.tokens:>7.0f}"
        )


def by_estimator(
    flat: Sequence[Judged], trees: Sequence[Judged]
) -> Iterator[tuple[str, Sequence[Judged]]]:
    yield from ((name, flat) for name in FLAT)
    yield "tree", trees
    yield from ((name_of(count), flat) for count in CONTINUATIONS)
    yield from ((NOTHING, flat), (NOTHING_OF_TREES, trees))


def score(name: str, lines: Sequence[Judged], tokens: float) -> Score:
    pairs = [(line.estimates[name], line.truth) for line in lines]
    decided = [line for line in lines if line.is_decided]
    points = [agreement(line.estimates[name], line.truth) for line in decided]
    square = statistics.fmean((estimate - truth) ** 2 for estimate, truth in pairs)
    noise = statistics.fmean(line.error**2 for line in lines)
    return Score(
        name=name,
        lines=len(lines),
        decided=len(decided),
        agree=statistics.fmean(points),
        rank=spearman(pairs),
        error=square - noise,
        tokens=tokens,
    )


def agreement(estimate: float, truth: float) -> float:
    return 0.5 if estimate == 0 else float((estimate > 0) == (truth > 0))


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""
    first, second = (ranks(column) for column in zip(*pairs, strict=True))
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    return statistics.correlation(first, second)


def ranks(values: Sequence[float]) -> list[float]:
    places = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [statistics.fmean(places[value]) for value in values]


def by_outcome(lines: Sequence[Judged]) -> Iterator[str]:
    """What lines of each outcome were worth, beside what they are charged."""
    kinds: dict[str, list[Judged]] = defaultdict(list)
    for line in lines:
        kinds[line.kind].append(line)
    for kind, found in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        worth = Value.of([line.truth for line in found])
        error = "-" if worth.error is None else f"{worth.error:.3f}"
        charge = statistics.fmean(line.charge for line in found)
        says = "-" if not charge else "yes" if (charge > 0) == (worth.mean > 0) else "NO"
        yield (
            f"{kind:<16} {len(found):>5}  {worth.mean:>+7.3f} ({error})         "
            f"{charge:>+9.2f}  {says}"
        )


def draw(table: Sequence[Score], path: Path) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for one in table:
        if one.name in (NOTHING, NOTHING_OF_TREES):
            continue
        axes.plot(one.tokens, 100 * one.agree, "o")
        axes.annotate(one.name, (one.tokens, 100 * one.agree), fontsize=8)
    axes.set(xscale="log", xlabel="sampled tokens a trajectory", ylabel="sign agrees, % of lines")
    figure.savefig(path)
    plt.close(figure)


def progress(name: str, done: int, total: int) -> None:
    print(f"{name}: {done} of {total}", flush=True)


if __name__ == "__main__":
    main()
