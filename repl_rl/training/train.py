"""The main job: a policy, held-out problems before, GRPO steps, held-out problems after.

    config -> model (or starter) -> runtime -> evaluate -> train -> evaluate -> run folder

Knows the order of things. Does not know flags or terminals.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_utils import set_seed

from repl_rl.config import Config
from repl_rl.disk import written_aside
from repl_rl.engines.models import LoadedModel, pick_device
from repl_rl.engines.precision import precision
from repl_rl.errors import ConfigError, EngineError, StorageError
from repl_rl.interrupts import Interrupts
from repl_rl.rollout.kernels import kernel_pool
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import CHECKPOINTS, RunFolder, check_output, read_versions
from repl_rl.runs.resume import Begun, begun, cut, evaluated_steps
from repl_rl.seeds import derive_seed
from repl_rl.show.bars import Update
from repl_rl.show.display import Screen
from repl_rl.tasks.base import Task, demonstrable
from repl_rl.training.evaluate import Report, held_out_attempts
from repl_rl.training.grpo import check_trl_options, checkpoint_every, make_trainer
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.steps import ProblemSequence, StepCallback, Training
from repl_rl.training.warmstart import (
    Progress,
    Recipe,
    build,
    check_cache,
    collect,
    made_elsewhere,
    starter_path,
    starter_sandbox,
)
from repl_rl.transcript.format import setup_sources
from repl_rl.types import Origin
from repl_sandbox.isolation import Level
from repl_sandbox.types import Isolation

DEFAULT_RECIPE = Recipe()
_DEMONSTRATIONS_AT_ONCE = 48


def train(
    plan: Plan,
    path: Path,
    screen: Screen,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    resume: bool = False,
) -> tuple[Report, Report]:
    """Run `plan` into the folder `path`; the held-out reports from before and after.

        plan = make_plan(resolve(overrides=["grpo.steps=10"]), to_train=True)
        with Screen() as screen:  # of repl_rl.show.display
            before, after = train(plan, Path("runs/mine"), screen)
        print(after.rate - before.rate)

    With `resume` the run in `path` goes on from its newest whole checkpoint, as if it had never
    been ended.

    Raises ConfigError before anything is started if the plan cannot work. An interrupt leaves a
    checkpoint of the last whole step, the folder readable and no process behind.
    """
    _refuse_launcher()
    config = plan.config
    # First, as both may refuse and a starter takes minutes.
    device = pick_device(config.sampling.device).type
    held = precision(config, plan.engine, device=device)
    check_trl_options(config, precision=held, device=device)
    problems = ProblemSequence(plan.task, seed=config.seed)
    held_out = held_out_attempts(plan.task, count=config.eval.problems, seed=config.seed)
    run = begun(path) if resume else None
    if run is None:
        check_output(path)
    set_seed(derive_seed(config.seed, "torch") % 2**32)
    policy = policy_folder(plan, screen, recipe=recipe) if run is None else first_weights(run)
    loaded = load_policy(plan, policy, say=screen.say, is_training=True)
    with Interrupts() as interrupts, open_runtime(plan, loaded, interrupts=interrupts) as runtime:
        # The folder is made this late so that a refused run leaves its --output free.
        folder = RunFolder(path, is_begun=run is not None)
        if run is not None:
            _say_resumed(run, runtime.origin, screen)
        folder.write_config(runtime.origin, policy=policy, device=loaded.model.device.type)
        with written_aside(folder.tokenizer) as aside:
            loaded.tokenizer.save_pretrained(aside)
        screen.say(f"run: {path}, seed {config.seed}")
        say_runtime(runtime, screen)
        training = Training(
            config,
            problems,
            held_out,
            runtime,
            folder,
            screen,
            interrupts=interrupts,
            evaluated=evaluated_steps(path),
        )
        before = training.measure(0)
        screen.say(f"held-out before: {before}")
        _update(config, loaded, training, folder, screen, interrupts, run)
        runtime.sync(config.grpo.steps)
        after = training.measure(config.grpo.steps) if config.grpo.steps else before
        screen.say(f"held-out after:  {after}")
    if config.report.curve:
        _draw_curve(path, screen)
    return before, after


def _draw_curve(run: Path, screen: Screen) -> None:
    """A full disk must not undo the end of a run."""
    from repl_rl.show.plot import save_curve

    try:
        for picture in save_curve(run)[:1]:
            screen.say(f"curve: {picture}")
    except StorageError as error:
        screen.warn(str(error))


def _say_resumed(run: Begun, origin: Origin, screen: Screen) -> None:
    """Cut what lies beyond the checkpoint, and say from where the run goes on, and with what."""
    for text in cut(run):
        screen.say(text)
    was = read_versions(run.run)
    for name, version in origin.versions.items():
        if was.get(name, version) != version:
            screen.warn(f"the run began with {name} {was[name]}, and goes on with {version}")
    screen.say(f"resumed after step {run.step}")


def first_weights(run: Begun) -> str:
    """The weights that a run started from: it goes on beside them, for they are its reference.

    Raises ConfigError where they are gone.
    """
    if Path(run.policy).is_absolute() and not Path(run.policy).exists():
        raise ConfigError(
            f"the weights that {str(run.run)!r} started from are gone: {run.policy!r}; bring them "
            f"back, or begin a new run from a checkpoint"
        )
    return run.policy


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
    config: Config,
    loaded: LoadedModel,
    training: Training,
    folder: RunFolder,
    screen: Screen,
    interrupts: Interrupts,
    run: Begun | None,
) -> None:
    checkpoint = None if run is None else run.checkpoint
    if (every := checkpoint_every(config)) != config.report.checkpoint_every:
        screen.say(f"checkpoints: every {every} steps, {config.grpo.num_rollout_updates} a rollout")
    # In a log each step has a line of its own, with the time left.
    with screen.bar("training", config.grpo.steps, quiet_s=math.inf) as update:
        trainer = make_trainer(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            collect=training.collect,
            config=config,
            precision=loaded.precision,
            folder=folder.path / CHECKPOINTS,
            callbacks=[StepCallback(training, update, interrupts)],
        )
        if checkpoint is not None and checkpoint.name == f"checkpoint-{config.grpo.steps}":
            trainer.load_weights(checkpoint)
        elif config.grpo.steps:
            try:
                with _memory_explained():
                    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
                interrupts.release()
            except (KeyboardInterrupt, EngineError):
                trainer.save_last_step()
                raise
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


def policy_folder(plan: Plan, screen: Screen, *, recipe: Recipe = DEFAULT_RECIPE) -> str:
    """The model that the plan names, or the task's starter, made on first use."""
    if plan.config.model is not None:
        return plan.config.model
    path = starter_path(plan.task, recipe)
    if not path.exists():
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
