"""`repl-rl push`: a run's weights and their card, on the hub."""

from __future__ import annotations

from pathlib import Path

import click

from repl_rl.base.plugins import check_repository, no_such
from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import run_of
from repl_rl.training import publish


@click.command()
@click.argument("run_or_checkpoint", type=Path)
@click.argument("name", metavar="OWNER/NAME", required=False)
@click.option("--folder", type=Path, metavar="DIR", help="Write it there; no hub is asked.")
def push(run_or_checkpoint: Path, name: str | None, folder: Path | None) -> None:
    """Push a run's weights to the hub, with a card.

    Of a run, the newest checkpoint is pushed, or the merged model that belongs to it. The card says
    how the weights were trained and how they did. A card that you have changed is pushed as it is.
    A repository that does not exist is created, private.
    """
    if (name is None) == (folder is None):
        given = "neither" if name is None else "both"
        raise ConfigError(f"{given} given; expected either OWNER/NAME on the hub or --folder DIR")
    if name is not None:
        check_repository(name, given="OWNER/NAME =")
    if folder is not None and folder.exists():
        raise ConfigError(f"{str(folder)!r} is there already; give another --folder")
    if not run_or_checkpoint.exists():
        raise no_such("run or checkpoint", run_or_checkpoint)
    run = run_of(run_or_checkpoint)
    if run is None:
        raise ConfigError(
            f"{str(run_or_checkpoint)!r} is no run; expected the folder of a run, or one of its "
            f"checkpoints"
        )
    is_run = run.samefile(run_or_checkpoint)
    checkpoint = publish.pushed_of(run) if is_run else run_or_checkpoint
    if folder is not None:
        publish.write_folder(run, checkpoint, folder)
        click.echo(f"folder: {folder}")
        return
    assert name is not None
    publish.check_push(name, say=shared.say)
    click.echo(f"on the hub: {publish.push(run, checkpoint, name, say=shared.say)}")
