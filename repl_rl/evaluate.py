"""Held-out solve rate with its uncertainty, in all and by family and tier.

Floor 6. Knows problems and verdicts. Does not know training.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from repl_rl.display import Screen
from repl_rl.errors import ConfigError
from repl_rl.rollouts import Attempt
from repl_rl.seeds import derive_seed
from repl_rl.summary import is_solved, is_ungraded, solve_counts, wilson_interval
from repl_rl.tasks.base import Task
from repl_rl.types import Scored, Split
from repl_rl.workbench import Workbench


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an evaluation found. Problems that could not be graded are in `ungraded` alone."""

    solved: int
    total: int
    ungraded: int
    by_family: dict[str, tuple[int, int]]
    """(solved, graded) by family."""
    by_tier: dict[str, tuple[int, int]]

    @property
    def rate(self) -> float:
        return self.solved / self.total if self.total else 0.0

    def __str__(self) -> str:
        low, high = wilson_interval(self.solved, self.total)
        return f"{percent(self.solved, self.total)} (95 % interval {low:.1%} to {high:.1%})"

    def table(self) -> str:
        """Rates in all, by family and by tier, one a line."""
        rows = [f"{'all':16}{self}"]
        for counts in (self.by_family, self.by_tier):
            for name, (solved, total) in counts.items():
                rows.append(f"  {name:14}{percent(solved, total)}")
        if self.ungraded:
            rows.append(f"not graded: {self.ungraded}")
        return "\n".join(rows)


def held_out_attempts(task: Task, *, count: int, seed: int) -> list[Attempt]:
    """One attempt at each of `count` held-out problems; the same seed asks the same ones.

    Raises ConfigError if there are none.
    """
    source = task.problems(Split.HELD_OUT, seed=derive_seed(seed, "held-out"))
    problems = list(itertools.islice(source, count))
    if count and not problems:
        raise ConfigError(f"task {task.name!r} has no problems in its split {Split.HELD_OUT!s}")
    return [
        Attempt(
            problem=problem,
            group_index=index,
            sibling_index=0,
            seed=derive_seed(seed, "evaluation", index),
        )
        for index, problem in enumerate(problems)
    ]


def run_shown(
    bench: Workbench, attempts: Sequence[Attempt], description: str, screen: Screen
) -> list[Scored]:
    """Run attempts behind a bar that counts the solved ones."""
    counts = [0, 0]
    with screen.bar(description, len(attempts)) as update:

        def on_scored(scored: Scored) -> None:
            counts[0] += 1
            counts[1] += is_solved(scored)
            update(counts[0], f"{counts[1]} solved")

        return bench.run(attempts, on_scored=on_scored)


def report(scored: Sequence[Scored]) -> Report:
    """Count what was solved."""
    solved, total = solve_counts(scored).get("all", (0, 0))
    return Report(
        solved=solved,
        total=total,
        ungraded=sum(map(is_ungraded, scored)),
        by_family=solve_counts(scored, "family"),
        by_tier=solve_counts(scored, "tier"),
    )


def percent(solved: int, total: int) -> str:
    """`41.5 % of 200`."""
    return f"{100 * solved / total:.1f} % of {total}" if total else "nothing graded"
