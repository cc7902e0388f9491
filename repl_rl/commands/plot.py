"""`repl-rl plot`: learning curves of runs, as pictures.

    folders of runs -> curves -> files, whose names are printed

Knows folders. Does not know how a curve is drawn.
"""

from __future__ import annotations

from pathlib import Path

import click

from repl_rl.commands.options import check_picture, run_argument
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import CURVES
from repl_rl.runs.metrics import Curve, read_curve

_OF_SEVERAL = [Path("curves.png"), Path("curves.svg")]


@click.command()
@run_argument("runs", metavar="[RUN...]", nargs=-1, is_trained=True)
@click.option(
    "--output", type=Path, metavar="FILE", help="Write this .png or .svg instead of both files."
)
def plot(runs: tuple[Path, ...], output: Path | None) -> None:
    """Draw the learning curves of runs.

    The picture shows the solve rate against steps, tokens and time. For one run it also shows the
    outcomes of lines and the time of each part of a step. Several runs share a picture.

    RUN is by default the newest in runs/. One run gets curve.png and curve.svg in its folder.
    Several runs get curves.png and curves.svg in the current folder.
    """
    different = list({run.resolve(): run for run in runs}.values())
    is_one = len(different) == 1
    paths = [different[0] / name for name in CURVES] if is_one else _OF_SEVERAL
    if output is not None:
        check_picture(output)
        paths = [output]
    curves = [_curve(run) for run in different]
    from repl_rl.runs.plot import MAX_CURVES, names_of, save  # matplotlib, of the extra `train`

    if len(curves) > MAX_CURVES:
        raise ConfigError(f"{len(curves)} runs are given; a picture holds {MAX_CURVES} at most")
    for path in save(dict(zip(names_of(different), curves, strict=True)), paths):
        click.echo(path)


def _curve(run: Path) -> Curve:
    curve = read_curve(run)
    if not curve.steps:
        raise ConfigError(
            f"{str(run)!r} has nothing to plot: no step of training is on record; expected the "
            f"folder of a run that took a step"
        )
    return curve
