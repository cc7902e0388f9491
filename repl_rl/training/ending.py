"""What a run does once its last weights are measured: a curve, a card, a merged model, a push.

    RUN/checkpoints/final -> RUN/curve.png, final/README.md, RUN/checkpoints/merged, the hub

Knows a run's folder. Nothing here takes back what the run has.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from repl_rl.config import Config
from repl_rl.errors import ReplRLError, StorageError
from repl_rl.progress import Progress
from repl_rl.runs.card import write_card
from repl_rl.runs.folder import CHECKPOINTS, FINAL
from repl_rl.training.merge import merge
from repl_rl.training.publish import MERGED, push


def end(run: Path, config: Config, progress: Progress, *, is_merged: bool) -> None:
    """Do all that `config` asks for, and write `checkpoints/merged` with `is_merged`.

    A full disk and a hub that does not answer are warned of. Raises StorageError where the disk
    has no room for a merged model.
    """
    checkpoint = run / CHECKPOINTS / FINAL
    if config.report.curve:
        _draw_curve(run, progress)
    with _warned(progress):
        write_card(run, checkpoint)
    if is_merged:
        merge(str(checkpoint), checkpoint.with_name(MERGED))
        checkpoint = checkpoint.with_name(MERGED)
        with _warned(progress):
            write_card(run, checkpoint)
    if config.report.hub:
        _push(run, checkpoint, config.report.hub, progress)


def _push(run: Path, checkpoint: Path, name: str, progress: Progress) -> None:
    try:
        progress.say(f"on the hub: {push(run, checkpoint, name, say=progress.say)}")
    except ReplRLError as error:
        again = shlex.join(["repl-rl", "push", str(checkpoint), name])
        progress.warn(f"the weights are not on the hub: {error}; push them with: {again}")


def _draw_curve(run: Path, progress: Progress) -> None:
    from repl_rl.show.plot import save_curve

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
