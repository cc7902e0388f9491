"""Options that commands share, the config and the plan that they make, and a report.

    flags -> Config -> Plan

Knows folders of runs and words for the terminal. Imports no torch: a command calls `load_libraries`
when all that can be refused has been, and imports what needs it behind that call.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from logging import ERROR
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from repl_rl.base.disk import check_writable
from repl_rl.base.plugins import resolve_model, search_too
from repl_rl.base.terminal import one_row
from repl_rl.config import Config
from repl_rl.config import resolve as settings
from repl_rl.config.describe import settings as all_settings
from repl_rl.errors import ConfigError
from repl_rl.models import hub
from repl_rl.records import Finding
from repl_rl.rollout.plan import Plan, TaskPlan, make_plan
from repl_rl.runs import resume
from repl_rl.runs.folder import (
    graded_otherwise,
    model_of,
    read_versions,
    refuse_foreign_run,
    run_around,
    run_of,
)
from repl_rl.tasks.base import StoredTask, check_task
from repl_rl.tasks.data.names import is_file
from repl_rl.training import publish
from repl_rl.update.ranks import launched

FAILED = 1
NEWEST = Path("\0")
"""Stands for the newest run in runs/; no path that a person gives is equal to it."""
_OF_A_MODEL = "config.json", "adapter_config.json"

_NOBODYS_BUSINESS = ("transformers.trainer_utils", "transformers.utils.generic")
"""Loggers that warn of what is done on purpose: ids of padding are aligned, no cache in training.
Other loggers report what a folder lacks."""

Command = TypeVar("Command", bound="Callable[..., Any] | click.Command")
AnyPlan = TypeVar("AnyPlan", bound="TaskPlan")


def _search_beside(
    _context: click.Context, _option: click.Parameter, files: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Let modules that config files name be found beside those files, the last file's first."""
    for file in reversed(files):
        if _may_bring_code(file):
            search_too(file.parent)
    return files


def _may_bring_code(file: Path) -> bool:
    """False in a run's folder: whoever packed it wrote every file in it."""
    return run_of(file.absolute().parent) is None


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that gives a command these options; `--help` lists them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


TASK = click.option(
    "--task",
    metavar="NAME",
    help="Name, module:Class, rows.jsonl or hf:owner/name [sympy-proofs].",
)
MODEL = click.option(
    "--model", metavar="PATH", help="Folder, FILE.gguf or owner/name on the hub [the starter]."
)
ENGINE = click.option(
    "--engine", metavar="NAME", help="hf, vllm, vllm-server, auto or module:Class [auto]."
)
TEMPERATURE = click.option(
    "--temperature", type=float, help="Sampling temperature; 0 is greedy [the run's]."
)
FILES = click.option(
    "--config",
    "files",
    multiple=True,
    type=Path,
    callback=_search_beside,
    help="TOML file of settings; repeatable. Modules that it names may lie next to it.",
)
OVERRIDES = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Change one setting; repeatable. See repl-rl config.",
)


def _or_newest(
    _context: click.Context,
    _argument: click.Parameter,
    given: Path | tuple[Path, ...] | None,
    *,
    is_trained: bool,
) -> Path | tuple[Path, ...]:
    """Return what a person named; else the newest run, which is said."""
    if given:
        return given
    run = _newest_run(is_trained=is_trained)
    return run if given is None else (run,)


def _newest_run(**conditions: bool) -> Path:
    """`resume.newest_run` in runs/. It goes by times of files, so it says which one it took."""
    run = resume.newest_run(Path("runs"), **conditions)
    say(f"{run}, the newest run")
    return run


def run_argument(
    name: str = "path", *, metavar: str = "[RUN]", nargs: int = 1, is_trained: bool = False
) -> Callable[[Command], Command]:
    """The run that a command is about, or several; by default the newest in runs/.

    With `is_trained` the newest one that `play` or `eval --output` made does not count.
    """
    newest = functools.partial(_or_newest, is_trained=is_trained)
    return click.argument(
        name, nargs=nargs, required=False, type=Path, metavar=metavar, callback=newest
    )


PART = with_options(
    click.option(
        "--step", type=click.IntRange(min=0), metavar="N", help="Take training step N [the last]."
    ),
    click.option(
        "--held-out", is_flag=True, help="Take the last evaluation, or the one after step N."
    ),
)
"""Options for a `RunPart`."""
BEST = click.option("--best", is_flag=True, help="Highest reward first.")
WORST = click.option("--worst", is_flag=True, help="Lowest reward first.")
SEED = click.option(
    "--seed", type=int, help="Seed for problems, rollouts, kernels and update order."
)


def count(default: int | None, what: str) -> Callable[[Command], Command]:
    """`-n`: how many; `what` is its help."""
    return click.option(
        "-n",
        "count",
        type=click.IntRange(min=1),
        default=default,
        show_default=default is not None,
        help=what,
    )


CONFIG = with_options(TASK, MODEL, ENGINE, FILES, OVERRIDES, SEED)
"""The options of most commands, which make a config."""
OF_RUN = with_options(TASK, ENGINE, FILES, OVERRIDES, SEED)
"""Options of a command whose argument names the model."""


def resolve(options: dict[str, Any], *, saved: str = "", of: Path | None = None) -> Config:
    """The config, after its task and its model were found: a wrong name is refused at once.

    `saved` is the config of a run, as TOML, below all options; `of` is that run, where it may come
    from anybody.
    """
    keys = ("task", "model", "seed", "preset")
    given = {key: options[key] for key in keys if options.get(key) is not None}
    if "model" in given:
        given["model"] = named_model(given["model"])
    sampling = ("engine", "temperature")
    given["sampling"] = {key: options[key] for key in sampling if options.get(key) is not None}
    layers = {"files": options["files"], "overrides": options["overrides"], "flags": given}
    config = settings.resolve(saved=saved, **layers)
    if of is not None:
        refuse_foreign_run(of, saved, config, settings.user_settings(**layers))
    check_task(config.task.name)
    if config.model is not None:
        resolve_model(config.model)
    return config


def plan_of(options: dict[str, Any], *, to_train: bool = False) -> Plan:
    """The plan of what these options ask for."""
    plan = make_plan(resolve(options), to_train=to_train)
    plan.require_policy()
    return announced(plan)


def announced(plan: AnyPlan) -> AnyPlan:
    """Return the plan, after a line about the data that its task has read, if it reads any."""
    if isinstance(plan.task, StoredTask):
        say(plan.task.read().summary)
    return plan


def code_options(plan: TaskPlan, files: Sequence[Path]) -> list[str]:
    """The `--config` that a later command takes to find the modules and rows that this one found.

    A run does not keep where they lay: its files may come from anybody.
    """
    config, sampling = plan.config, plan.sampling
    named = (config.task.name, config.transcript, config.reward.function, config.grpo.credit)
    has_code = any(":" in name for name in (*named, sampling.sampler, sampling.engine))
    if not (has_code or is_file(config.task.name)):
        return []
    away = [file for file in files if file.absolute().parent != Path.cwd()]
    return [word for file in filter(_may_bring_code, away) for word in ("--config", str(file))]


def named_model(name: str) -> str:
    """The model that a person names; for a run its newest checkpoint, which is printed."""
    path = Path(name).expanduser()
    if (model := model_of(path)) == path:
        return name
    say(f"{model.name} of {path}")
    return str(model)


def plan_of_run(path: Path, options: dict[str, Any]) -> Plan:
    """The plan of the run that `path` is or is a checkpoint of, under `options`, checked.

    Its model is that checkpoint, or the newest one. A `path` that belongs to no run is a model.
    """
    run = run_of(path)
    if run is None:
        return plan_of({**options, "model": str(path)})
    own = run / "config.toml"
    saved = settings.read_config(own)
    config = resolve({**options, "model": str(path)}, saved=saved, of=run)
    plan = make_plan(config)
    num_changed = settings.num_changed(settings.resolve(saved=saved), config)
    say(f"settings of {own}, {num_changed} changed")
    return announced(plan)


def say_graded_otherwise(path: Path) -> None:
    """Say so where another version of the grader judged the run that `path` belongs to."""
    run = run_of(path)
    if run is not None and (text := graded_otherwise(read_versions(run), run)) is not None:
        say(text)


def plan_beside(path: Path, model: Path | None, options: dict[str, Any]) -> Plan:
    """The plan of the run that a file or folder of trajectories lies in, for its model or another.

    Raises ConfigError where neither is there.
    """
    run = run_around(path)
    if run is None and model is None:
        raise ConfigError(f"{str(path)!r} lies in no run, so give --model PATH")
    saved = settings.read_config(run / "config.toml") if run is not None else ""
    config = resolve({**options, "model": str(model or run)}, saved=saved, of=run)
    return announced(make_plan(config))


def with_model(plan: Plan, path: Path) -> Plan:
    """Return the plan for another model, or for a run's newest checkpoint."""
    model = named_model(str(path))
    folder = Path(resolve_model(model))
    if folder.is_dir() and not any((folder / name).is_file() for name in _OF_A_MODEL):
        raise ConfigError(
            f"{str(path)!r} holds no model; expected {' or '.join(_OF_A_MODEL)} in it"
        )
    return plan.changed(model=model)


def dry_run(plan: Plan, estimate: Callable[[str, Callable[[str], None]], object]) -> None:
    """Print its config, and on stderr what `estimate` says of the model's memory, if it names one.

    `estimate` gets the model and where to say it, behind the import of libraries.
    """
    comments = {one.key: one.doc for one in all_settings()}
    click.echo(settings.to_toml(plan.config, comments=comments), nl=False)
    tell = functools.partial(click.echo, err=True)
    if plan.why_engine:
        tell(f"engine: {plan.about_engine}")
    if plan.model is None:
        return
    try:
        load_libraries(plan, err=True)
        estimate(plan.model, tell)
    except ConfigError as error:
        tell(f"memory: {error}")


def check_picture(path: Path) -> None:
    """ConfigError for a file that cannot be a picture."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"{str(path)!r} is no picture; expected a name that ends in .png or .svg")
    if not path.parent.is_dir():
        raise ConfigError(f"{str(path)!r}: there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; expected a file")
    check_writable(path)


def plan_to_resume(path: Path, options: dict[str, Any]) -> tuple[Path, Plan]:
    """The run to go on with, and its plan under `options`. `NEWEST` is the newest run of all.

    Config files that are given only say where modules lie: the run has its settings, and a row
    names each of theirs that is another.
    Raises ConfigError for a run that cannot go on, or whose settings would differ in its parts.
    """
    run = _newest_run(to_resume=True) if path == NEWEST else path
    begun = resume.begun(run)
    saved = settings.read_config(run / "config.toml")
    settings.refuse_removed(saved, options["overrides"])
    config = resolve({**options, "files": ()}, saved=saved)
    for key, kept, named in settings.differences(config, resolve(options, saved=saved)):
        say(f"{key} = {named} of --config has no effect: the run goes on with {kept}")
    plan = make_plan(config, to_train=True)
    for change in resume.changes(begun, config):
        say(change)
    return run, announced(plan)


def order(*, best: bool, worst: bool) -> Literal["best", "worst"] | None:
    """The order that `BEST` and `WORST` ask for; None for the order of the file."""
    if best and worst:
        raise ConfigError("--best and --worst are given; expected one of them")
    return "best" if best else "worst" if worst else None


def say(text: str) -> None:
    """Print a row beside the result, on stderr; of several processes the first one does."""
    if launched().is_first:
        click.echo(f"repl-rl: {one_row(text)}", err=True)


def load_libraries(plan: Plan, *, err: bool = False) -> None:
    """Call `before_libraries` for the engine of a plan."""
    before_libraries(plan.model, err=err, prepare=plan.engine.prepare)


def before_libraries(
    model: str | None, *, err: bool = False, prepare: Callable[[], None] = lambda: None
) -> None:
    """Set what must be set around their import: no progress bars, `Screen` has its own.

    A person gets a line first, for it takes seconds: on stderr with `err`. Raises ConfigError for a
    model that is not on the hub.
    """
    if model is not None and not Path(name := resolve_model(model)).exists():
        hub.check(name, say=say)
    if launched().is_first:
        click.echo("loading torch and transformers ...", err=err)
    prepare()
    import datasets
    from transformers.utils import logging

    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for name in _NOBODYS_BUSINESS:
        logging.get_logger(name).setLevel(ERROR)


def check_push(repository: str | None) -> None:
    """ConfigError where the first process could not push what a run ends with to its hub."""
    if repository and launched().is_first:
        try:
            publish.check_push(repository, say=say)
        except ConfigError as error:
            later = "or leave report.hub empty, and push with `repl-rl push` when the run has ended"
            raise ConfigError(f"{error}, {later}") from None


def report(findings: Sequence[Finding]) -> None:
    """Print a line for each; exit code 1 unless all have passed."""
    width = max(12, *(len(finding.name) + 2 for finding in findings))
    for finding in findings:
        mark = "ok" if finding.passed else "!!"
        click.echo(f"{mark}  {finding.name:{width}}{one_row(finding.text)}")
    if not all(finding.passed for finding in findings):
        sys.exit(FAILED)
