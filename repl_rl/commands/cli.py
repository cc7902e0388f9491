"""The command line: `repl-rl COMMAND`. Turns flags into a Config and errors into one line.

Heavy imports stand inside commands, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from repl_rl import __version__
from repl_rl.commands import options as shared
from repl_rl.commands.ask import ask
from repl_rl.commands.config import config as config_command
from repl_rl.commands.kernels import kernels
from repl_rl.commands.merge import merge as merge_command
from repl_rl.commands.plot import plot
from repl_rl.commands.push import push
from repl_rl.commands.replay import attach, replay
from repl_rl.commands.reward import reward
from repl_rl.commands.rollout import play, rollout
from repl_rl.commands.serve_env import serve_env
from repl_rl.commands.warmstart import warmstart
from repl_rl.errors import ConfigError, ReplRLError, how_to_install
from repl_rl.interrupts import end_as_interrupted, exit_code, heard
from repl_rl.terminal import forget_odd_size, one_row
from repl_rl.training.ranks import is_launched, launched, refuse_several

if TYPE_CHECKING:
    from repl_rl.config import Config
    from repl_rl.rollout.plan import Plan
    from repl_rl.training.evaluate import Report
from repl_sandbox.render import clean
from repl_sandbox.types import SandboxError, SettingError

USAGE_ERROR = 2


_EXTRA_OF = {
    **dict.fromkeys(("textual", "nbformat", "tokenizers"), "replay"),
    **dict.fromkeys(("accelerate", "datasets", "httpx", "huggingface_hub", "matplotlib"), "train"),
    **dict.fromkeys(("numpy", "peft", "safetensors", "torch", "transformers", "trl"), "train"),
    "gguf": "gguf",
    **dict.fromkeys(("fastapi", "openenv", "uvicorn"), "openenv"),
}
"""Packages that a base installation does without, and what installs them."""


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 our side failed, 2 bad usage or config, 130 and 143 for
    SIGINT and SIGTERM."""
    open_streams()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    forget_odd_size()
    if not is_launched():
        # With several GPUs transformers would split batches over them behind our back.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    # A shell's background job starts with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end_as_interrupted)
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        _with_hint(error).show()
        sys.exit(USAGE_ERROR)
    except (KeyboardInterrupt, click.Abort) as error:
        detail = str(error.__cause__ or error)  # click has its own type for it
        _fail(f"interrupted{detail and '; '}{detail}", exit_code())
    except (ConfigError, SettingError) as error:
        lacking = _lacking(error.__cause__)
        _fail(one_row(f"{error}; {lacking}" if lacking else str(error)), USAGE_ERROR)
    except ModuleNotFoundError as error:
        if not (lacking := _lacking(error)):
            raise
        _fail(lacking, USAGE_ERROR)
    except (ReplRLError, SandboxError) as error:
        # It may quote the last words of another process, on rows of their own.
        _fail(clean(str(error)), shared.FAILED)


def _lacking(error: BaseException | None) -> str:
    """Say how to install what a ModuleNotFoundError misses; empty for what is in no extra."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (missing or "").partition(".")[0]
    if package not in _EXTRA_OF:
        return ""
    return (
        f"{package} is not installed, but this command needs it; "
        f"{how_to_install(_EXTRA_OF[package])}"
    )


def open_streams() -> None:
    """Give this process the standard streams that it was started without, empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # as long as the process


def _with_hint(error: click.ClickException) -> click.ClickException:
    """Return the error; for an option that is a setting, one that says how to set it."""
    named = re.match(r"No such command '([\w-]+)'", error.message)
    if named is not None and (full := _full_name(named[1])):
        return click.UsageError(f"No such command {named[1]!r}; it is {full!r}")
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    if all(option.name != "overrides" for option in error.ctx.command.params):
        return error
    from repl_rl.config.describe import option_hint

    words = sys.argv[1:]
    behind = words[words.index(error.option_name) + 1 :] if error.option_name in words else []
    given = next((word for word in behind[:1] if not word.startswith("-")), "VALUE")
    hint = option_hint(error.option_name, given)
    if hint is None:
        return error
    return click.UsageError(f"No such option {error.option_name!r}; {hint}", ctx=error.ctx)


def _full_name(name: str) -> str | None:
    """The command of this name within a group; None where there is none."""
    for group in (one for one in cli.commands.values() if isinstance(one, click.Group)):
        if name in group.commands:
            return f"repl-rl {group.name} {name}"
    return None


def _fail(message: str, code: int) -> None:
    """Of several processes the first one alone says that they were interrupted."""
    rank = launched().rank
    if not (rank and heard):
        click.echo(f"repl-rl: {f'rank {rank}: ' if rank else ''}{message}", err=True)
    sys.exit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="repl-rl")
@click.pass_context
def cli(context: click.Context) -> None:
    """Reinforcement learning for language models that think in a Python REPL."""
    if context.invoked_subcommand != train.name:
        refuse_several(f"repl-rl {context.invoked_subcommand}")


for command in (
    *(ask, rollout, play, replay, attach, plot, warmstart),
    *(reward, config_command, merge_command, push, kernels, serve_env),
):
    cli.add_command(command)


@cli.command(name="help")
@click.pass_context
def show_help(context: click.Context) -> None:
    """Print what --help prints."""
    assert context.parent is not None
    click.echo(context.parent.get_help())


@cli.command()
@shared.CONFIG
@click.option("--output", type=Path, metavar="DIR", help="Run folder [runs/TASK-TIME].")
@click.option(
    "--resume",
    type=Path,
    is_flag=False,
    flag_value=Path(),
    metavar="[RUN]",
    help="Go on with a run where its newest checkpoint ends [the newest in runs/].",
)
@click.option("--merge", is_flag=True, help="Write checkpoints/merged, too: see repl-rl merge.")
@click.option("--dry-run", is_flag=True, help="Print config and memory and stop.")
def train(
    output: Path | None, resume: Path | None, merge: bool, dry_run: bool, **options: Any
) -> None:
    """Train a policy with GRPO, line by line.

    It is measured on held-out problems before and after.
    """
    if resume is None:
        plan = shared.plan_of(options, to_train=True)
    else:
        if output is not None:
            raise ConfigError("--output and --resume are given; a resumed run keeps its folder")
        output, plan = shared.plan_to_resume(resume, options)
    config = plan.config
    if merge:
        plan.require_adapter()
    if dry_run:
        from repl_rl.config.describe import settings
        from repl_rl.config.resolve import to_toml

        click.echo(to_toml(config, comments={one.key: one.doc for one in settings()}), nl=False)
        if config.model is not None:
            _estimate(plan, config.model)
        return
    from repl_rl.commands.leaving import leaving, next_after_end, question_of
    from repl_rl.progress import SILENT
    from repl_rl.runs.folder import check_output, new_run_path
    from repl_rl.show.display import Screen

    path = output or new_run_path(config.task.name, Path("runs"))
    if resume is None:
        check_output(path)  # before the imports below, which take seconds
    code = shared.code_options(config, options["files"])
    shared.check_push(config)
    job = partial(_jobs(plan).train, resume=resume is not None, merge=merge)
    if not launched().is_first:
        job(plan, path, SILENT)
        return
    left = leaving(path, code, checkpoint_every=config.report.checkpoint_every)
    with left, Screen() as screen:
        before, after = job(plan, path, screen)
    question = question_of(plan.task, seed=config.seed)
    next_commands = next_after_end(path, code, question=question, may_push=_may_push(config))
    click.echo(
        f"\nheld-out solve rate: {_solved(before)} before, {_solved(after)} after\n"
        f"run folder: {path}\n\n{next_commands}"
    )


def _solved(report: Report | None) -> str:
    """A rate in a sentence."""
    from repl_rl.training.evaluate import NOT_MEASURED

    if report is None:
        return NOT_MEASURED
    ungraded = report.all.ungraded
    return f"{100 * report.rate:.1f} %" + (f" ({ungraded} not graded)" if ungraded else "")


def _estimate(plan: Plan, policy: str) -> None:
    """Say what the run would take, on stderr: stdout is a config."""
    say = partial(click.echo, err=True)
    try:
        shared.load_libraries(plan, err=True)
        from repl_rl.training.runtime import estimate

        estimate(plan, policy, say=say, is_training=True)
    except ConfigError as error:
        say(f"memory: {error}")


def _may_push(config: Config) -> bool:
    """Whether somebody is logged in to the hub, and the run has not been pushed there."""
    from huggingface_hub import get_token

    return not config.report.hub and get_token() is not None


@cli.command(name="eval")
@shared.run_argument("run_or_model", metavar="[RUN_OR_MODEL]", is_trained=True)
@shared.OF_RUN
@click.option(
    "-k",
    "samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Attempts at each problem: pass@1, pass@2, ... pass@k.",
)
@shared.TEMPERATURE
@click.option(
    "--against",
    multiple=True,
    type=Path,
    metavar="RUN_OR_MODEL",
    help="Measure this one, too, on the same problems; repeatable.",
)
@click.option("--output", type=Path, metavar="DIR", help="Keep it, for show, replay and explain.")
@click.option("--picture", type=Path, metavar="FILE", help="Draw the rates: a .png or an .svg.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object on stdout, for programs.")
def evaluate(
    run_or_model: Path,
    samples: int,
    against: tuple[Path, ...],
    output: Path | None,
    picture: Path | None,
    is_json: bool,
    **options: Any,
) -> None:
    """Measure a run's last checkpoint, or a model.

    Without a name it takes the newest run in runs/. Prints the solve rate on held-out problems:
    overall, by family and by tier. Task and settings come from the run, and apply to --against as
    well.
    """
    from rich.console import Console

    from repl_rl.runs.folder import check_output
    from repl_rl.show import eval_table
    from repl_rl.show.display import Screen

    plan = shared.plan_of_run(run_or_model, options)
    if not plan.config.eval.problems:
        raise ConfigError("eval.problems = 0 measures nothing; add --set eval.problems=200")
    for path in (run_or_model, *against):
        shared.say_graded_otherwise(path)
    others = {str(path): shared.with_model(plan, path) for path in against}
    if output is not None:
        check_output(output)
    if picture is not None:
        shared.check_picture(picture)
    shared.load_libraries(plan, err=is_json)
    from repl_rl.training.eval_job import Comparison
    from repl_rl.training.eval_job import evaluate as measure

    with Screen(Console(stderr=is_json)) as screen:
        found = measure(plan, screen, samples=samples, output=output)
        beside = {name: measure(one, screen, samples=samples) for name, one in others.items()}
    compared = Comparison(found=found, against=beside)
    if is_json:
        click.echo(json.dumps(compared.facts()))
    else:
        click.echo(eval_table.table(found.report.rows))
    if beside and not is_json:
        gaps = compared.differences()
        rows = {name: (one.report.all, gaps[name]) for name, one in beside.items()}
        click.echo("\n" + eval_table.comparison(str(run_or_model), found.report.all, rows))
    if picture is not None:
        models = {str(run_or_model): found, **beside}
        eval_table.save_bars({name: one.report.rows for name, one in models.items()}, picture)
        click.echo(f"picture: {picture}", err=is_json)
    if output is not None and not is_json:
        click.echo(f"\nkept: {output}\nnext: repl-rl show {output} --worst")


@cli.command()
@shared.run_argument("run_or_model", metavar="[RUN_OR_MODEL]", is_trained=True)
@shared.OF_RUN
@shared.count(32, "Trajectories to sample.")
def audit(run_or_model: Path, count: int, **options: Any) -> None:
    """Check that what is sampled is what is trained.

    Checks tokens, mask and log-probabilities of new rollouts and of a run's stored ones, by default
    of the newest in runs/. Exit code 1 if something is wrong. ARCHITECTURE.md, section Audit,
    says what each line means.
    """
    from repl_rl.show.display import Screen

    plan = shared.plan_of_run(run_or_model, options)
    shared.load_libraries(plan)
    from repl_rl.training.audit import audit as find

    is_run = (run_or_model / "config.toml").is_file()
    with Screen() as screen:
        findings = find(plan, count=count, run=run_or_model if is_run else None, progress=screen)
    shared.report(findings)


@cli.command()
@shared.run_argument()
@shared.with_options(shared.PART, shared.BEST, shared.WORST)
@shared.count(3, "How many to show.")
def show(
    path: Path, count: int, *, step: int | None, held_out: bool, best: bool, worst: bool
) -> None:
    """Print stored trajectories with outcome and reward of each line.

    RUN is a run folder [the newest in runs/], whose last training step is shown, or a .jsonl file.
    Where siblings leave one another, their tree follows: the value of each state, and the advantage
    of the lines that lead to it.
    """
    from repl_rl.credit.trees.table import branching_groups, tree_table
    from repl_rl.replay.annotated import read
    from repl_rl.replay.jobs import Wanted
    from repl_rl.replay.many import Options
    from repl_rl.replay.vocabulary import find_decode
    from repl_rl.runs.folder import graded_otherwise
    from repl_rl.runs.trajectory_file import Selection
    from repl_rl.show.display import Screen

    wanted = Wanted(
        path=path,
        part=shared.part(step=step, held_out=held_out),
        selection=Selection(which=shared.order(best=best, worst=worst)),
        count=count,
        options=Options(),
        model=None,
        say=shared.say,
    )
    screen = Screen()
    found = wanted.find()
    trees = branching_groups({place.path for place in found})
    for place in found:
        scored = read(place)
        screen.sample(place.id, scored, find_decode(place))
        if siblings := trees.get(place.group):
            shown = scored.trajectory.sibling_index
            screen.table(tree_table([read(one) for one in siblings], shown=shown))
    versions = ({} if place.origin is None else place.origin.versions for place in found)
    for text in list(filter(None, (graded_otherwise(one, path) for one in versions)))[:1]:
        shared.say(text)


@cli.command()
@click.argument("name", required=False)
@shared.count(8, "How many sample problems.")
@click.option("--seed", default=0, show_default=True)
@shared.with_options(shared.FILES, shared.OVERRIDES)
def tasks(
    name: str | None,
    count: int,
    seed: int,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
) -> None:
    """List the tasks, or look at one, or at a file of problems.

    Prints sample problems, what a policy sees of the first, and whether the task can be trained on:
    both splits have problems, and the grader answers. Exit code 1 if something is wrong. Without
    NAME, --config names the task.
    """
    from importlib.metadata import entry_points

    from repl_rl.commands.task_check import findings, samples
    from repl_rl.config.resolve import resolve
    from repl_rl.plugins import users_code
    from repl_rl.rollout.plan import make_task_plan

    if name is None and not files:
        for point in entry_points(group="repl_rl.tasks"):
            click.echo(f"{point.name:24}{point.value}")
        return
    flags = {} if name is None else {"task": name}
    config = resolve(files=files, overrides=overrides, flags=flags)
    plan = shared.said(make_task_plan(config))
    with users_code():
        for text in samples(plan.task, count=count, seed=seed):
            click.echo(text)
        click.echo()
        found = list(findings(plan.task, plan.task_spec, seed=seed))
    shared.report(found)


@cli.command()
@shared.with_options(shared.FILES, shared.OVERRIDES)
def doctor(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Say what this machine can do.

    Prints packages, device, how well kernels are sealed and how fast they are.
    """
    from repl_rl.commands.doctor import examine
    from repl_rl.config.resolve import resolve

    shared.report(examine(resolve(files=files, overrides=overrides).sandbox))


def _jobs(plan: Plan) -> ModuleType:
    """`repl_rl.training.train`."""
    shared.load_libraries(plan)
    import repl_rl.training.train

    return repl_rl.training.train
