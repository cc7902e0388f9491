"""The steps of a run: rollouts for an update, measurements between updates, rows of metrics.

    problem numbers, policy version -> Attempts -> Scored -> trajectories/, metrics.jsonl

Knows a run's folder and its runtime. Does not know the update.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback

from repl_rl.config import Config
from repl_rl.credit.advantages import dead_groups
from repl_rl.errors import ConfigError, DivergedError
from repl_rl.interrupts import Interrupts
from repl_rl.runs.folder import RunFolder, evaluation_name, rollouts_name
from repl_rl.runs.summary import rollout_metrics
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.seeds import derive_seed
from repl_rl.show.bars import Update
from repl_rl.show.display import Screen
from repl_rl.tasks.base import Task
from repl_rl.training.evaluate import (
    Report,
    report,
    run_counted,
    run_shown,
    warn_of_ungraded,
)
from repl_rl.training.grpo import largest_divisor
from repl_rl.training.runtime import Runtime
from repl_rl.types import Attempt, Problem, Scored, Split


class Training:
    """One run between its first measurement and its last; the trainer calls back into it."""

    def __init__(
        self,
        config: Config,
        problems: ProblemSequence,
        held_out: Sequence[Attempt],
        runtime: Runtime,
        folder: RunFolder,
        screen: Screen,
        *,
        interrupts: Interrupts,
        evaluated: Collection[int] = (),
    ) -> None:
        self._config = config
        self._problems = problems
        self._held_out = held_out
        self._runtime = runtime
        self._folder = folder
        self._screen = screen
        self._interrupts = interrupts
        self._evaluated = evaluated
        """Steps after which a measurement is on record already."""
        self._row: dict[str, float] = {}
        self._groups: dict[str, float] = {}
        """How many groups of the latest rollout were rolled out again, and taught nothing."""
        self._scored: list[Scored] = []
        self._is_warned = False
        """Warned of ungraded answers, once in all steps."""

    def measure(self, step: int) -> Report:
        """Held-out problems after so many updates, one trajectory each; read back if on record."""
        name = evaluation_name(step)
        if step in self._evaluated:
            return report(list(read_trajectories(self._folder.trajectories(name))))
        scored = run_shown(self._runtime, self._held_out, f"held-out, step {step}", self._screen)
        self._folder.append_trajectories(name, scored)
        found = report(scored)
        warn_of_ungraded(scored, self._screen)
        row = {"solve_rate": found.rate, "total": found.total, "ungraded": found.ungraded}
        self._folder.append_metrics(step, {f"eval_{key}": value for key, value in row.items()})
        return found

    def collect(self, numbers: Sequence[int], policy_version: int) -> list[Scored]:
        """The rollouts of one step: see `grpo.Collect`."""
        self._interrupts.release()
        runtime = self._runtime
        gap = runtime.sync(policy_version)
        if policy_version and self._is_due(self._config.eval.every, policy_version):
            self._screen.say(f"held-out, step {policy_version}: {self.measure(policy_version)}")
        update = self._screen.inside("sampling", len(numbers))
        started, num_sampled = time.monotonic(), runtime.engine.num_sampled
        num_retries, guesses = runtime.num_retries, runtime.guesses()
        scored = self._roll_out(numbers, policy_version, update)
        runtime.sleep()
        self._row = rollout_metrics(scored, seconds=time.monotonic() - started)
        num_kept = sum(sum(item.trajectory.loss_mask) for item in scored)
        self._row |= {
            "rollout/retries": runtime.num_retries - num_retries,
            "rollout/wasted_tokens": runtime.engine.num_sampled - num_sampled - num_kept,
            "rollout/sync_gap": gap,
            **self._groups,
            **_guesses(guesses, runtime.guesses()),
        }
        self._scored = scored
        self._begin_update(len(scored))
        return scored

    def _begin_update(self, num_rows: int) -> None:
        grpo = self._config.grpo
        size = largest_divisor(num_rows // grpo.updates_per_rollout, at_most=grpo.micro_batch_size)
        self._micro_batches = itertools.count(1)
        self._updated = self._screen.inside("update", num_rows * grpo.passes // size)

    def _is_due(self, every: int, step: int) -> bool:
        """Whether a multiple of `every` lies in the updates of one rollout that end with `step`."""
        return every > 0 and step % every < self._config.grpo.num_rollout_updates

    def is_rollout_used_up(self, step: int) -> bool:
        """Whether the update after `step` waits for a rollout: only there a run can go on."""
        return step % self._config.grpo.num_rollout_updates == 0

    def micro_batch_done(self) -> None:
        """The update has done one micro-batch."""
        self._updated(next(self._micro_batches))

    def _roll_out(
        self, numbers: Sequence[int], policy_version: int, update: Update
    ) -> list[Scored]:
        """The trajectories of one step; if something ends it, those made so far are kept."""
        name, kept = rollouts_name(policy_version), list[Scored]()
        try:
            attempts = self._attempts(numbers, policy_version)
            scored = run_counted(self._runtime, attempts, update, on_scored=kept.append)
            scored = self._roll_again(scored, numbers, policy_version)
        except BaseException:
            if kept:
                self._folder.append_trajectories(name, kept)
            raise
        self._folder.append_trajectories(name, scored)
        return scored

    def _roll_again(
        self, scored: list[Scored], numbers: Sequence[int], policy_version: int
    ) -> list[Scored]:
        """`scored` with other trajectories for groups that teach nothing, which are not kept."""
        grpo, num_again = self._config.grpo, 0
        dead = dead_groups(scored, grpo)
        for again in range(1, grpo.rerolls + 1):
            if not dead:
                break
            num_again += len(dead)
            attempts = self._attempts(numbers, policy_version, again=again)
            places = [i for i, one in enumerate(attempts) if one.group_index in dead]
            update = self._screen.inside("again", len(places))
            fresh = run_counted(self._runtime, [attempts[i] for i in places], update)
            for place, item in zip(places, fresh, strict=True):
                scored[place] = item
            dead = dead_groups(scored, grpo)
        self._groups = {"group/rerolled": num_again, "group/dead": len(dead)}
        return scored

    def log(self, step: int, total: int, logs: dict[str, float]) -> None:
        """One step is done: `logs` are the trainer's numbers, the rollouts' are at hand.

        A rollout's numbers stand with the first step that it feeds.
        """
        row = {**self._row, **{k: v for k, v in logs.items() if isinstance(v, int | float)}}
        self._row = {}
        self._folder.append_metrics(step, row)
        self._screen.metrics(step, total, row)
        self._is_warned = self._is_warned or warn_of_ungraded(self._scored, self._screen)
        if step == 1 or step % self._config.report.sample_every == 0:
            chosen = random.Random(derive_seed(self._config.seed, "sample", step))
            self._screen.sample(f"step {step}", chosen.choice(self._scored), self._runtime.decode)

    def _attempts(
        self, numbers: Sequence[int], policy_version: int, *, again: int = 0
    ) -> list[Attempt]:
        """`again` counts how often they were made before: other seeds, all else the same."""
        attempts, tries = [], [again] if again else []
        for number, siblings in itertools.groupby(numbers):
            for sibling, _ in enumerate(siblings):
                attempts.append(
                    Attempt(
                        problem=self._problems[number],
                        group_index=number,
                        sibling_index=sibling,
                        seed=derive_seed(
                            self._config.seed, "rollout", policy_version, number, sibling, *tries
                        ),
                    )
                )
        return attempts


class ProblemSequence:
    """Training problems by number, drawn as they are asked for; ConfigError if there are none."""

    def __init__(self, task: Task, *, seed: int) -> None:
        self._source = task.problems(Split.TRAIN, seed=derive_seed(seed, "train"))
        self._drawn: list[Problem] = list(itertools.islice(self._source, 1))
        if not self._drawn:
            raise ConfigError(f"task {task.name!r} has no problems in its split {Split.TRAIN!s}")

    def __getitem__(self, number: int) -> Problem:
        missing = number + 1 - len(self._drawn)
        self._drawn.extend(itertools.islice(self._source, max(0, missing)))
        # A finite task starts over.
        return self._drawn[number % len(self._drawn)]


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
        if self._interrupts.is_asked and self._training.is_rollout_used_up(state.global_step):
            control.should_save = control.should_training_stop = True


def _guesses(before: tuple[int, int], after: tuple[int, int]) -> dict[str, float]:
    """Metrics of speculative lines between two counts; none where none were begun."""
    begun, hits = after[0] - before[0], after[1] - before[1]
    return {"speculation/guesses": begun, "speculation/hit_rate": hits / begun} if begun else {}


def _refuse_divergence(step: int, logs: Mapping[str, float | None]) -> None:
    for name in ("loss", "grad_norm"):
        value = logs.get(name, 0.0)
        # transformers logs None for a number that is not finite.
        if value is None or not math.isfinite(value):
            raise DivergedError(
                f"training diverged at step {step}: the {name} is not finite; lower "
                f"grpo.learning_rate, or grpo.max_grad_norm"
            )
