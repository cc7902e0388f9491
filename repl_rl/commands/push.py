"""`repl-rl push`: a run's weights and their card, on the hub."""

from __future__ import annotations

from pathlib import Path

import click

from repl_rl.base.plugins import check_repository
from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import run_of
from repl_rl.training import publish


@click.command()
@click.argument("run_or_checkpoint", type=Path)
@click.argument("name", metavar="OWNER/NAME")
def push(run_or_checkpoint: Path, name: str) -> None:
    """Push a run's weights to the hub, with a card.

    Of a run, the newest checkpoint is pushed, or the merged model that belongs to it. The card says
    how the weights were trained and how they did. A card that you have changed is pushed as it is.
    A repository that does not exist is created, private.
    """
    check_repository(name, given="OWNER/NAME =")
    run = run_of(run_or_checkpoint)
    if run is None:
        raise ConfigError(
            f"{str(run_or_checkpoint)!r} is no run; expected the folder of a run, or one of its "
            f"checkpoints"
        )
    is_run = run.samefile(run_or_checkpoint)
    checkpoint = publish.pushed_of(run) if is_run else run_or_checkpoint
    publish.check_push(name, say=shared.say)
    click.echo(f"on the hub: {publish.push(run, checkpoint, name, say=shared.say)}")
