"""`repl-rl train`: a policy trained with GRPO, and what to do with it next.

    flags -> Plan, run folder -> `training.train` -> rates, commands
    run folder, its end or what ended it -> a sentence, commands

Knows words for the terminal, and what a run has left behind. Does not know how a policy is trained.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError, ReplRLError
from repl_rl.progress import SILENT
from repl_rl.rollout.plan import Plan
from repl_rl.runs.folder import METRICS, check_output, last_checkpoint, new_run_path
from repl_rl.runs.metrics import read_rows
from repl_rl.update.ranks import launched
from repl_rl.viewer.show.display import Screen
from repl_sandbox.types import SandboxError, SettingError

_WIDTH = 80

if TYPE_CHECKING:
    from repl_rl.training.evaluate import Report


@click.command()
@shared.CONFIG
@click.option("--output", type=Path, metavar="DIR", help="Run folder [runs/TASK-TIME].")
@click.option(
    "--resume",
    type=Path,
    is_flag=False,
    flag_value=shared.NEWEST,
    metavar="[RUN]",
    help="Resume a run from its newest checkpoint [the newest in runs/].",
)
@click.option("--merge", is_flag=True, help="Write checkpoints/merged, too; see repl-rl merge.")
@click.option("--dry-run", is_flag=True, help="Print settings, processes and memory, then stop.")
def train(
    output: Path | None, resume: Path | None, merge: bool, dry_run: bool, **options: Any
) -> None:
    """Train a policy with GRPO, line by line.

    The command measures the policy on held-out problems before and after.
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


@contextlib.contextmanager
def leaving(left: Callable[[], str], after: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Say what is `left` of a run that is called off, or cannot go on, and what to do `after`."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("\n\n".join(filter(None, [left(), after()]))) from None
    except (ConfigError, SettingError):
        raise  # nothing has begun
    except (ReplRLError, SandboxError) as error:
        raise type(error)(f"{error}; {left()}") from None


def left_by(run: Path, *, checkpoint_every: int, steps: int) -> str:
    """Describe what an unfinished run has left, with the folder of its weights if it has any."""
    if not (run / METRICS).exists():
        return "nothing was written"
    step = max((row.step for row in read_rows(run)), default=0)
    weights = last_checkpoint(run)
    state = f"{run} has begun"
    if step:
        state = f"after step {step}: {run} holds metrics and trajectories"
    if weights is not None:
        return f"{state}, and whole weights in {weights.relative_to(run)}"
    if not step:
        return f"{state}, and nothing was trained yet"
    first = min(checkpoint_every, steps)
    return f"{state}, but no weights: the first checkpoint comes after step {first}"


def next_after(run: Path, code: Sequence[str] = ()) -> str:
    """Return the commands to type after an interrupted run; an empty text where it left nothing.

    `code` are options that find the modules that its config names.
    """
    if not (run / METRICS).exists():
        return ""
    again = ["repl-rl", "train", *code, "--resume", str(run)]
    if last_checkpoint(run) is None:
        return commands(["repl-rl", "show", str(run), "--worst"], again)
    return commands(
        ["repl-rl", "eval", str(run), *code], ["repl-rl", "show", str(run), "--worst"], again
    )


def next_after_end(run: Path, code: Sequence[str] = ()) -> str:
    """Return the commands to type after a run that ended, those that show most of it first."""
    name = str(run)
    return commands(
        ["repl-rl", "replay", name, *code, "--html", f"{run}/page.html"],
        ["repl-rl", "reward", "explain", name, *code],
        ["repl-rl", "replay", name, *code, "--worst"],
        ["repl-rl", "eval", name, *code],
        ["repl-rl", "ask", "QUESTION", *code, "--model", name],
    )


def commands(*lines: list[str]) -> str:
    """`next:` and one command a line; a long one is continued below."""
    return "\n".join(["next:", *map(_command, lines)])


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
    every, steps = plan.report.checkpoint_every, plan.grpo.steps
    left = partial(left_by, path, checkpoint_every=every, steps=steps)
    with leaving(left, partial(next_after, path, code)), Screen() as screen:
        reports = job(plan, path, screen)
    before, after = (_solved(one) if one else evaluate.NOT_MEASURED for one in reports)
    click.echo(
        f"\nheld-out solve rate: {before} before, {after} after\n"
        f"run folder: {path}\n\n{next_after_end(path, code)}"
    )


def _estimate(plan: Plan, policy: str, say: Callable[[str], None]) -> None:
    from repl_rl.training.runtime import estimate  # torch
    from repl_rl.training.solved_prefixes import check_solvable
    from repl_rl.training.steps import ProblemSequence
    from repl_rl.training.train import check_world

    ranks = launched()
    if not ranks.is_first:
        return
    try:
        check_solvable(plan, count=ProblemSequence(plan.task, seed=plan.seed).count)
    except ConfigError as error:
        say(f"problems: {error}")
    try:
        for row in check_world(plan, ranks):
            say(row)
    except ConfigError as error:
        say(f"world: {error}")
    else:
        estimate(plan, policy, say=say, is_training=True, ranks=ranks)


def _solved(report: Report) -> str:
    """A rate in a sentence."""
    ungraded = report.all.ungraded
    return f"{100 * report.rate:.1f} %" + (f" ({ungraded} not graded)" if ungraded else "")


def _command(words: list[str]) -> str:
    rows, row = [], " "
    for word in map(shlex.quote, words):
        # Break before an option, so that it stays with its value.
        if word.startswith("--") and len(" ".join(words)) + 2 > _WIDTH:
            rows.append(f"{row} \\")
            row = "     "
        row += f" {word}"
    return "\n".join([*rows, row])
