"""The command line: `repl-rl COMMAND`. Turns flags into a Config and errors into one line.

Floor 7. Heavy imports stand inside commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import click

from repl_rl import __version__
from repl_rl.errors import ConfigError, ReplRLError
from repl_rl.reward_cli import reward
from repl_rl.types import Finding
from sandbox.types import SandboxError, SettingError

USAGE_ERROR, INTERRUPTED, FAILED = 2, 130, 1


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 our side failed, 2 bad usage or config, 130 Ctrl-C."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Where there are several GPUs transformers would split batches over them behind our back.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    # A polite kill cleans up as Ctrl-C does, through whatever handles that at the moment. A shell's
    # background job starts with Ctrl-C ignored, which would leave it nothing to go through.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE_ERROR)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; what was written so far is complete", INTERRUPTED)
    except (ConfigError, SettingError) as error:
        _fail(str(error), USAGE_ERROR)
    except (ReplRLError, SandboxError) as error:
        _fail(str(error), FAILED)


def _fail(message: str, code: int) -> None:
    click.echo(f"repl-rl: {message}", err=True)
    sys.exit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="repl-rl")
def cli() -> None:
    """Reinforcement learning for language models that think in a Python REPL."""


cli.add_command(reward)


def _config_options(command: Any) -> Any:
    for option in (
        click.option("--task", metavar="NAME", help="Entry point or module:Class [sympy-proofs]."),
        click.option("--model", metavar="PATH", help="Model folder or owner/name [the starter]."),
        click.option("--engine", type=click.Choice(["hf", "vllm", "vllm-server"]), help="[hf]"),
        click.option("--config", "files", multiple=True, type=Path, help="TOML file; repeatable."),
        click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE"),
        click.option("--seed", type=int, help="Seed of everything random."),
    ):
        command = option(command)
    return command


@cli.command()
@_config_options
@click.option("--output", type=Path, metavar="DIR", help="Run folder [runs/TASK-TIME].")
@click.option("--dry-run", is_flag=True, help="Print the resolved config and stop.")
def train(output: Path | None, dry_run: bool, **options: Any) -> None:
    """Train a policy with GRPO, line by line, and measure it before and after."""
    from repl_rl.settings import to_toml

    config = _resolve(options)
    if dry_run:
        click.echo(to_toml(config), nl=False)
        return
    from repl_rl.display import Screen
    from repl_rl.store import check_output, new_run_path

    path = output or new_run_path(config.task, Path("runs"))
    check_output(path)  # here already, for what comes next takes seconds to import
    with Screen() as screen:
        before, after = _jobs(config).train(config, path, screen)
    click.echo(
        f"\nheld-out solve rate: {100 * before.rate:.1f} % before, {100 * after.rate:.1f} % after\n"
        f"run folder: {path}\n\n"
        f"next:\n"
        f"  repl-rl eval {path} --task {config.task}\n"
        f"  repl-rl show {path}\n"
        f"  repl-rl train --config {path}/config.toml --seed {config.seed + 1}"
    )


@cli.command(name="eval")
@click.argument("run_or_model", type=Path)
@_config_options
def evaluate(run_or_model: Path, **options: Any) -> None:
    """Held-out solve rate of a run's last checkpoint, or of a model folder."""
    from repl_rl.display import Screen

    config = _resolve(_of_run(run_or_model, options))
    with Screen() as screen:
        report = _jobs(config).evaluate_model(config, screen)
    click.echo(report.table())


@cli.command()
@click.argument("run_or_model", type=Path)
@_config_options
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Trajectories to sample.",
)
def audit(run_or_model: Path, count: int, **options: Any) -> None:
    """Check that what is sampled is what is trained: tokens, mask, log-probabilities.

    Exit code 1 if something is amiss. What each line means: ARCHITECTURE.md, section Audit.
    """
    from repl_rl.display import Screen

    config = _resolve(_of_run(run_or_model, options))
    _before_libraries(config)
    from repl_rl.audit import audit as find

    is_run = (run_or_model / "config.toml").is_file()
    with Screen() as screen:
        findings = find(config, count=count, run=run_or_model if is_run else None, screen=screen)
    _tell(findings)


@cli.command()
@_config_options
def warmstart(**options: Any) -> None:
    """Make the task's starter policy: supervised training on really executed transcripts."""
    from repl_rl.display import Screen

    config = _resolve(options)
    with Screen() as screen:
        path = _jobs(config).warm_start(config, screen)
    click.echo(path)


@cli.command()
@click.argument("path", type=Path)
@click.option("--best", "which", flag_value="best", help="Highest reward first.")
@click.option("--worst", "which", flag_value="worst", help="Lowest reward first.")
@click.option("-n", "count", default=3, show_default=True, help="How many to show.")
def show(path: Path, which: Literal["best", "worst"] | None, count: int) -> None:
    """Print trajectories of a run folder or a .jsonl file, in colours."""
    from repl_rl.display import Screen
    from repl_rl.store import select_trajectories

    screen = Screen()
    for title, scored in select_trajectories(path, which=which, count=count):
        screen.sample(title, scored)


@cli.command()
@click.argument("name", required=False)
@click.option("-n", "count", default=8, show_default=True, help="How many sample problems.")
@click.option("--seed", default=0, show_default=True)
def tasks(name: str | None, count: int, seed: int) -> None:
    """List the installed tasks, or print sample problems of one."""
    from importlib.metadata import entry_points
    from itertools import islice

    from repl_rl.tasks.base import load_task
    from repl_rl.types import Split

    if name is None:
        for point in entry_points(group="repl_rl.tasks"):
            click.echo(f"{point.name:24}{point.value}")
        return
    task, _ = load_task(name)
    for problem in islice(task.problems(Split.TRAIN, seed=seed), count):
        click.echo(f"{problem.id}  {problem.statement}")


@cli.command()
@click.option("--config", "files", multiple=True, type=Path, help="TOML file; repeatable.")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE")
def doctor(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Say what this machine can do: packages, device, how well kernels are sealed, how fast."""
    from repl_rl.doctor import examine
    from repl_rl.settings import resolve

    _tell(examine(resolve(files=files, overrides=overrides).sandbox))


def _tell(findings: Sequence[Finding]) -> None:
    """A line for each; exit code 1 unless all is well."""
    width = max(12, *(len(finding.name) + 2 for finding in findings))
    for finding in findings:
        mark = "ok" if finding.is_well else "!!"
        click.echo(f"{mark}  {finding.name:{width}}{finding.text}")
    if not all(finding.is_well for finding in findings):
        sys.exit(FAILED)


def _resolve(options: dict[str, Any]) -> Any:
    """The config, once its task and its model have been found: a wrong name is refused at once."""
    from repl_rl.plugins import resolve_model, resolve_spec
    from repl_rl.settings import resolve

    given = {key: options[key] for key in ("task", "model", "seed") if options[key] is not None}
    if options["engine"] is not None:
        given["sampling"] = {"engine": options["engine"]}
    config = resolve(files=options["files"], overrides=options["overrides"], flags=given)
    resolve_spec(config.task, group="repl_rl.tasks")
    if config.model is not None:
        resolve_model(config.model)
    return config


def _jobs(config: Any) -> ModuleType:
    """`repl_rl.train`."""
    _before_libraries(config)
    import repl_rl.train

    return repl_rl.train


def _before_libraries(config: Any) -> None:
    """Say what must be said before they are imported: no progress bars, `Screen` has its own."""
    if config.sampling.engine == "vllm":
        from repl_rl.engines.vllm import prepare

        prepare()
    import datasets
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped upstream
    datasets.disable_progress_bars()


def _of_run(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The options that evaluate `path`: a run brings its own config and last checkpoint."""
    if not (path / "config.toml").is_file():
        return {**options, "model": str(path)}
    checkpoint = path / "checkpoints" / "final"
    if not checkpoint.is_dir():
        raise ConfigError(f"run {str(path)!r} has no checkpoints/final: it did not end")
    files = (path / "config.toml", *options["files"])
    return {**options, "files": files, "model": str(checkpoint)}
