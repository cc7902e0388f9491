"""`repl-rl replay` and `repl-rl attach`: look at stored trajectories, rerun or continue them.

    RUN, conditions -> `replay.jobs` -> rows, files, exit code

Knows flags that go together. Does not know how a trajectory is run again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from repl_rl.base.terminal import one_row
from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind
from repl_rl.runs.folder import RunPart
from repl_rl.runs.trajectory_file import Selection
from repl_rl.viewer.replay import jobs
from repl_rl.viewer.replay.execute import attach as stand
from repl_rl.viewer.replay.jobs import ReplayRequest
from repl_rl.viewer.show.display import Screen
from repl_sandbox.jupyter.front_ends import console_command, missing_console

DIFFERS = 1


_selecting = shared.with_options(
    shared.PART,
    click.option("--id", "id", metavar="ID", help="FILE:NUMBER, as shown, or a problem id."),
    shared.BEST,
    shared.WORST,
    click.option(
        "--outcome",
        type=click.Choice([str(kind) for kind in OutcomeKind]),
        metavar="KIND",
        help="Keep those with a line of this outcome: timeout, name_error, ...",
    ),
    click.option(
        "--grep", metavar="TEXT", help="Keep those with TEXT in statement, line, output or answer."
    ),
    shared.FILES,
    shared.OVERRIDES,
)


@click.command()
@shared.run_argument()
@_selecting
@shared.count(None, "Take at most this many.")
@click.option(
    "--model", metavar="PATH", help="Policy that continues, judges lines or scores a page."
)
@click.option("--execute", is_flag=True, help="Run all lines again; name those that diverge.")
@click.option("--rescore", is_flag=True, help="Grade and reward again; list what changes.")
@click.option("--notebook", type=Path, metavar="FILE", help="Write the first one as an .ipynb.")
@click.option("--html", type=Path, metavar="FILE", help="Write them as one web page.")
def replay(
    path: Path,
    *,
    execute: bool,
    rescore: bool,
    notebook: Path | None,
    html: Path | None,
    count: int | None,
    model: str | None,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    **conditions: Any,
) -> None:
    """Step through trajectories, or run them again.

    By default you step through them in a live kernel, line by line. Flags run them again, score
    them again, or write a notebook or a web page.

    RUN is a run folder [the newest in runs/] or a .jsonl file. Stepping, --notebook and --html take
    a run's last training step; --step and --held-out choose another part. With --id, --outcome,
    --grep, --execute or --rescore they take the whole run, unless you choose a part. --best and
    --worst only sort.

    The exit code is 1 if a line diverged (--execute) or a reward changed (--rescore).
    """
    modes = {"--execute": execute, "--rescore": rescore, "--notebook": notebook, "--html": html}
    chosen = [name for name, value in modes.items() if value]
    _check_modes(chosen, model=model)
    part, selection = _part(conditions), _selection(conditions)
    if model is not None:
        model = shared.named_model(model)
        # The default engine: a policy goes on in this process, whatever the run sampled with.
        shared.before_libraries(model)
    wanted = ReplayRequest(
        path=path,
        part=part,
        selection=selection,
        say=shared.say,
        count=count,
        files=files,
        overrides=overrides,
        model=model,
    )
    if not chosen:
        sys.exit(jobs.step_through(wanted))
    rows, is_same = _do(wanted, chosen[0], notebook or html)
    for row in rows:
        click.echo(one_row(row))
    if not is_same:
        sys.exit(DIFFERS)


def _check_modes(chosen: Sequence[str], *, model: str | None) -> None:
    """ConfigError for flags that do not go together, or not with this terminal."""
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} are given; expected one of them")
    if model is not None and chosen not in ([], ["--html"]):
        raise ConfigError(f"--model goes with stepping or --html; {chosen[0]} asks no policy")
    if not chosen and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "stepping needs a terminal; give --execute, --rescore, --html FILE or --notebook FILE"
        )


def _do(wanted: ReplayRequest, mode: str, out: Path | None) -> tuple[list[str], bool]:
    """(rows to print, whether all is as recorded); files are written to `out`."""
    with Screen() as screen:
        if mode == "--execute":
            return jobs.run_again(wanted, screen)
        if mode == "--rescore":
            return jobs.score_again(wanted, screen)
        assert out is not None, "the flag is the name of a file"
        if mode == "--notebook":
            return jobs.write_one_notebook(wanted, out), True
        return jobs.write_html(wanted, screen, out), True


@click.command()
@shared.run_argument()
@_selecting
@click.option("--line", type=int, required=True, help="Line number, from 1.")
def attach(
    path: Path, *, line: int, files: tuple[Path, ...], overrides: tuple[str, ...], **conditions: Any
) -> None:
    """Attach a Jupyter console to the state before a line.

    The command rebuilds that state in a kernel and prints how to attach. Ctrl-C here interrupts
    what runs in the kernel; a second Ctrl-C ends the kernel.
    """
    wanted = ReplayRequest(
        path=path,
        part=_part(conditions),
        selection=_selection(conditions),
        say=shared.say,
        count=1,
        files=files,
        overrides=overrides,
    )
    place = wanted.find()[0]

    def on_ready(connection: Path) -> None:
        click.echo(
            f"the kernel stands before line {line} of {one_row(place.id)}; attach to it with\n"
        )
        click.echo(f"  {console_command(connection)}\n")
        if (installation := missing_console()) is not None:
            shared.say(f"jupyter console is not installed here: {installation}")
        shared.say("the kernel's output reaches your terminal unfiltered")
        shared.say(
            "Ctrl-C here interrupts the line that runs there; a second Ctrl-C ends the kernel"
        )

    asyncio.run(stand(place, wanted.scene(place), line=line, say=shared.say, on_ready=on_ready))


def _part(conditions: dict[str, Any]) -> RunPart:
    return RunPart(step=conditions.pop("step"), held_out=conditions.pop("held_out"))


def _selection(conditions: dict[str, Any]) -> Selection:
    outcome = conditions.pop("outcome")
    which = shared.order(best=conditions.pop("best"), worst=conditions.pop("worst"))
    kind = None if outcome is None else OutcomeKind(outcome)
    return Selection(which=which, outcome=kind, **conditions)
