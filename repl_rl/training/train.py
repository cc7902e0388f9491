"""The main job: a policy, held-out problems before, GRPO steps, held-out problems after.

    config -> model (or starter) -> runtime -> evaluate -> train -> evaluate -> run folder

Knows the order of things. Does not know flags or terminals.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import set_seed

from repl_rl.config import Config
from repl_rl.disk import written_aside
from repl_rl.engines.models import LoadedModel, pick_device
from repl_rl.engines.precision import precision
from repl_rl.errors import ConfigError, DivergedError
from repl_rl.rollout.kernels import kernel_pool
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import RunFolder, check_output
from repl_rl.runs.summary import rollout_metrics
from repl_rl.seeds import derive_seed
from repl_rl.show.bars import Update
from repl_rl.show.display import Screen
from repl_rl.tasks.base import Task, demonstrable
from repl_rl.training.evaluate import (
    Report,
    held_out_attempts,
    report,
    run_counted,
    run_shown,
    warn_of_ungraded,
)
from repl_rl.training.grpo import largest_divisor, make_trainer
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.warmstart import (
    Progress,
    Recipe,
    build,
    check_adapter,
    check_cache,
    collect,
    made_elsewhere,
    starter_path,
    starter_sandbox,
)
from repl_rl.transcript.format import setup_sources
from repl_rl.types import Attempt, Problem, Scored, Split
from repl_sandbox.isolation import Level
from repl_sandbox.types import Isolation

DEFAULT_RECIPE = Recipe()
_DEMONSTRATIONS_AT_ONCE = 48


class Training:
    """One run from its folder to its last checkpoint; the trainer calls back into it."""

    def __init__(
        self,
        config: Config,
        problems: ProblemSequence,
        held_out: Sequence[Attempt],
        runtime: Runtime,
        folder: RunFolder,
        screen: Screen,
    ) -> None:
        self._config = config
        self._problems = problems
        self._held_out = held_out
        self._runtime = runtime
        self._folder = folder
        self._screen = screen
        self._row: dict[str, float] = {}
        self._scored: list[Scored] = []
        self._is_warned = False
        """Warned of ungraded answers, once in all steps."""

    def evaluate(self, name: str, *, step: int) -> Report:
        """Held-out problems, one trajectory each; kept under `trajectories/NAME.jsonl`."""
        scored = run_shown(self._runtime, self._held_out, f"held-out {name}", self._screen)
        self._folder.append_trajectories(name, scored)
        found = report(scored)
        warn_of_ungraded(scored, self._screen)
        row = {"solve_rate": found.rate, "total": found.total, "ungraded": found.ungraded}
        self._folder.append_metrics(
            step, {f"held_out_{name}/{key}": value for key, value in row.items()}
        )
        return found

    def collect(self, numbers: Sequence[int], policy_version: int) -> list[Scored]:
        """The rollouts of one step: see `grpo.Collect`."""
        update = self._screen.inside("sampling", len(numbers))
        gap = self._runtime.sync(policy_version)
        started, num_sampled = time.monotonic(), self._runtime.engine.num_sampled
        scored = self._roll_out(numbers, policy_version, update)
        self._runtime.sleep()
        self._row = rollout_metrics(scored, seconds=time.monotonic() - started)
        num_kept = sum(sum(item.trajectory.loss_mask) for item in scored)
        self._row |= {
            "rollout/retries": self._runtime.num_retries,
            "rollout/wasted_tokens": self._runtime.engine.num_sampled - num_sampled - num_kept,
            "rollout/sync_gap": gap,
            **self._runtime.guesses(),
        }
        self._scored = scored
        self._begin_update(len(scored))
        return scored

    def _begin_update(self, num_rows: int) -> None:
        size = largest_divisor(num_rows, at_most=self._config.grpo.micro_batch_size)
        self._micro_batches = itertools.count(1)
        self._updated = self._screen.inside("update", num_rows // size)

    def micro_batch_done(self) -> None:
        """The update has done one micro-batch."""
        self._updated(next(self._micro_batches))

    def _roll_out(
        self, numbers: Sequence[int], policy_version: int, update: Update
    ) -> list[Scored]:
        """The trajectories of one step; if something ends it, those made so far are kept."""
        name, kept = f"step-{policy_version:06d}", list[Scored]()
        try:
            attempts = self._attempts(numbers, policy_version)
            scored = run_counted(self._runtime, attempts, update, on_scored=kept.append)
        except BaseException:
            if kept:
                self._folder.append_trajectories(name, kept)
            raise
        self._folder.append_trajectories(name, scored)
        return scored

    def log(self, step: int, total: int, logs: dict[str, float]) -> None:
        """One step is done: `logs` are the trainer's numbers, the rollouts' are at hand."""
        row = {**self._row, **{k: v for k, v in logs.items() if isinstance(v, int | float)}}
        self._folder.append_metrics(step, row)
        self._screen.metrics(step, total, row)
        self._is_warned = self._is_warned or warn_of_ungraded(self._scored, self._screen)
        if step == 1 or step % self._config.report.sample_every == 0:
            chosen = random.Random(derive_seed(self._config.seed, "sample", step))
            self._screen.sample(f"step {step}", chosen.choice(self._scored), self._runtime.decode)

    def _attempts(self, numbers: Sequence[int], policy_version: int) -> list[Attempt]:
        attempts = []
        for number, siblings in itertools.groupby(numbers):
            for sibling, _ in enumerate(siblings):
                attempts.append(
                    Attempt(
                        problem=self._problems[number],
                        group_index=number,
                        sibling_index=sibling,
                        seed=derive_seed(
                            self._config.seed, "rollout", policy_version, number, sibling
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


def train(
    plan: Plan, path: Path, screen: Screen, *, recipe: Recipe = DEFAULT_RECIPE
) -> tuple[Report, Report]:
    """Run `plan` into the folder `path`; the held-out reports from before and after.

        plan = make_plan(resolve(overrides=["grpo.steps=10"]), to_train=True)
        with Screen() as screen:  # of repl_rl.show.display
            before, after = train(plan, Path("runs/mine"), screen)
        print(after.rate - before.rate)

    Raises ConfigError before anything is started if the plan cannot work. An interrupt leaves
    the folder readable and no process behind.
    """
    _refuse_launcher()
    config = plan.config
    # First, as both may refuse and a starter takes minutes.
    precision(config, plan.engine, device=pick_device(config.sampling.device).type)
    problems = ProblemSequence(plan.task, seed=config.seed)
    held_out = held_out_attempts(plan.task, count=config.eval.problems, seed=config.seed)
    check_output(path)
    set_seed(derive_seed(config.seed, "torch") % 2**32)
    policy = policy_folder(plan, screen, recipe=recipe)
    loaded = load_policy(plan, policy, say=screen.say, is_training=True)
    with open_runtime(plan, loaded) as runtime:
        # The folder is made this late so that a refused run leaves its --output free.
        folder = RunFolder(path)
        folder.write_config(runtime.origin, policy=policy, device=loaded.model.device.type)
        with written_aside(folder.tokenizer) as aside:
            loaded.tokenizer.save_pretrained(aside)
        screen.say(f"run: {path}, seed {config.seed}")
        say_runtime(runtime, screen)
        training = Training(config, problems, held_out, runtime, folder, screen)
        before = training.evaluate("before", step=0)
        screen.say(f"held-out before: {before}")
        _update(config, loaded, training, folder, screen)
        runtime.sync(config.grpo.steps)
        after = training.evaluate("after", step=config.grpo.steps)
        screen.say(f"held-out after:  {after}")
    return before, after


def _refuse_launcher() -> None:
    """ConfigError where a launcher starts several processes: kernels, folder and screen need one.

    Only the update could use them: see `grpo.make_trainer`.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("repl-rl trains in one process; start it without a launcher")


def say_runtime(runtime: Runtime, screen: Screen) -> None:
    """Print the engine, the walls around kernels, and what keeps these from being strict."""
    screen.say(f"engine: {runtime.about_engine}")
    screen.say(f"kernels: {runtime.walls}")
    if runtime.walls.shortfall and runtime.walls.level is not Level.NONE:
        screen.say(f"  not strict: {runtime.walls.shortfall}")


def _update(
    config: Config, loaded: LoadedModel, training: Training, folder: RunFolder, screen: Screen
) -> None:
    # In a log each step has a line of its own, with the time left.
    with screen.bar("training", config.grpo.steps, quiet_s=math.inf) as update:
        trainer = make_trainer(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            collect=training.collect,
            config=config,
            precision=loaded.precision,
            folder=folder.path / "checkpoints",
            callbacks=[_StepCallback(training, update)],
        )
        if config.grpo.steps:
            with _memory_explained():
                trainer.train()
    with written_aside(folder.final_checkpoint) as path:
        loaded.model.save_pretrained(path)
        loaded.tokenizer.save_pretrained(path)


@contextlib.contextmanager
def _memory_explained() -> Iterator[None]:
    """The user can mend a lack of memory in the update: say how."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On a GPU torch has a type for it; on a CPU only the message shows it.
        is_full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not is_full and "allocate memory" not in str(error):
            raise
        raise ConfigError(
            "no memory for the update; lower grpo.micro_batch_size or sampling.max_tokens"
        ) from error


class _StepCallback(TrainerCallback):
    def __init__(self, training: Training, update: Update) -> None:
        self._training = training
        self._update = update

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        if logs and "loss" in logs:
            _refuse_divergence(state.global_step, logs)
            self._training.log(state.global_step, state.max_steps, logs)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.micro_batch_done()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.micro_batch_done()
        self._update(state.global_step)


def _refuse_divergence(step: int, logs: Mapping[str, float | None]) -> None:
    for name in ("loss", "grad_norm"):
        value = logs.get(name, 0.0)
        # transformers logs None for a number that is not finite.
        if value is None or not math.isfinite(value):
            raise DivergedError(
                f"training diverged at step {step}: the {name} is not finite; lower "
                f"grpo.learning_rate, or grpo.max_grad_norm"
            )


def policy_folder(plan: Plan, screen: Screen, *, recipe: Recipe = DEFAULT_RECIPE) -> str:
    """The model that the plan names, or the task's starter, made on first use."""
    if plan.config.model is not None:
        return plan.config.model
    path = starter_path(plan.task, recipe)
    if not path.exists():
        check_adapter(plan.config.lora, recipe)
        make_starter(plan.task, recipe, path, screen, isolation=plan.config.sandbox.isolation)
    elif made := made_elsewhere(path):
        screen.say(f"starter: made {made}; `repl-rl warmstart` makes it anew")
    return str(path)


def make_starter(
    task: Task, recipe: Recipe, path: Path, screen: Screen, *, isolation: Isolation
) -> None:
    """Run the demonstrations in kernels and train the starter on them, behind two bars."""
    check_cache(path)
    sandbox = replace(starter_sandbox(), isolation=isolation)
    with screen.bar("starter: running demonstrations", recipe.num_demonstrations) as update:
        progress = _Bars(update)

        async def run() -> Any:
            async with kernel_pool(sandbox, setup=setup_sources(task.prompt)) as pool:
                return await collect(
                    task, pool, recipe, max_in_flight=_DEMONSTRATIONS_AT_ONCE, progress=progress
                )

        demonstrations = asyncio.run(run())
    with screen.bar("starter: supervised training", 1) as update:
        build(demonstrations, recipe, path, progress=_Bars(update))
    screen.say(f"starter policy: {path}")


def warm_start(plan: Plan, screen: Screen) -> Path:
    """Make the starter of the plan's task anew, cached or not. Returns its folder."""
    task, recipe = demonstrable(plan.task), DEFAULT_RECIPE
    path = starter_path(task, recipe)
    make_starter(task, recipe, path, screen, isolation=plan.config.sandbox.isolation)
    return path


class _Bars(Progress):
    def __init__(self, update: Update) -> None:
        self._update = update

    def demonstrations(self, done: int, total: int) -> None:
        self._update(done, "", total)

    def training(self, done: int, total: int, loss: float | None) -> None:
        self._update(done, "" if loss is None else f"loss {loss:.3f}", total)
