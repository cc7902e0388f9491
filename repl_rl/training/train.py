"""The main job: a policy, held-out problems before, GRPO steps, held-out problems after.

    config -> model (or starter) -> runtime -> evaluate -> train -> evaluate -> run folder

Begins or resumes a run, makes a starter where there is none, keeps the best weights. At the end it
merges an adapter, pushes weights and draws the curve, if asked to. Knows the order of things. Does
not know flags or terminals.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import pickle
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers.trainer_utils import set_seed

from repl_rl.base.concurrency import Interrupts, derive_seed
from repl_rl.base.plugins import resolve_model
from repl_rl.config.sections import ReportConfig
from repl_rl.engines.memory import shortage_explained
from repl_rl.errors import ConfigError, ReplRLError, StorageError
from repl_rl.models.loading import LoadedModel, load_model, pick_device, why_no_pickle
from repl_rl.models.precision import Precision, precision
from repl_rl.models.weights import is_adapted, whole_state
from repl_rl.progress import SILENT, Progress
from repl_rl.records import Attempt, Origin
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.runner import kernel_pool
from repl_rl.rollout.sampler import ScriptSampler
from repl_rl.rollout.workers import WorkerPool
from repl_rl.runs.folder import (
    CHECKPOINTS,
    FINAL,
    GRADER,
    WORKERS,
    RunFolder,
    check_output,
    graded_by,
    read_versions,
)
from repl_rl.runs.resume import Begun, are_later, begun, best_rate, changes, cut, evaluated_steps
from repl_rl.tasks.base import Task, demonstrable
from repl_rl.training import evaluate, starter, steps
from repl_rl.training.publish import MERGED, push, write_card
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.solved_prefixes import check_rows, check_solvable, open_prefixes
from repl_rl.transcript.format import setup_sources
from repl_rl.update.grpo import check_shards_of, last_step_kept
from repl_rl.update.ranks import (
    Ranks,
    check_seen,
    check_shards,
    is_sharding,
    launched,
    peers_named,
    without_launcher,
)
from repl_rl.update.trainer import (
    check_groups,
    check_trl_options,
    checkpoint_every,
    make_trainer,
    rows_per_rank,
)
from repl_sandbox.types import Isolation
from repl_sandbox.walls.isolation import Level, Walls


def merge(model: str, output: Path) -> None:
    """Write what the adapter in the folder `model` makes of its base, whole or not at all.

    What was at `output` is replaced. In float32, whatever the base is stored in: bfloat16 would
    round away most of what an adapter adds. Raises ConfigError where `model` holds no adapter,
    StorageError where the disk refuses.
    """
    loaded = load_model(model, device=pick_device("cpu"), precision=Precision())
    if not is_adapted(loaded.model):
        raise ConfigError(f"{model!r} holds no adapter to merge")
    loaded.save(output, is_merged=True)


def end(run: Path, report: ReportConfig, progress: Progress, *, is_merged: bool) -> None:
    """Do all that `report` asks for, and write `checkpoints/merged` with `is_merged`.

    A full disk and a hub that does not answer are warned of. Raises StorageError where the disk
    has no room for a merged model.
    """
    checkpoint = run / CHECKPOINTS / FINAL
    if report.curve:
        _draw_curve(run, progress)
    with _warned(progress):
        write_card(run, checkpoint)
    if is_merged:
        merge(str(checkpoint), checkpoint.with_name(MERGED))
        checkpoint = checkpoint.with_name(MERGED)
        with _warned(progress):
            write_card(run, checkpoint)
    if report.hub:
        _push(run, checkpoint, report.hub, progress)


def _push(run: Path, checkpoint: Path, name: str, progress: Progress) -> None:
    try:
        progress.say(f"on the hub: {push(run, checkpoint, name, say=progress.say)}")
    except ReplRLError as error:
        again = shlex.join(["repl-rl", "push", str(checkpoint), name])
        progress.warn(f"the weights are not on the hub: {error}; push them with: {again}")


def _draw_curve(run: Path, progress: Progress) -> None:
    from repl_rl.runs.plot import save_curve

    with _warned(progress):
        for picture in save_curve(run)[:1]:
            progress.say(f"curve: {picture}")


@contextlib.contextmanager
def _warned(progress: Progress) -> Iterator[None]:
    """A full disk must not undo the end of a run."""
    try:
        yield
    except StorageError as error:
        progress.warn(str(error))


DEFAULT_RECIPE = starter.Recipe()
_DEMONSTRATIONS_AT_ONCE = 48
_LESS_TO_UPDATE = "lower grpo.micro_batch_size or sampling.max_tokens"


def train(
    plan: Plan,
    path: Path | str,
    progress: Progress | None = None,
    *,
    recipe: starter.Recipe = DEFAULT_RECIPE,
    resume: bool = False,
    merge: bool = False,
) -> tuple[evaluate.Report | None, evaluate.Report | None]:
    """Train `plan` into the folder `path`; return the held-out reports from before and after.

        plan = make_plan(resolve(overrides=["grpo.steps=10"]), to_train=True)
        before, after = train(plan, "runs/mine")
        print(after.rate - before.rate)

    Both are None where `eval.problems` is 0. Without `progress` nothing is shown.

    With `resume`, the run in `path` resumes from its newest whole checkpoint, as if it had never
    stopped. The settings must be the run's own, but for some on which no update depends. With
    `merge`, its adapter is merged into a whole model in `checkpoints/merged`.

    Under a launcher this process is one of several that train as one, and gets the same reports.

    Raises ConfigError before anything is started if the plan cannot work, and RankError if another
    process has ended. An interrupt leaves a checkpoint of the last whole step, a readable folder
    and no process.
    """
    ranks = launched()
    path, progress = Path(path), progress or SILENT
    plan.require_policy()
    if merge:
        plan.require_adapter()
    check_world(plan, ranks)
    # Here, as it may refuse and a starter takes minutes.
    device = pick_device(plan.sampling.device).type
    types = precision(plan, plan.engine, device=device)
    problems = steps.ProblemSequence(plan.task, seed=plan.seed)  # raises where there are none
    check_solvable(plan, count=problems.count)
    attempts = evaluate.held_out_attempts(plan.task, count=plan.eval.problems, seed=plan.seed)
    run = begun(path) if resume else None
    if run is None:
        check_output(path)
    else:
        changes(run, plan.config)  # may refuse
        check_rows(plan, run)
        if run.checkpoint is not None:
            check_shards_of(run.checkpoint, is_sharding=is_sharding())
    if ranks.is_first:
        plan.engine.reach(plan.config)
    with ranks.joined(device=device, timeout_s=_patience_s(plan)):
        check_trl_options(plan, precision=types, device=device, ranks=ranks)
        check_seen(path, ranks)
        reports = _run(
            plan,
            ranks.from_first(path),
            progress if ranks.is_first else SILENT,
            recipe=recipe,
            run=run,
            problems=problems,
            attempts=attempts,
            ranks=ranks,
        )
    if ranks.is_first:
        end(path, plan.report, progress, is_merged=merge)
    return reports


def check_world(plan: Plan, ranks: Ranks) -> list[str]:
    """Rows about the processes and servers of a run, and the folders that they must share.

    ConfigError where they could not train the plan together.
    """
    if ranks.are_several:
        plan.engine.check_ranks()
    check_groups(plan.credit, num_ranks=ranks.world)
    device = pick_device(plan.sampling.device).type
    check_shards(plan, plan.engine, device=device, trains_adapter=plan.lora.rank > 0)
    size = rows_per_rank(plan.grpo, num_ranks=ranks.world)
    part = f"1/{ranks.world} of" if is_sharding() else "all"
    rows = [f"world: {ranks}, each with {size} trajectories of a step and {part} weights"]
    folders = ["the run's folder and the model's path, for all hosts"] * (ranks.num_hosts > 1)
    if servers := plan.sampling.servers if plan.engine.samples_elsewhere else ():
        rows.append(f"servers: {', '.join(servers)}")
        folder = plan.sampling.weights_dir or "the first rank's folder of temporary files"
        folders.append(f"{folder} (sampling.weights_dir), for the first rank and the servers")
    if folders:
        rows.append(f"shared folders: {'; '.join(folders)}")
    return rows if ranks.are_several or servers else []


def _patience_s(plan: Plan) -> float:
    """Return the seconds a rank waits: others make a starter, or have the longest rollouts."""
    num_rows = max(plan.grpo.problems_per_step * plan.grpo.group_size, plan.eval.problems)
    num_rounds = math.ceil(num_rows / plan.sampling.max_in_flight)
    return 2 * 3600 + num_rounds * plan.sampling.time_limit_s


def _run(
    plan: Plan,
    path: Path,
    progress: Progress,
    *,
    recipe: starter.Recipe,
    run: Begun | None,
    problems: steps.ProblemSequence,
    attempts: Sequence[Attempt],
    ranks: Ranks,
) -> tuple[evaluate.Report | None, evaluate.Report | None]:
    set_seed(derive_seed(plan.seed, "torch") % 2**32)
    policy = ranks.from_first(_policy(plan, progress, recipe=recipe, run=run, ranks=ranks))
    loaded = load_policy(plan, policy, say=progress.say, is_training=True, ranks=ranks)
    with (
        Interrupts(agree=ranks.any if ranks.are_several else None) as interrupts,
        open_runtime(
            plan,
            loaded,
            say=progress.say,
            interrupts=interrupts,
            ranks=ranks,
            make_workers=partial(WorkerPool, logs=path / WORKERS, warn=progress.warn),
        ) as runtime,
        contextlib.ExitStack() as stack,
    ):
        plan = runtime.plan  # whose engine is one that has started
        if plan.grpo.staleness:  # asked once more: `auto` may have come to another engine
            plan.engine.check_staleness()
        # The folder is made this late so that a refused run leaves its --output free.
        folder = None
        if ranks.is_first:
            folder = RunFolder(path, is_begun=run is not None)
            stack.callback(folder.close)
            if run is not None:
                _say_resumed(run, runtime.origin, ranks, progress)
            runtime.begin_folder(folder, policy=policy)
        progress.say(f"run: {path}, seed {plan.seed}{f', {ranks}' if ranks.are_several else ''}")
        what = f"an adapter of rank {plan.lora.rank}" if plan.lora.rank else "all weights"
        progress.say(f"trains: {what}, learning rate {plan.grpo.learning_rate:g}")
        say_runtime(runtime, progress)
        reached = 0 if run is None else run.step
        sink = best = final = None
        if folder is not None:
            sink = stack.enter_context(runtime.sink(folder, progress, step=reached))
            best, final = folder.best_checkpoint, folder.final_checkpoint
        held_out = evaluate.HeldOut(
            attempts=attempts,
            runtime=runtime,
            progress=progress,
            sink=sink,
            rates=ranks.from_first(evaluated_steps(path) if ranks.is_first else {}),
            keep_best=partial(_save, loaded, best) if plan.eval.every else None,
            best_rate=best_rate(path) if ranks.is_first else -1.0,
        )
        # With what was left to this machine.
        grpo = replace(
            plan.grpo,
            gradient_checkpointing=loaded.recomputes,
            micro_batch_size=loaded.micro_batch_size,
        )
        training = steps.Training(
            settings=plan.changed(grpo=grpo),
            problems=problems,
            held_out=held_out,
            runtime=runtime,
            progress=progress,
            credit=plan.credit,
            sink=sink,
            prefixes=open_prefixes(runtime, folder),
        )
        before = held_out.measure(0)
        progress.say(f"held-out before: {before or evaluate.NOT_MEASURED}")
        _update(training, path, run)
        _save(loaded, final, plan.grpo.steps)
        runtime.sync(plan.grpo.steps)
        after = held_out.measure(plan.grpo.steps) if plan.grpo.steps else before
        progress.say(f"held-out after:  {after or evaluate.NOT_MEASURED}")
    return before, after


def _save(loaded: LoadedModel, folder: Path | None, num_updates: int) -> None:
    """Write the weights to the folder that the first rank gives; the others gather with it."""
    state = whole_state(loaded.model, is_kept=folder is not None)
    if folder is not None:
        loaded.save(folder, state=state, num_updates=num_updates)


def _policy(
    plan: Plan, progress: Progress, *, recipe: starter.Recipe, run: Begun | None, ranks: Ranks
) -> str:
    """Return where the first weights are. Only the first rank's counts: it makes the starter."""
    if run is not None:
        return first_weights(run)
    if not ranks.is_first:
        return ""
    with without_launcher():
        # The whole path: a resumed run may be started from another folder.
        return resolve_model(policy_folder(plan, progress, recipe=recipe))


def _say_resumed(run: Begun, origin: Origin, ranks: Ranks, progress: Progress) -> None:
    """Cut what lies beyond the checkpoint, and say from where the run goes on, and with what."""
    if are_later(run):  # before the rollouts that it looks at may be cut
        progress.warn(
            f"{run.policy} was written after the run began: these may be other weights than those "
            f"that it started from, and an adapter or a KL needs those"
        )
    for text in cut(run):
        progress.say(text)
    was = read_versions(run.run)
    was[GRADER] = str(graded_by(was))
    for name, version in origin.versions.items():
        if was.get(name, version) != version:
            progress.warn(f"the run began with {name} {was[name]}, and is resumed with {version}")
    progress.say(f"resumed after step {run.step}")
    # Each process has saved a random state.
    states = () if run.checkpoint is None else run.checkpoint.glob("rng_state*.pth")
    num_saved = len(list(states))
    if num_saved not in (0, ranks.world):
        progress.warn(
            f"processes: {num_saved} before, {ranks.world} here; rows are sampled as they would "
            f"have been, and weights may differ by rounding"
        )


def first_weights(run: Begun) -> str:
    """The weights that a run started from: it goes on beside them, for they are its reference.

    Raises ConfigError where they are gone.
    """
    if Path(run.policy).is_absolute() and not Path(run.policy).exists():
        raise ConfigError(
            f"the weights that {str(run.run)!r} started from are gone: {run.policy!r}; restore "
            f"them, or begin a new run from a checkpoint"
        )
    return run.policy


def say_runtime(runtime: Runtime, progress: Progress) -> None:
    """Print the engine, and the level of the walls around kernels with the way to a better one."""
    progress.say(f"engine: {runtime.about_engine}")
    progress.say(f"kernels: {about_walls(runtime.env.walls)}")
    if runtime.workers is not None:
        progress.say(f"workers: {runtime.workers}")


def about_walls(walls: Walls) -> str:
    """Return the level in force and, where it is not the strongest, how to get that."""
    if walls.level is Level.NONE:
        return f'{walls}; sandbox.isolation = "auto" seals them'
    return f"{walls}; not strict: {walls.shortfall}" if walls.shortfall else str(walls)


def _update(training: steps.Training, path: Path, run: Begun | None) -> None:
    checkpoint = None if run is None else run.checkpoint
    settings, runtime, progress = training.settings, training.runtime, training.progress
    loaded, num_steps = runtime.loaded, settings.grpo.steps
    if (every := checkpoint_every(settings)) != settings.report.checkpoint_every:
        progress.say(
            f"checkpoints: every {every} steps, since a rollout feeds "
            f"{settings.grpo.num_rollout_updates}"
        )
    with progress.bar("training", num_steps, has_metrics=True) as update:
        trainer = make_trainer(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            collect=training.collect,
            settings=settings,
            credit=training.credit,
            precision=loaded.precision,
            folder=path / CHECKPOINTS,
            callbacks=[steps.StepCallback(training, update)],
            forbidden_ids=loaded.forbidden_ids,
            ranks=runtime.ranks,
            ahead=training,
        )
        if run is not None and checkpoint is not None and run.step == num_steps:
            with _readable(checkpoint):
                trainer.load_weights(checkpoint)
        elif num_steps:
            if run is not None and checkpoint is not None:
                training.restore(run.step, checkpoint)
            with (
                contextlib.closing(training),
                last_step_kept(trainer, runtime.ranks),
                peers_named(),
            ):
                with (
                    shortage_explained("the update", remedy=_LESS_TO_UPDATE),
                    _readable(checkpoint),
                ):
                    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
                runtime.interrupts.release()


@contextlib.contextmanager
def _readable(checkpoint: Path | None) -> Iterator[None]:
    """ConfigError for a checkpoint whose pickles are not what a run has written."""
    try:
        yield
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        reason = why_no_pickle(error)
        if reason is None or checkpoint is None:
            raise
        raise ConfigError(f"cannot resume from {str(checkpoint)!r}: {reason}") from None


def policy_folder(
    plan: Plan, progress: Progress, *, recipe: starter.Recipe = DEFAULT_RECIPE
) -> str:
    """The model that the plan names, or the task's starter, made on first use."""
    plan.require_policy()
    if plan.model is not None:
        return plan.model
    path = starter.starter_path(plan.task, recipe)
    if not path.exists():
        starter.check_adapter(plan.lora, recipe)
        make_starter(plan.task, recipe, path, progress, isolation=plan.sandbox.isolation)
    elif made := starter.made_elsewhere(path):
        progress.say(f"starter: made {made}; `repl-rl warmstart` makes a new one")
    return str(path)


def make_starter(
    task: Task,
    recipe: starter.Recipe,
    path: Path,
    progress: Progress,
    *,
    isolation: Isolation,
    make_scripts: type[ScriptSampler] = ScriptSampler,
) -> None:
    """Run the demonstrations in kernels and train the starter on them, behind two bars."""
    starter.check_cache(path)
    sandbox = replace(starter.starter_sandbox(), isolation=isolation)
    with progress.bar("starter: running demonstrations", recipe.num_demonstrations) as update:

        async def run() -> Any:
            async with kernel_pool(sandbox, setup=setup_sources(task.prompt)) as pool:
                return await starter.collect(
                    task,
                    pool,
                    recipe,
                    max_in_flight=_DEMONSTRATIONS_AT_ONCE,
                    update=update,
                    make_scripts=make_scripts,
                )

        with Interrupts() as interrupts, asyncio.Runner() as runner:
            demonstrations = interrupts.run(runner, run())
    with progress.bar("starter: supervised training", 1) as update:
        starter.build(demonstrations, recipe, path, update=update)
    progress.say(f"starter policy: {path}")


def remake_starter(plan: Plan, progress: Progress) -> Path:
    """Make the starter of the plan's task anew, cached or not. Returns its folder."""
    task, recipe = demonstrable(plan.task), DEFAULT_RECIPE
    path = starter.starter_path(task, recipe)
    make_starter(task, recipe, path, progress, isolation=plan.sandbox.isolation)
    return path
