"""Held-out solve rate with its uncertainty, overall and by family and tier.

Knows problems and verdicts. Does not know training.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repl_rl.engines.base import Engine
from repl_rl.errors import ConfigError
from repl_rl.runs.summary import (
    is_solved,
    is_ungraded,
    solve_counts,
    ungraded_warning,
    wilson_interval,
)
from repl_rl.seeds import derive_seed
from repl_rl.show.bars import Update
from repl_rl.show.display import Screen
from repl_rl.tasks.base import Task
from repl_rl.training.runtime import Runtime
from repl_rl.types import Attempt, Scored, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of an evaluation. An ungraded answer counts as not solved."""

    solved: int
    total: int
    ungraded: int
    """Of `total`."""
    by_family: dict[str, tuple[int, int]]
    """(solved, all) by family."""
    by_tier: dict[str, tuple[int, int]]

    @property
    def rate(self) -> float:
        return self.solved / self.total if self.total else 0.0

    def __str__(self) -> str:
        low, high = wilson_interval(self.solved, self.total)
        rate = f"{percent(self.solved, self.total)} (95 % interval {low:.1%} to {high:.1%})"
        if not self.ungraded:
            return rate
        graded = percent(self.solved, self.total - self.ungraded)
        return f"{rate}; not graded: {self.ungraded}, of the graded {graded}"

    def table(self) -> str:
        """Rates in all, by family and by tier, one a line."""
        tiers = {f"tier {name}": counts for name, counts in self.by_tier.items()}
        rows = [
            f"  {name:14}{percent(solved, total)}"
            for name, (solved, total) in (self.by_family | tiers).items()
        ]
        return "\n".join([f"{'all':16}{self}", *rows])


def held_out_attempts(task: Task, *, count: int, seed: int, samples: int = 1) -> list[Attempt]:
    """`samples` attempts at each of `count` held-out problems; the same seed asks the same ones.

    The first attempt at each is the same whatever `samples` is. Raises ConfigError if there are no
    problems.
    """
    source = task.problems(Split.HELD_OUT, seed=derive_seed(seed, "held-out"))
    problems = list(itertools.islice(source, count))
    if count and not problems:
        raise ConfigError(f"task {task.name!r} has no problems in its split {Split.HELD_OUT!s}")
    return [
        Attempt(
            problem=problem,
            group_index=index,
            sibling_index=sample,
            seed=derive_seed(seed, "evaluation", index, *([sample] if sample else [])),
        )
        for index, problem in enumerate(problems)
        for sample in range(samples)
    ]


def run_shown(
    runtime: Runtime, attempts: Sequence[Attempt], description: str, screen: Screen
) -> list[Scored]:
    """Run attempts behind a bar, see `run_counted`."""
    with screen.bar(description, len(attempts)) as update:
        return run_counted(runtime, attempts, update)


def run_counted(
    runtime: Runtime,
    attempts: Sequence[Attempt],
    update: Update,
    *,
    on_scored: Callable[[Scored], None] = lambda _: None,
) -> list[Scored]:
    """Run attempts behind a bar that shows how many are solved and how fast tokens are sampled."""
    counts = _Counts(runtime.engine, len(attempts))

    def hear(scored: Scored) -> None:
        on_scored(scored)
        counts.num_scored += 1
        counts.num_solved += is_solved(scored)
        update(counts.num_scored, counts.note)

    update(0, counts.note)
    return runtime.run(attempts, on_sampled=counts.sampled, on_scored=hear)


class _Counts:
    """Numbers of rollouts under way, for a bar."""

    def __init__(self, engine: Engine, total: int) -> None:
        self._engine = engine
        self._left = total
        self._began, self._before = time.monotonic(), engine.num_sampled
        self.num_scored = 0
        self.num_solved = 0

    def sampled(self) -> None:
        self._left -= 1

    def note(self) -> str:
        seconds = max(1e-3, time.monotonic() - self._began)
        pace = f"{(self._engine.num_sampled - self._before) / seconds:,.0f} tokens/s"
        return f"{self.num_solved} solved, {pace if self._left > 0 else 'grading'}"


def warn_of_ungraded(scored: Sequence[Scored], screen: Screen) -> bool:
    """Warn on the screen if more than a few could not be graded. Returns whether it did."""
    warning = ungraded_warning(scored)
    if warning is not None:
        screen.warn(warning)
    return warning is not None


def report(scored: Sequence[Scored]) -> Report:
    """Count what was solved."""
    solved, total = solve_counts(scored).get("all", (0, 0))
    return Report(
        solved=solved,
        total=total,
        ungraded=sum(map(is_ungraded, scored)),
        by_family=_named(solve_counts(scored, "family")),
        by_tier=_named(solve_counts(scored, "tier")),
    )


def _named(counts: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Empty where no problem names its kind: the only row would repeat the total."""
    return counts if set(counts) != {"?"} else {}


def percent(solved: int, total: int) -> str:
    """`41.5 % of 200`."""
    return f"{100 * solved / total:.1f} % of {total}" if total else "none"
