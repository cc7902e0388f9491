"""`repl-rl train`: a policy trained with GRPO, and what to do with it next.

    flags -> Plan, run folder -> `training.train` -> rates, commands

Knows words for the terminal. Does not know how a policy is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repl_rl.commands import options as shared
from repl_rl.commands.leaving import leaving, left_by, next_after, next_after_end
from repl_rl.errors import ConfigError
from repl_rl.progress import SILENT
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import check_output, new_run_path
from repl_rl.update.ranks import launched
from repl_rl.viewer.show.display import Screen

if TYPE_CHECKING:
    from repl_rl.training.evaluate import Report


@click.command()
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
    if merge:
        plan.require_adapter()
    if dry_run:
        shared.dry_run(plan, partial(_estimate, plan))
        return
    path = output or new_run_path(plan.task_name, Path("runs"))
    if resume is None:
        check_output(path)
    code = shared.code_options(plan, options["files"])
    shared.check_push(plan.report.hub)
    _train(plan, path, code, resume=resume is not None, merge=merge)


def _train(plan: Plan, path: Path, code: list[str], *, resume: bool, merge: bool) -> None:
    """Train, and say how it went. `code` are options that find the modules that its config names.

    Of several processes the first one alone has a screen.
    """
    shared.load_libraries(plan)
    from repl_rl.training import evaluate, train  # torch and trl: seconds

    job = partial(train.train, resume=resume, merge=merge)
    if not launched().is_first:
        job(plan, path, SILENT)
        return
    left = partial(left_by, path, checkpoint_every=plan.report.checkpoint_every)
    with leaving(left, partial(next_after, path, code)), Screen() as screen:
        reports = job(plan, path, screen)
    before, after = (_solved(one) if one else evaluate.NOT_MEASURED for one in reports)
    click.echo(
        f"\nheld-out solve rate: {before} before, {after} after\n"
        f"run folder: {path}\n\n{next_after_end(path, code)}"
    )


def _estimate(plan: Plan, policy: str, say: Callable[[str], None]) -> None:
    from repl_rl.training.runtime import estimate  # torch

    estimate(plan, policy, say=say, is_training=True)


def _solved(report: Report) -> str:
    """A rate in a sentence."""
    ungraded = report.all.ungraded
    return f"{100 * report.rate:.1f} %" + (f" ({ungraded} not graded)" if ungraded else "")
