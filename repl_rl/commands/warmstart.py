"""`repl-rl warmstart`: fine-tune a model on transcripts, or make the starter.

    flags -> Plan, sources -> `training.warmstart` -> rates, commands

Knows words for the terminal. Does not know how a model is warmed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from repl_rl.base.plugins import no_such
from repl_rl.commands import options as shared
from repl_rl.commands.train import commands, leaving
from repl_rl.config import Config
from repl_rl.config.resolve import user_settings
from repl_rl.errors import ConfigError
from repl_rl.golden.check import read_written
from repl_rl.golden.text import SUFFIX, find_files
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.rollout.sampler import Written
from repl_rl.runs.folder import METRICS, check_output, last_checkpoint, new_run_path
from repl_rl.runs.trajectory_file import FOLDER
from repl_rl.tasks.base import demonstrable
from repl_rl.training.sources import Sources, adapted, check_sources
from repl_rl.viewer.show.display import Screen


@click.command()
@shared.CONFIG
@click.option("--output", type=Path, metavar="DIR", help="Run folder [runs/TASK-TIME].")
@click.option("--whole", is_flag=True, help="Train all weights instead of an adapter.")
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=Path,
    metavar="SOURCE",
    help="Transcripts: a file or folder of *.repl, a run or a .jsonl; repeatable.",
)
@click.option("--solved", is_flag=True, help="Take the solved trajectories of a run.")
@click.option(
    "--demonstrations",
    type=click.IntRange(min=0),
    help="Number of transcripts that the task scripts [1000; with --from 0].",
)
@click.option("--dry-run", is_flag=True, help="Print settings and memory, then stop.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object on stdout.")
def warmstart(
    output: Path | None,
    whole: bool,
    sources: tuple[Path, ...],
    solved: bool,
    demonstrations: int | None,
    dry_run: bool,
    is_json: bool,
    **options: Any,
) -> None:
    """Fine-tune a model on transcripts so that it can use the REPL.

    Transcripts are scripted attempts at the task, run in kernels, and those that --from names. The
    command measures the model on held-out problems before and after. Without --model it makes the
    task's starter policy.
    """
    config = shared.resolve(options)
    if config.model is None:
        _refuse_for_starter(options)
        _make_starter(options)
        return
    named = _sources(sources, is_solved=solved)
    plan = _plan(config, options, named, is_whole=whole, demonstrations=demonstrations)
    if dry_run:
        shared.dry_run(plan, partial(_estimate, plan))
        return
    path = output or new_run_path(plan.task_name, Path("runs"))
    check_output(path)  # before the imports below, which take seconds
    shared.check_push(plan.report.hub)
    shared.load_libraries(plan, err=is_json)
    from repl_rl.training import warmstart  # torch and trl: seconds

    with leaving(partial(_left_by, path)), Screen(Console(stderr=is_json)) as screen:
        warmed = warmstart.warm_start(plan, path, screen, named)
    if is_json:
        click.echo(json.dumps({"output": str(path), **warmed.facts()}))
        return
    code = shared.code_options(plan, options["files"])
    click.echo(
        f"\nheld-out before: {warmstart.about(warmed.before)}\n"
        f"held-out after:  {warmstart.about(warmed.after)}\n"
        f"run folder: {path}\n\n{_next(path, code, task=plan.task_name)}"
    )


def _refuse_for_starter(options: dict[str, Any]) -> None:
    """ConfigError for an option or a setting of `--set` that the starter does not read."""
    context = click.get_current_context()
    for one in context.command.params:
        is_given = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        if is_given and one.name not in ("task", "files", "overrides"):
            raise ConfigError(f"{one.opts[0]} needs a model to fine-tune; give --model PATH")
    for name in user_settings(overrides=options["overrides"]):
        if name not in ("task", "data", "sandbox"):
            raise ConfigError(f"settings of {name} need a model to fine-tune; give --model PATH")


def _make_starter(options: dict[str, Any]) -> None:
    plan = shared.plan_of(options)
    demonstrable(plan.task)
    shared.load_libraries(plan)
    from repl_rl.training.train import remake_starter  # torch and trl: seconds

    with Screen() as screen:
        path = remake_starter(plan, screen)
    click.echo(path)


def _sources(paths: Sequence[Path], *, is_solved: bool) -> Sources:
    """Read the sources that --from names. ConfigError for a path that cannot be one."""
    written, runs = list[Written](), list[Path]()
    for path in paths:
        if not path.exists():
            raise no_such("file or run folder", path)
        is_folder = path.is_dir()
        is_run = is_folder and (path.name == FOLDER or (path / FOLDER).is_dir())
        if is_run or path.suffix == ".jsonl":
            runs.append(path)
        elif is_folder or path.suffix == SUFFIX:
            written += _read([path] if not is_folder else find_files([path]))
        else:
            raise ConfigError(
                f"--from {str(path)!r}; expected a {SUFFIX} file, a folder of them, a run's folder "
                f"or a .jsonl file of trajectories"
            )
    if runs and not is_solved:
        raise ConfigError(
            f"--from {str(runs[0])!r} holds trajectories, right and wrong; add --solved to take "
            f"those that were solved"
        )
    if is_solved and not runs:
        raise ConfigError("--solved needs trajectories; name a run or a .jsonl file with --from")
    return Sources(written=tuple(written), runs=tuple(runs))


def _read(files: Sequence[Path]) -> Iterator[Written]:
    for file in files:
        yield from read_written(file)


def _plan(
    config: Config,
    options: dict[str, Any],
    sources: Sources,
    *,
    is_whole: bool,
    demonstrations: int | None,
) -> Plan:
    user = user_settings(files=options["files"], overrides=options["overrides"])
    is_set = "demonstrations" in user.get("warmstart", {})
    if demonstrations is None and (sources.written or sources.runs) and not is_set:
        demonstrations = 0
    if demonstrations is not None:
        section = replace(config.warmstart, demonstrations=demonstrations)
        config = replace(config, warmstart=section)
    plan = make_plan(adapted(config, is_whole=is_whole), to_train=True)
    check_sources(plan, sources)
    return shared.announced(plan)


def _estimate(plan: Plan, model: str, say: Callable[[str], None]) -> None:
    from repl_rl.training.warmstart import estimate_warm  # torch

    estimate_warm(plan, model, say=say)


def _left_by(run: Path) -> str:
    """Return what is left of a warm start that is called off."""
    if not (run / METRICS).exists():
        return "nothing was written"
    weights = last_checkpoint(run)
    if weights is None:
        return f"{run} holds no weights; a warm start cannot be resumed, so start it again"
    return f"whole weights are in {weights}, but were not measured"


def _next(path: Path, code: Sequence[str], *, task: str) -> str:
    """Commands after a warm start. `code` are options that find the modules of its config."""
    return commands(
        ["repl-rl", "eval", str(path), *code],
        ["repl-rl", "show", str(path), "--worst"],
        ["repl-rl", "train", *code, "--task", task, "--model", str(path)],
    )
