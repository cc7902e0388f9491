"""The steps of a run: rollouts for an update, and a row of metrics after it.

    problem numbers, policy version -> Attempts -> Scored -> trajectories/, metrics.jsonl

The trainer calls back for each. A row adds up the rollouts of all ranks and splits the seconds of
the step among its parts. Knows a run's folder and its runtime. Does not know the update.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from repl_rl.base.concurrency import Apart, derive_seed
from repl_rl.base.disk import replace_file
from repl_rl.config.sections import Settings
from repl_rl.credit.advantages import dead_groups, distinct, rolled_out
from repl_rl.credit.base import Credit
from repl_rl.errors import ConfigError
from repl_rl.progress import Progress, Update, ignore
from repl_rl.records import Attempt, Problem, Scored, Split, Stem
from repl_rl.runs.folder import rollouts_name
from repl_rl.runs.sink import Sink
from repl_rl.runs.trajectory_file import read_trajectories, rows_of
from repl_rl.tasks.base import Task
from repl_rl.training.evaluate import HeldOut, run_counted, warn_of_ungraded
from repl_rl.training.rollouts import (
    Laps,
    RolloutCounts,
    Taken,
    taken_metrics,
    time_metrics,
)
from repl_rl.training.runtime import Runtime
from repl_rl.training.solved_prefixes import SolvedPrefixes, run_as_one
from repl_rl.update.sft import refuse_divergence
from repl_rl.update.trainer import largest_divisor

_EVALUATION = "evaluation"
_Inside = Callable[[str, int], Update]
"""Makes a bar inside of another: see `Progress.inside`."""
_ROWS, _NUMBERS = "ahead.jsonl", "ahead.json"
"""In a checkpoint: trajectories of the next step, and the numbers of their rollouts."""


@dataclass(slots=True)
class _Rollouts:
    """This rank's rollouts of a step, under way or ended, and what they took."""

    step: int
    made: list[Scored] = field(default_factory=list)
    """Trajectories that have ended, in the order of their ends."""
    own: list[Scored] = field(default_factory=list)
    """Trajectories in the order of the batch, once all are there."""
    num_again: int = 0
    """Groups that were rolled out again."""
    taken: Taken | None = None
    """None where something ended them before all were there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rolled:
    """The rollouts of a step."""

    step: int
    """Updates before the first one that they feed."""
    own: list[Scored]
    """Trajectories of this rank, in the order of the batch."""
    all_ranks: list[Scored]
    """Trajectories of all, on the first rank alone; one may stand in several places."""
    row: dict[str, float] = field(default_factory=dict)
    """Numbers for a row of metrics, on the first rank alone."""
    waits: tuple[float, float] = (0.0, 0.0)
    """Shares as in `Taken.shares`."""


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
    _rolled: _Rolled | None = None
    """Rollouts of the step under way, or of the next one as soon as they have ended."""
    _ahead: tuple[_Rollouts, Apart[None]] | None = None
    """Rollouts of the next step, which are under way."""
    _row: dict[str, float] = field(default_factory=dict)
    """Numbers of the latest rollouts that no row of metrics has yet."""
    _is_warned: bool = False
    """Warned of ungraded answers, once in all steps."""
    _laps: Laps = field(default_factory=Laps)
    _micro_batches: Iterator[int] = field(default_factory=itertools.count)
    _updated: Update = ignore

    def collect(self, numbers: Sequence[int], policy_version: int) -> list[Scored]:
        """The rollouts of one step: see `trainer.Collect`."""
        self.runtime.interrupts.release()
        runtime, step = self.runtime, policy_version
        if self._ahead is not None:
            self._laps.begin("rollout")
            self._settle(*self._ahead)
        self._laps.begin("sync")
        gap = runtime.sync(step)
        every = self.settings.eval.every
        # A rollout holds a multiple of `every`, where it is not its first update's.
        is_due = every and step % every < self.settings.grpo.num_rollout_updates
        if step and is_due:
            self._laps.begin(_EVALUATION)
            if (report := self.held_out.measure(step)) is not None:
                self.progress.say(f"held-out, step {step}: {report}")
        if self._rolled is None or self._rolled.step != step:
            self._laps.begin("rollout")
            self._roll_out(numbers, step)
        rolled = self._rolled
        assert rolled is not None
        assert [one.trajectory.group_index for one in rolled.own] == list(numbers)
        self._row["rollout/sync_gap"] = gap
        grpo, num_rows = self.settings.grpo, len(rolled.own)
        if grpo.staleness and step + grpo.num_rollout_updates < grpo.steps:
            self._go_ahead(numbers, step)
        else:
            runtime.sleep()
        self._laps.begin("update")
        size = largest_divisor(num_rows // grpo.updates_per_rollout, at_most=grpo.most_rows)
        self._micro_batches = itertools.count(1)
        self._updated = self.progress.inside("update", num_rows * grpo.passes // size)
        return rolled.own

    def is_rollout_used_up(self, step: int) -> bool:
        """Return whether the next update waits for a rollout: only there a run can go on."""
        return step % self.settings.grpo.num_rollout_updates == 0

    def micro_batch_done(self) -> None:
        """The update has done one micro-batch."""
        self._updated(next(self._micro_batches))

    def can_go_on(self, step: int) -> bool:
        """Say whether a checkpoint of this step can have the rollouts that its run goes on with."""
        is_rolled = self._rolled is not None and self._rolled.step == step
        is_last = step >= self.settings.grpo.steps
        return not self.settings.grpo.staleness or is_rolled or self._ahead is not None or is_last

    def save(self, step: int, checkpoint: Path) -> None:
        """Write the next step's rollouts into the checkpoint of a step, where they are made ahead.

        The weights that sample them are gone by then. It waits for them, as the next update would.
        All ranks call it.
        """
        if not self.settings.grpo.staleness:
            return
        if self._ahead is not None and (self._rolled is None or self._rolled.step != step):
            self._settle(*self._ahead)
        rolled = self._rolled
        if self.sink is not None and rolled is not None and rolled.step == step:
            rows = rows_of(rolled.all_ranks)
            replace_file(checkpoint / _ROWS, rows)
            replace_file(checkpoint / _NUMBERS, json.dumps(rolled.row).encode())

    def restore(self, step: int, checkpoint: Path) -> None:
        """Take up what `save` has written. All ranks call it."""
        rows: list[Scored] = []
        row: dict[str, float] = {}
        if self.sink is not None and (checkpoint / _ROWS).is_file():
            known: dict[tuple[int, int], Scored] = {}
            for one in read_trajectories(checkpoint / _ROWS):
                sibling = one.trajectory.group_index, one.trajectory.sibling_index
                # One that stands in several places is one trajectory.
                rows.append(known.setdefault(sibling, one))
            row = json.loads((checkpoint / _NUMBERS).read_bytes())
        ranks = self.runtime.ranks
        rows = ranks.from_first(rows)
        if rows:
            self._keep(_Rolled(step=step, own=ranks.share(rows), all_ranks=rows, row=row))

    def close(self) -> None:
        """End rollouts that are under way. What there is of them is kept."""
        if self._ahead is not None:
            rollouts, work = self._ahead
            work.cancel()
            self._keep_part(rollouts)
            self._ahead = None

    def _roll_out(self, numbers: Sequence[int], step: int) -> None:
        """Roll out this rank's rows of one step."""
        rollouts = _Rollouts(step)
        sample = self._sampling(numbers, rollouts, self.progress.inside)
        self._take(rollouts, lambda: self.runtime.interrupts.stoppable(sample))
        self.runtime.interrupts.release()

    def _go_ahead(self, numbers: Sequence[int], step: int) -> None:
        """Begin the rollouts of the next step, with the weights from before this one's update."""
        grpo = self.settings.grpo
        num_problems = grpo.problems_per_step * grpo.updates_per_rollout
        numbers, step = [one + num_problems for one in numbers], step + grpo.num_rollout_updates
        rollouts = _Rollouts(step)
        # Without bars: the update's is on the screen.
        self._ahead = rollouts, Apart(self._sampling(numbers, rollouts, lambda *_: ignore))

    def _settle(self, rollouts: _Rollouts, work: Apart[None]) -> None:
        """Wait for the rollouts that were begun ahead. A signal waits as long: see `save`."""
        with self.runtime.interrupts.shield():
            try:
                self._take(rollouts, work.result)
            finally:
                self._ahead = None
            self.runtime.sleep()

    def _take(self, rollouts: _Rollouts, end: Callable[[], object]) -> None:
        """Keep the rollouts of a step, as they `end`; if that fails, those made so far.

        The first rank also has those of all, in the order of the batch.
        """
        try:
            end()
            rolled = self._gathered(rollouts)
        except BaseException:
            self._keep_part(rollouts)
            raise
        self._keep(rolled)

    def _sampling(
        self, numbers: Sequence[int], rollouts: _Rollouts, inside: _Inside
    ) -> Callable[[], None]:
        """Return what makes this rank's rollouts of a step.

        All ranks call it. It talks to no other rank itself.
        """
        problems = {number: self.problems[number] for number in numbers}
        if self.prefixes is not None:
            self.prefixes.agree(problems)
        update = inside("sampling", len(numbers))
        run = partial(run_counted, self.runtime, update=update, on_scored=rollouts.made.append)

        def sample() -> None:
            stems = {} if self.prefixes is None else self.prefixes.stems(problems)
            counted = RolloutCounts(self.runtime)  # without the task's scripts, which stems run
            make = partial(self._attempts, numbers, rollouts.step, stems)
            scored = rolled_out(self.credit, make(), partial(run_as_one, run))
            rollouts.own, rollouts.num_again = self._roll_again(scored, make, inside)
            rollouts.taken = counted.taken()

        return sample

    def _gathered(self, rollouts: _Rollouts) -> _Rolled:
        """The rollouts of all ranks, and the numbers of their row. All ranks call it."""
        ranks, own = self.runtime.ranks, rollouts.own or rollouts.made
        everything = ranks.gather_first(own)
        takens = [one for one in ranks.gather_first([rollouts.taken]) if one is not None]
        num_again = sum(ranks.gather([rollouts.num_again]))
        if rollouts.taken is None or not ranks.is_first:
            return _Rolled(step=rollouts.step, own=own, all_ranks=everything)
        scored = distinct(everything)
        row = {
            **taken_metrics(takens, scored, self.credit.shares(scored)),
            "group/rerolled": num_again,
            # Of the rows of all: a group may lie across ranks.
            "group/dead": len(dead_groups(scored, self.credit)),
            **self.credit.metrics(scored),
            **({} if self.prefixes is None else self.prefixes.metrics(scored)),
        }
        waits = rollouts.taken.shares
        return _Rolled(step=rollouts.step, own=own, all_ranks=everything, row=row, waits=waits)

    def _keep(self, rolled: _Rolled) -> None:
        self._rolled, self._row = rolled, dict(rolled.row)
        if self.sink is not None:
            scored = distinct(rolled.all_ranks)
            self.sink.folder.append_trajectories(rollouts_name(rolled.step), scored)
            if self.prefixes is not None:
                self.prefixes.learn(scored)

    def _keep_part(self, rollouts: _Rollouts) -> None:
        if rollouts.made and self.sink is not None:
            self.sink.folder.append_trajectories(rollouts_name(rollouts.step), rollouts.made)

    def _roll_again(
        self, scored: list[Scored], make: Callable[..., list[Attempt]], inside: _Inside
    ) -> tuple[list[Scored], int]:
        """`scored` with other trajectories for groups that teach nothing, which are not kept.

        The number counts the groups that were rolled out again.
        """
        num_again = 0
        dead = dead_groups(scored, self.credit)
        for again in range(1, self.settings.grpo.rerolls + 1):
            if not dead:
                break
            num_again += len(dead)
            attempts = make(again=again)
            rows = [i for i, one in enumerate(attempts) if one.group_index in dead]
            run = partial(run_counted, self.runtime, update=inside("again", len(rows)))
            fresh = run_as_one(run, [attempts[i] for i in rows])
            for row, item in zip(rows, fresh, strict=True):
                scored[row] = item
            dead = dead_groups(scored, self.credit)
        return scored, num_again

    def log(self, step: int, total: int, logs: dict[str, float]) -> None:
        """One step is done: `logs` are the trainer's numbers, the rollouts' are at hand.

        A rollout's numbers stand with the first step that it feeds.
        """
        if self.sink is None:
            return
        known = {name: value for name, value in logs.items() if isinstance(value, int | float)}
        spent = self._laps.take(then="other")
        spent.pop(_EVALUATION, None)  # a row of its own says how long it took
        rolled = self._rolled
        assert rolled is not None
        row = {**self._row, **known, **time_metrics(spent, *rolled.waits)}
        self._row = {}
        self.sink.write(step, row)
        self.progress.metrics(step, total, row)
        self._is_warned = self._is_warned or warn_of_ungraded(rolled.all_ranks, self.progress)
        if step == 1 or step % self.settings.report.sample_every == 0:
            chosen = random.Random(derive_seed(self.settings.seed, "sample", step))
            sample = chosen.choice(distinct(rolled.all_ranks))
            name = rollouts_name(rolled.step)  # as `show --step` has it
            self.progress.sample(name, sample, self.runtime.loaded.codec.decode)

    def _attempts(
        self, numbers: Sequence[int], step: int, stems: Mapping[int, Stem], *, again: int = 0
    ) -> list[Attempt]:
        """Make the attempts of this rank's rows.

        A group may lie across ranks, so siblings are numbered in the whole batch. `again` counts
        how often the attempts were made before: other seeds, all else the same.
        """
        first, tries = self.runtime.ranks.rank * len(numbers), [again] if again else []
        about, size = (self.settings.seed, "rollout", step), self.settings.grpo.group_size
        return [
            Attempt(
                problem=self.problems[number],
                group_index=number,
                sibling_index=row % size,
                seed=derive_seed(*about, number, row % size, *tries),
                stem=stems.get(number),
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

    def count(self, most: int) -> int:
        """Return how many the first `most` problems are, each counted once."""
        return len({one.id for one in itertools.islice(self._begin(), most)})

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
