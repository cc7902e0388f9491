"""Held-out solve rate with its uncertainty, overall and by family and tier.

    task, seed -> held-out attempts -> Runtime -> Scored -> Report

`HeldOut` keeps the measurements of a run: it reads back those on record, and tells when one beats
all earlier ones. `answers` samples where nobody knows the answer. Knows problems and verdicts. Does
not know the update.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from repl_rl.base.concurrency import derive_seed
from repl_rl.credit.base import More
from repl_rl.engines.base import Engine
from repl_rl.errors import ConfigError
from repl_rl.models.loading import LoadedModel
from repl_rl.progress import Progress, Update
from repl_rl.records import Attempt, Problem, Scored, Split, Trajectory, Verdict
from repl_rl.rollout.plan import Plan
from repl_rl.runs import folder, summary, trajectory_file
from repl_rl.runs.metrics import habits
from repl_rl.runs.sink import Sink
from repl_rl.tasks.base import Task, baselines_of
from repl_rl.training.runtime import Runtime, open_runtime

NOT_MEASURED = "not measured"
"""Text in place of a report where no problem was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of an evaluation. An ungraded answer counts as not solved."""

    all: summary.Rate
    by_family: Mapping[str, summary.Rate]
    by_tier: Mapping[str, summary.Rate]
    habits: Mapping[str, float]
    """Use of the REPL, by names of metrics."""

    @property
    def rate(self) -> float:
        return self.all.rate

    @property
    def rows(self) -> dict[str, summary.Rate]:
        """The rate in all, of each family and of each tier, by its name in a table."""
        tiers = {f"tier {name}": rate for name, rate in self.by_tier.items()}
        return {"all": self.all, **self.by_family, **tiers}

    def __str__(self) -> str:
        total = self.all
        low, high = total.interval
        rate = f"{percent(total.solved, total.total)} (95 % interval {low:.1%} to {high:.1%})"
        if total.baselines:
            shares = ", ".join(f"{name} {share:.1%}" for name, share in total.baselines.items())
            rate += f"; baselines: {shares}"
        if not total.ungraded:
            return rate
        graded = percent(total.solved, total.total - total.ungraded)
        return f"{rate}; not graded: {total.ungraded}, of the graded {graded}"


def held_out_attempts(task: Task, *, count: int, seed: int, samples: int = 1) -> list[Attempt]:
    """`samples` attempts at each of `count` held-out problems; the same seed asks the same ones.

    The first attempt at each is the same whatever `samples` is. Raises ConfigError if there are no
    problems.
    """
    source = task.problems(Split.HELD_OUT, seed=derive_seed(seed, "held-out"))
    problems = list(itertools.islice(source, count))
    if count and not problems:
        raise ConfigError(
            f"task {task.name!r} has no problems in its split {Split.HELD_OUT!s}; give --task "
            f"with others to measure, or --set eval.problems=0 to train without a measurement"
        )
    return [
        Attempt(
            problem=problem,
            group_index=index,
            sibling_index=sample,
            seed=attempt_seed(seed, index, sample),
        )
        for index, problem in enumerate(problems)
        for sample in range(samples)
    ]


def attempt_seed(seed: int, index: int, sample: int = 0) -> int:
    """The seed of an attempt at problem number `index` in an evaluation with `seed`."""
    return derive_seed(seed, "evaluation", index, *([sample] if sample else []))


def run_shown(
    runtime: Runtime,
    attempts: Sequence[Attempt],
    description: str,
    progress: Progress,
    *,
    on_scored: Callable[[Scored], None] = lambda _: None,
) -> list[Scored]:
    """Run attempts behind a bar, see `run_counted`."""
    with progress.bar(description, len(attempts)) as update:
        return run_counted(runtime, attempts, update, on_scored=on_scored)


def run_counted(
    runtime: Runtime,
    attempts: Sequence[Attempt],
    update: Update,
    *,
    on_scored: Callable[[Scored], None] = lambda _: None,
    more: More | None = None,
) -> list[Scored]:
    """Run attempts behind a bar that shows how many are solved and how fast tokens are sampled.

    `on_scored` and `more` are those of `RolloutRunner.run`.
    """
    pace = _Pace(runtime.engine, len(attempts))

    def count(scored: Scored) -> None:
        on_scored(scored)
        pace.num_scored += 1
        pace.num_solved += summary.is_solved(scored)
        update(pace.num_scored, pace.note, pace.total)

    def counted(more: More, so_far: Trajectory) -> Sequence[Attempt]:
        added = more(so_far)
        pace.add(len(added))
        return added

    update(0, pace.note)
    return runtime.run(
        attempts,
        on_sampled=pace.sampled,
        on_scored=count,
        more=None if more is None else partial(counted, more),
    )


class _Pace:
    """Numbers of rollouts under way, for a bar."""

    def __init__(self, engine: Engine, total: int) -> None:
        self._engine = engine
        self.total = self._left = total
        self._began, self._before = time.monotonic(), engine.num_sampled
        self.num_scored = 0
        self.num_solved = 0

    def add(self, number: int) -> None:
        self.total += number
        self._left += number

    def sampled(self) -> None:
        self._left -= 1

    def note(self) -> str:
        seconds = max(1e-3, time.monotonic() - self._began)
        pace = f"{(self._engine.num_sampled - self._before) / seconds:,.0f} tokens/s"
        return f"{self.num_solved} solved, {pace if self._left > 0 else 'grading'}"


def warn_of_ungraded(scored: Sequence[Scored], progress: Progress) -> bool:
    """Warn if more than a few could not be graded. Returns whether it did."""
    warning = summary.ungraded_warning(scored)
    if warning is not None:
        progress.warn(warning)
    return warning is not None


def warn_of_lost(measured: Sequence[Scored], progress: Progress) -> None:
    """Warn if more than a few of a measurement could not be graded, or ran out of time."""
    warn_of_ungraded(measured, progress)
    warning = summary.slow_warning(measured)
    if warning is not None:
        progress.warn(warning)


def report(scored: Sequence[Scored], baselines: summary.Baselines = summary.NO_BASELINES) -> Report:
    """Count what was solved of these, one at least, beside what others solve of such problems."""
    return Report(
        all=summary.rate_of(scored, baselines),
        by_family=summary.rates_by(scored, "family", baselines),
        by_tier=summary.rates_by(scored, "tier", baselines),
        habits=habits(scored),
    )


def percent(solved: int, total: int) -> str:
    """`41.5 % of 200`."""
    return f"{100 * solved / total:.1f} % of {total}" if total else "none"


@dataclass(slots=True, kw_only=True)
class HeldOut:
    """The measurements of one run. A step that is on record already is read back.

    Each of several ranks samples its share; the first has the `sink`, and gets the rows of all.
    """

    attempts: Sequence[Attempt]
    runtime: Runtime
    progress: Progress
    sink: Sink | None
    rates: dict[int, float] = field(default_factory=dict)
    """Rates on record, by their steps."""
    keep_best: Callable[[int], None] | None = None
    """Called with the step of each measurement that beats `best_rate`, the weights of the start
    apart. By all ranks."""
    best_rate: float = -1.0
    """Rate of the weights that were kept last; below any other where there are none."""

    def measure(self, step: int) -> Report | None:
        """The solve rate after so many updates, one trajectory for each problem.

        None where there is no problem: nothing is measured, and nothing is written. None as well
        where a measurement is on record and somebody has taken its file away.
        """
        if not self.attempts:
            return None
        name = folder.evaluation_name(step)
        measured = None
        if step not in self.rates:
            measured = self._sample(step, name)
        elif self.sink is not None and (file := self.sink.folder.trajectories(name)).exists():
            measured = self._report(list(trajectory_file.read_trajectories(file)))
        return self.runtime.ranks.from_first(measured)

    def _report(self, scored: Sequence[Scored]) -> Report:
        return report(scored, baselines_of(self.runtime.plan.task))

    def _sample(self, step: int, name: str) -> Report | None:
        """The report on the rows of all ranks, for the one that has the sink."""
        started = time.monotonic()
        own, title = self.runtime.ranks.share(self.attempts), f"held-out, step {step}"
        sampled = self.runtime.interrupts.stoppable(
            lambda: run_shown(self.runtime, own, title, self.progress)
        )
        scored = self.runtime.ranks.gather_first(sampled or [])
        self.runtime.interrupts.release()
        measured, is_best = None, False
        if self.sink is not None:
            self.sink.folder.append_trajectories(name, scored)
            warn_of_lost(scored, self.progress)
            measured = self._report(scored)
            is_best = step > 0 and measured.rate > self.best_rate
        # Before the row: once that is there, the measurement is not made again.
        if self.keep_best is not None and self.runtime.ranks.any(is_best):
            self.keep_best(step)
            self.best_rate = self.best_rate if measured is None else measured.rate
        if self.sink is not None and measured is not None:
            self._record(self.sink, step, measured, seconds=time.monotonic() - started)
        return measured

    def _record(self, sink: Sink, step: int, measured: Report, *, seconds: float) -> None:
        self.rates[step] = measured.rate
        sink.write(
            step,
            {
                "eval_solve_rate": measured.rate,
                "eval_total": measured.all.total,
                "eval_ungraded": measured.all.ungraded,
                **{f"eval_{name}": value for name, value in measured.habits.items()},
                "eval_runtime": seconds,
            },
        )


@dataclass(slots=True, kw_only=True)
class AskedTask:
    """A task of problems that somebody put."""

    name: str
    prompt: str
    asked: Sequence[Problem]

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        yield from self.asked

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("nobody knows the answer")


def asking(plan: Plan, problems: Sequence[Problem], *, prompt: str | None = None) -> Plan:
    """The plan for `problems`, whose answers nobody knows, in this prompt or in its task's."""
    prompt = plan.task.prompt if prompt is None else prompt
    task = AskedTask(name=plan.task.name, prompt=prompt, asked=problems)
    return replace(plan, task=task, is_graded=False)


def answers(
    plan: Plan, attempts: Sequence[Attempt], loaded: LoadedModel, progress: Progress
) -> list[Trajectory]:
    """Return the model's trajectories for all attempts, behind a bar. Raises as `open_runtime`."""
    sampling, done = plan.sampling, itertools.count(1)
    about = f"temperature {sampling.temperature:g}, at most {sampling.max_tokens:,} tokens each"
    with (
        open_runtime(plan, loaded, say=progress.say) as runtime,
        progress.bar(f"problems at {about}", len(attempts)) as update,
    ):
        scored = runtime.run(attempts, on_scored=lambda _: update(next(done)))
    return [one.trajectory for one in scored]
