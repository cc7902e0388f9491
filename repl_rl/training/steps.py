"""The steps of a run: rollouts for an update, and a row of metrics after it.

    problem numbers, policy version -> Attempts -> Scored -> trajectories/, metrics.jsonl

The trainer calls back for each. A row adds up the rollouts of all ranks and splits the seconds of
the step among its parts. Knows a run's folder and its runtime. Does not know the update.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import TrainerCallback

from repl_rl.base.concurrency import Interrupts, derive_seed
from repl_rl.config import Config
from repl_rl.credit.advantages import dead_groups, distinct
from repl_rl.credit.base import Credit
from repl_rl.errors import ConfigError, DivergedError
from repl_rl.progress import Progress, Update
from repl_rl.records import Attempt, Problem, Scored, Split
from repl_rl.runs.folder import rollouts_name
from repl_rl.runs.rollout_metrics import percentiles, rollout_metrics
from repl_rl.runs.sink import Sink
from repl_rl.tasks.base import Task
from repl_rl.training.evaluate import HeldOut, run_counted, warn_of_ungraded
from repl_rl.training.runtime import Runtime
from repl_rl.update.ranks import ALONE, Ranks
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Counts and times of the rollouts of one rank."""

    seconds: float
    num_retries: int
    num_sampled: int
    busy_s: float
    """With a line in flight."""
    prefix: tuple[int, int]
    """(tokens that needed no forward, tokens that lines were asked for after)."""
    starts_ms: Sequence[float]
    verdicts_ms: Sequence[float]


class RolloutCounts:
    """Counters as they are before a step's rollouts."""

    def __init__(self, runtime: Runtime, ranks: Ranks) -> None:
        self._runtime = runtime
        self._ranks = ranks
        runtime.waits.clear()
        self._started = time.monotonic()
        self._num_retries = runtime.num_retries
        self._num_sampled = runtime.engine.num_sampled
        self._busy_s = runtime.engine.busy_s
        self._prefix = runtime.engine.prefix_tokens

    def metrics(self, scored: Sequence[Scored], shares: Sequence[float]) -> dict[str, float]:
        """The numbers of the rollouts that have ended with these trajectories, those of all ranks.

        `shares` are those of `Credit.shares`.

        All ranks call it; the first one has the trajectories, the others get nothing.
        """
        seconds = time.monotonic() - self._started
        made = self._ranks.gather_first([self._own(seconds)])
        if not self._ranks.is_first:
            return {}
        num_kept = sum(item.trajectory.num_sampled for item in scored)
        return {
            **rollout_metrics(scored, seconds=seconds, weights=shares),
            "rollout/retries": sum(one.num_retries for one in made),
            "rollout/wasted_tokens": sum(one.num_sampled for one in made) - num_kept,
            **percentiles("kernel/start", [ms for one in made for ms in one.starts_ms]),
            **percentiles("grader/verdict", [ms for one in made for ms in one.verdicts_ms]),
            **_engine_metrics(made),
        }

    def _own(self, seconds: float) -> _Counts:
        runtime, engine = self._runtime, self._runtime.engine
        return _Counts(
            seconds=seconds,
            num_retries=runtime.num_retries - self._num_retries,
            num_sampled=engine.num_sampled - self._num_sampled,
            busy_s=engine.busy_s - self._busy_s,
            prefix=_since(self._prefix, engine.prefix_tokens),
            starts_ms=runtime.waits.starts_ms,
            verdicts_ms=runtime.waits.verdicts_ms,
        )


def _since(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    return after[0] - before[0], after[1] - before[1]


def _engine_metrics(made: Sequence[_Counts]) -> dict[str, float]:
    """Return the metrics of all ranks' engines, without those that none counts or was asked for."""
    busy_s = sum(one.busy_s for one in made)
    kept, asked = map(sum, zip(*(one.prefix for one in made), strict=True))
    speeds = [one.num_sampled / one.busy_s for one in made if one.busy_s]
    return {
        "engine/idle_share": max(0.0, 1 - busy_s / sum(one.seconds for one in made)),
        **({"engine/tokens_per_s": sum(speeds)} if speeds else {}),
        **({"engine/prefix_hit_rate": kept / asked} if asked else {}),
    }


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


class Training:
    """The steps of one run; the trainer calls back into it.

    Each of several ranks samples its share of the rows. The first has the run's sink, which is None
    for the others, and gets the rows of all.
    """

    def __init__(
        self,
        config: Config,
        problems: ProblemSequence,
        held_out: HeldOut,
        runtime: Runtime,
        progress: Progress,
        *,
        credit: Credit,
        sink: Sink | None,
        interrupts: Interrupts,
        ranks: Ranks = ALONE,
    ) -> None:
        self._config = config
        self._problems = problems
        self._held_out = held_out
        self._runtime = runtime
        self._progress = progress
        self._credit = credit
        self._sink = sink
        self._interrupts = interrupts
        self._ranks = ranks
        self._row: dict[str, float] = {}
        self._groups: dict[str, float] = {}
        """Number of groups of the latest rollout that were rolled out again, and of those that
        taught nothing to the end."""
        self._num_again = 0
        """The first number, of this rank alone."""
        self._scored: list[Scored] = []
        self._is_warned = False
        """Warned of ungraded answers, once in all steps."""
        self._laps = Laps()

    def collect(self, numbers: Sequence[int], policy_version: int) -> list[Scored]:
        """The rollouts of one step: see `trainer.Collect`."""
        self._interrupts.release()
        runtime = self._runtime
        self._laps.begin("sync")
        gap = runtime.sync(policy_version)
        if policy_version and self._is_due(self._config.eval.every, policy_version):
            self._laps.begin(_EVALUATION)
            if (found := self._held_out.measure(policy_version)) is not None:
                self._progress.say(f"held-out, step {policy_version}: {found}")
        update = self._progress.inside("sampling", len(numbers))
        self._laps.begin("rollout")
        counted = RolloutCounts(runtime, self._ranks)
        scored = self._roll_out(numbers, policy_version, update)
        runtime.sleep()
        self._row = {
            **counted.metrics(self._scored, self._credit.shares(self._scored)),
            "rollout/sync_gap": gap,
            **self._groups,
        }
        self._laps.begin("update")
        self._begin_update(len(scored))
        return scored

    def _begin_update(self, num_rows: int) -> None:
        grpo = self._config.grpo
        size = largest_divisor(num_rows // grpo.updates_per_rollout, at_most=grpo.most_rows)
        self._micro_batches = itertools.count(1)
        self._updated = self._progress.inside("update", num_rows * grpo.passes // size)

    def _is_due(self, every: int, step: int) -> bool:
        """Return whether a rollout whose last update is `step` holds a multiple of `every`."""
        return every > 0 and step % every < self._config.grpo.num_rollout_updates

    def is_rollout_used_up(self, step: int) -> bool:
        """Return whether the next update waits for a rollout: only there a run can go on."""
        return step % self._config.grpo.num_rollout_updates == 0

    def micro_batch_done(self) -> None:
        """The update has done one micro-batch."""
        self._updated(next(self._micro_batches))

    def _roll_out(
        self, numbers: Sequence[int], policy_version: int, update: Update
    ) -> list[Scored]:
        """Roll out this rank's rows of one step; if something ends it, those made so far are kept.

        The first rank also has those of all, in the order of the batch.
        """
        name, kept = rollouts_name(policy_version), list[Scored]()
        attempts = self._attempts(numbers, policy_version)
        try:
            own = self._interrupts.stoppable(
                lambda: self._roll_again(
                    self._rows(attempts, update, kept.append), numbers, policy_version
                )
            )
            self._scored = self._ranks.gather_first(kept if own is None else distinct(own))
            self._groups = {
                "group/rerolled": sum(self._ranks.gather([self._num_again])),
                # Of the rows of all: a group may lie across ranks.
                "group/dead": len(dead_groups(self._scored, self._credit)),
                **self._credit.metrics(self._scored),
            }
        except BaseException:
            if kept and self._sink is not None:
                self._sink.folder.append_trajectories(name, kept)
            raise
        if self._scored and self._sink is not None:
            self._sink.folder.append_trajectories(name, self._scored)
        self._interrupts.release()
        assert own is not None
        return own

    def _rows(
        self, attempts: Sequence[Attempt], update: Update, on_scored: Callable[[Scored], None]
    ) -> list[Scored]:
        """A trajectory for each attempt."""
        run = partial(run_counted, self._runtime, update=update, on_scored=on_scored)
        return self._credit.roll_out(attempts, run)

    def _roll_again(
        self, scored: list[Scored], numbers: Sequence[int], policy_version: int
    ) -> list[Scored]:
        """`scored` with other trajectories for groups that teach nothing, which are not kept."""
        self._num_again = 0
        dead = dead_groups(scored, self._credit)
        for again in range(1, self._config.grpo.rerolls + 1):
            if not dead:
                break
            self._num_again += len(dead)
            attempts = self._attempts(numbers, policy_version, again=again)
            places = [i for i, one in enumerate(attempts) if one.group_index in dead]
            update = self._progress.inside("again", len(places))
            fresh = run_counted(self._runtime, [attempts[i] for i in places], update)
            for place, item in zip(places, fresh, strict=True):
                scored[place] = item
            dead = dead_groups(scored, self._credit)
        return scored

    def log(self, step: int, total: int, logs: dict[str, float]) -> None:
        """One step is done: `logs` are the trainer's numbers, the rollouts' are at hand.

        A rollout's numbers stand with the first step that it feeds.
        """
        if self._sink is None:
            return
        known = {name: value for name, value in logs.items() if isinstance(value, int | float)}
        spent = self._laps.take(then="other")
        spent.pop(_EVALUATION, None)  # a row of its own says how long it took
        row = {**self._row, **known, **time_metrics(spent, *self._runtime.waits.shares())}
        self._row = {}
        self._sink.write(step, row)
        self._progress.metrics(step, total, row)
        self._is_warned = self._is_warned or warn_of_ungraded(self._scored, self._progress)
        if step == 1 or step % self._config.report.sample_every == 0:
            chosen = random.Random(derive_seed(self._config.seed, "sample", step))
            shown = chosen.choice(self._scored)
            name = rollouts_name(shown.trajectory.policy_version)  # as `show --step` has it
            self._progress.sample(name, shown, self._runtime.decode)

    def _attempts(
        self, numbers: Sequence[int], policy_version: int, *, again: int = 0
    ) -> list[Attempt]:
        """Make the attempts of this rank's rows.

        A group may lie across ranks, so siblings are numbered in the whole batch. `again` counts
        how often the attempts were made before: other seeds, all else the same.
        """
        first, tries = self._ranks.rank * len(numbers), [again] if again else []
        attempts = []
        for row, number in enumerate(numbers, first):
            sibling = row % self._config.grpo.group_size
            seed = derive_seed(
                self._config.seed, "rollout", policy_version, number, sibling, *tries
            )
            attempts.append(
                Attempt(
                    problem=self._problems[number],
                    group_index=number,
                    sibling_index=sibling,
                    seed=seed,
                )
            )
        return attempts


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
        found = next(self._source, None)
        if found is None:
            self._source = self._begin()
            found = next(self._source, None)
        if found is None:
            name = self._task.name
            raise ConfigError(f"task {name!r} has no problems in its split {Split.TRAIN!s}")
        self._held.append(found)
        self._num_drawn += 1


class StepCallback(TrainerCallback):
    """Tells `training` what the trainer does. A signal waits while weights are half updated."""

    def __init__(self, training: Training, update: Update, interrupts: Interrupts) -> None:
        self._training = training
        self._update = update
        self._interrupts = interrupts

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        if logs and "loss" in logs:
            _refuse_divergence(state.global_step, logs)
            self._training.log(state.global_step, state.max_steps, logs)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.micro_batch_done()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # Until the next rollouts, or the end: what is left of a rollout cannot be resumed.
        self._interrupts.hold()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.micro_batch_done()
        self._update(state.global_step)
        if self._interrupts.is_asked() and self._training.is_rollout_used_up(state.global_step):
            control.should_save = control.should_training_stop = True


def _refuse_divergence(step: int, logs: Mapping[str, float | None]) -> None:
    for name in ("loss", "grad_norm"):
        value = logs.get(name, 0.0)
        # transformers logs None for a number that is not finite.
        if value is None or not math.isfinite(value):
            raise DivergedError(
                f"training diverged at step {step}: the {name} is not finite; lower "
                f"grpo.learning_rate, or grpo.max_grad_norm"
            )
