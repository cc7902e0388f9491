"""The steps of a run: rollouts for an update, and a row of metrics after it.

    problem numbers, policy version -> Attempts -> Scored -> trajectories/, metrics.jsonl

The trainer calls back for each. A row adds up the rollouts of all ranks and splits the seconds of
the step among its parts. Knows a run's folder and its runtime. Does not know the update.
"""

from __future__ import annotations

import itertools
import operator
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from transformers import TrainerCallback

from repl_rl.base.concurrency import derive_seed
from repl_rl.config.sections import Settings
from repl_rl.credit.advantages import dead_groups, distinct, rolled_out
from repl_rl.credit.base import Credit
from repl_rl.errors import ConfigError
from repl_rl.progress import Progress, Update, ignore
from repl_rl.records import Attempt, Problem, Scored, Split, Stem
from repl_rl.runs.folder import rollouts_name
from repl_rl.runs.metrics import percentiles, rollout_metrics
from repl_rl.runs.sink import Sink
from repl_rl.tasks.base import Task
from repl_rl.training.evaluate import HeldOut, run_counted, warn_of_ungraded
from repl_rl.training.runtime import Runtime
from repl_rl.training.solved_prefixes import SolvedPrefixes, run_as_one
from repl_rl.update.sft import refuse_divergence
from repl_rl.update.trainer import largest_divisor


class Laps:
    """A clock that always counts for one part, from the first `begin` on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._part: str | None = None
        self._since = 0.0
        self._seconds: dict[str, float] = {}

    def begin(self, part: str) -> None:
        """Count the time from here on for `part`."""
        now = self._clock()
        if self._part is not None:
            self._seconds[self._part] = self._seconds.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now

    def take(self, then: str) -> dict[str, float]:
        """Seconds by part since the last `take`; what follows goes to `then`."""
        self.begin(then)
        taken, self._seconds = self._seconds, {}
        return taken


class _Counters(NamedTuple):
    """Counters of one rank, or how far rollouts have moved them."""

    seconds: float
    num_retries: int
    num_sampled: int
    busy_s: float
    """With a line in flight."""
    num_shared: int
    """Tokens before lines that needed no forward."""
    num_before: int
    """Tokens that lines were asked for after."""


def _counters(runtime: Runtime) -> _Counters:
    engine = runtime.engine
    retries = runtime.runner.num_retries
    return _Counters(
        time.monotonic(), retries, engine.num_sampled, engine.busy_s, *engine.prefix_tokens
    )


class RolloutCounts:
    """Counters as they are before a step's rollouts."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        runtime.runner.waits.clear()
        self._before = _counters(runtime)

    def metrics(self, scored: Sequence[Scored], shares: Sequence[float]) -> dict[str, float]:
        """The numbers of the rollouts that have ended with these trajectories, those of all ranks.

        `shares` are those of `Credit.shares`.

        All ranks call it; the first one has the trajectories, the others get nothing.
        """
        own = _Counters(*map(operator.sub, _counters(self._runtime), self._before))
        waits, ranks = self._runtime.runner.waits, self._runtime.ranks
        gathered = ranks.gather_first([(own, waits.starts_ms, waits.verdicts_ms)])
        if not ranks.is_first:
            return {}
        counts, starts_ms, verdicts_ms = zip(*gathered, strict=True)
        total = _Counters(*map(sum, zip(*counts, strict=True)))
        num_tokens = sum(item.trajectory.num_sampled for item in scored)
        speeds = [one.num_sampled / one.busy_s for one in counts if one.busy_s]
        row = {
            **rollout_metrics(scored, seconds=own.seconds, weights=shares),
            "rollout/retries": total.num_retries,
            "rollout/wasted_tokens": total.num_sampled - num_tokens,
            **percentiles("kernel/start", list(itertools.chain(*starts_ms))),
            **percentiles("grader/verdict", list(itertools.chain(*verdicts_ms))),
            "engine/idle_share": max(0.0, 1 - total.busy_s / total.seconds),
        }
        if speeds:  # none of an engine that was not asked, nor prefixes of one that counts none
            row["engine/tokens_per_s"] = sum(speeds)
        if total.num_before:
            row["engine/prefix_hit_rate"] = total.num_shared / total.num_before
        return row


def time_metrics(
    spent: Mapping[str, float], kernel_share: float, grading_share: float
) -> dict[str, float]:
    """Seconds of a step by what they went into; they add up to all of `spent`.

    Rollouts overlap: one trajectory is sampled while the kernel of another is at work. So the time
    of the rollouts is divided as their trajectories' own times are, taken together.
    """
    rollouts = spent.get("rollout", 0.0)
    kernel, grading = rollouts * kernel_share, rollouts * grading_share
    return {
        "time/rollout": rollouts - kernel - grading,
        "time/kernel": kernel,
        "time/grading": grading,
        **{f"time/{part}": spent.get(part, 0.0) for part in ("sync", "update", "other")},
    }


_EVALUATION = "evaluation"


@dataclass(slots=True, kw_only=True)
class Training:
    """The steps of one run; the trainer calls back into it.

    Each of several ranks samples its share of the rows. The first has the run's sink, which is None
    for the others, and gets the rows of all.
    """

    settings: Settings
    problems: ProblemSequence
    held_out: HeldOut
    runtime: Runtime
    progress: Progress
    credit: Credit
    sink: Sink | None
    prefixes: SolvedPrefixes | None = None
    """None where all groups begin at their prompts."""
    _stems: Mapping[int, Stem] = field(default_factory=dict)
    """Beginnings of groups of the latest rollout, by their numbers."""
    _row: dict[str, float] = field(default_factory=dict)
    _groups: dict[str, float] = field(default_factory=dict)
    """Number of groups of the latest rollout that were rolled out again, and of those that
    taught nothing to the end."""
    _num_again: int = 0
    """The first number, of this rank alone."""
    _scored: list[Scored] = field(default_factory=list)
    _is_warned: bool = False
    """Warned of ungraded answers, once in all steps."""
    _laps: Laps = field(default_factory=Laps)
    _micro_batches: Iterator[int] = field(default_factory=itertools.count)
    _updated: Update = ignore

    def collect(self, numbers: Sequence[int], policy_version: int) -> list[Scored]:
        """The rollouts of one step: see `trainer.Collect`."""
        self.runtime.interrupts.release()
        runtime = self.runtime
        self._laps.begin("sync")
        gap = runtime.sync(policy_version)
        every = self.settings.eval.every
        # A rollout holds a multiple of `every`, where it is not its first update's.
        is_due = every and policy_version % every < self.settings.grpo.num_rollout_updates
        if policy_version and is_due:
            self._laps.begin(_EVALUATION)
            if (report := self.held_out.measure(policy_version)) is not None:
                self.progress.say(f"held-out, step {policy_version}: {report}")
        update = self.progress.inside("sampling", len(numbers))
        self._laps.begin("rollout")
        counted = RolloutCounts(runtime)
        scored = self._roll_out(numbers, policy_version, update)
        runtime.sleep()
        self._row = {
            **counted.metrics(self._scored, self.credit.shares(self._scored)),
            "rollout/sync_gap": gap,
            **self._groups,
        }
        self._laps.begin("update")
        grpo, num_rows = self.settings.grpo, len(scored)
        size = largest_divisor(num_rows // grpo.updates_per_rollout, at_most=grpo.most_rows)
        self._micro_batches = itertools.count(1)
        self._updated = self.progress.inside("update", num_rows * grpo.passes // size)
        return scored

    def is_rollout_used_up(self, step: int) -> bool:
        """Return whether the next update waits for a rollout: only there a run can go on."""
        return step % self.settings.grpo.num_rollout_updates == 0

    def micro_batch_done(self) -> None:
        """The update has done one micro-batch."""
        self._updated(next(self._micro_batches))

    def _roll_out(
        self, numbers: Sequence[int], policy_version: int, update: Update
    ) -> list[Scored]:
        """Roll out this rank's rows of one step; if something ends it, those made so far are kept.

        The first rank also has those of all, in the order of the batch.
        """
        name, made = rollouts_name(policy_version), list[Scored]()
        problems = {number: self.problems[number] for number in numbers}
        if self.prefixes is not None:
            self.prefixes.agree(problems)
        run = partial(run_counted, self.runtime, update=update, on_scored=made.append)

        def sample() -> list[Scored]:
            self._stems = {} if self.prefixes is None else self.prefixes.stems(problems)
            attempts = self._attempts(numbers, policy_version)
            scored = rolled_out(self.credit, attempts, partial(run_as_one, run))
            return self._roll_again(scored, numbers, policy_version)

        try:
            own = self.runtime.interrupts.stoppable(sample)
            self._scored = self.runtime.ranks.gather_first(made if own is None else distinct(own))
            self._groups = {
                "group/rerolled": sum(self.runtime.ranks.gather([self._num_again])),
                # Of the rows of all: a group may lie across ranks.
                "group/dead": len(dead_groups(self._scored, self.credit)),
                **self.credit.metrics(self._scored),
                **({} if self.prefixes is None else self.prefixes.metrics(self._scored)),
            }
        except BaseException:
            if made and self.sink is not None:
                self.sink.folder.append_trajectories(name, made)
            raise
        if self._scored and self.sink is not None:
            self.sink.folder.append_trajectories(name, self._scored)
            if self.prefixes is not None:
                self.prefixes.learn(self._scored)
        self.runtime.interrupts.release()
        assert own is not None
        return own

    def _roll_again(
        self, scored: list[Scored], numbers: Sequence[int], policy_version: int
    ) -> list[Scored]:
        """`scored` with other trajectories for groups that teach nothing, which are not kept."""
        self._num_again = 0
        dead = dead_groups(scored, self.credit)
        for again in range(1, self.settings.grpo.rerolls + 1):
            if not dead:
                break
            self._num_again += len(dead)
            attempts = self._attempts(numbers, policy_version, again=again)
            rows = [i for i, one in enumerate(attempts) if one.group_index in dead]
            update = self.progress.inside("again", len(rows))
            run = partial(run_counted, self.runtime, update=update)
            fresh = run_as_one(run, [attempts[i] for i in rows])
            for row, item in zip(rows, fresh, strict=True):
                scored[row] = item
            dead = dead_groups(scored, self.credit)
        return scored

    def log(self, step: int, total: int, logs: dict[str, float]) -> None:
        """One step is done: `logs` are the trainer's numbers, the rollouts' are at hand.

        A rollout's numbers stand with the first step that it feeds.
        """
        if self.sink is None:
            return
        known = {name: value for name, value in logs.items() if isinstance(value, int | float)}
        spent = self._laps.take(then="other")
        spent.pop(_EVALUATION, None)  # a row of its own says how long it took
        row = {**self._row, **known, **time_metrics(spent, *self.runtime.runner.waits.shares())}
        self._row = {}
        self.sink.write(step, row)
        self.progress.metrics(step, total, row)
        self._is_warned = self._is_warned or warn_of_ungraded(self._scored, self.progress)
        if step == 1 or step % self.settings.report.sample_every == 0:
            chosen = random.Random(derive_seed(self.settings.seed, "sample", step))
            sample = chosen.choice(self._scored)
            name = rollouts_name(sample.trajectory.policy_version)  # as `show --step` has it
            self.progress.sample(name, sample, self.runtime.loaded.codec.decode)

    def _attempts(
        self, numbers: Sequence[int], policy_version: int, *, again: int = 0
    ) -> list[Attempt]:
        """Make the attempts of this rank's rows.

        A group may lie across ranks, so siblings are numbered in the whole batch. `again` counts
        how often the attempts were made before: other seeds, all else the same.
        """
        first, tries = self.runtime.ranks.rank * len(numbers), [again] if again else []
        about, size = (self.settings.seed, "rollout", policy_version), self.settings.grpo.group_size
        return [
            Attempt(
                problem=self.problems[number],
                group_index=number,
                sibling_index=row % size,
                seed=derive_seed(*about, number, row % size, *tries),
                stem=self._stems.get(number),
            )
            for row, number in enumerate(numbers, first)
        ]


class ProblemSequence:
    """Training problems by number, drawn as they are asked for. A finite task starts over.

    The latest are held; for an earlier number the task is asked anew from its beginning.

    Raises ConfigError if there are none.
    """

    def __init__(self, task: Task, *, seed: int, num_held: int = 4096) -> None:
        self._task = task
        self._seed = derive_seed(seed, "train")
        self._held: deque[Problem] = deque(maxlen=num_held)
        self._num_drawn = 0
        self._source = self._begin()
        self._draw()

    def __getitem__(self, number: int) -> Problem:
        if number < self._num_drawn - len(self._held):
            self._held.clear()
            self._num_drawn, self._source = 0, self._begin()
        while self._num_drawn <= number:
            self._draw()
        return self._held[number - self._num_drawn]

    def _begin(self) -> Iterator[Problem]:
        return iter(self._task.problems(Split.TRAIN, seed=self._seed))

    def _draw(self) -> None:
        problem = next(self._source, None)
        if problem is None:
            self._source = self._begin()
            problem = next(self._source, None)
        if problem is None:
            name = self._task.name
            raise ConfigError(f"task {name!r} has no problems in its split {Split.TRAIN!s}")
        self._held.append(problem)
        self._num_drawn += 1


class StepCallback(TrainerCallback):
    """Tells `training` what the trainer does. A signal waits while weights are half updated."""

    def __init__(self, training: Training, update: Update) -> None:
        self._training = training
        self._update = update

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        if logs and "loss" in logs:
            refuse_divergence(state.global_step, logs, "grpo.learning_rate, or grpo.max_grad_norm")
            self._training.log(state.global_step, state.max_steps, logs)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.micro_batch_done()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # Until the next rollouts, or the end: what is left of a rollout cannot be resumed.
        self._training.runtime.interrupts.hold()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.micro_batch_done()
        self._update(state.global_step)
        interrupts = self._training.runtime.interrupts
        if interrupts.is_asked() and self._training.is_rollout_used_up(state.global_step):
            control.should_save = control.should_training_stop = True
