"""`repl-rl show`: stored trajectories in words, and the trees of those that leave one another.

    RUN, a part of it -> [Place] -> rows on the screen

Knows which are asked for. Does not know how one is drawn.
"""

from __future__ import annotations

from pathlib import Path

import click

from repl_rl.commands import options as shared
from repl_rl.credit.trees.table import branching_groups, tree_table
from repl_rl.runs.folder import RunPart, graded_otherwise
from repl_rl.runs.trajectory_file import Selection
from repl_rl.viewer.replay.annotated import read
from repl_rl.viewer.replay.jobs import ReplayRequest
from repl_rl.viewer.replay.scene import find_decode
from repl_rl.viewer.show.display import Screen


@click.command()
@shared.run_argument()
@shared.with_options(shared.PART, shared.BEST, shared.WORST)
@shared.count(3, "How many to show.")
def show(
    path: Path, count: int, *, step: int | None, held_out: bool, best: bool, worst: bool
) -> None:
    """Print stored trajectories with outcome and reward of each line.

    RUN is a run folder [the newest in runs/], whose last training step is shown, or a .jsonl file.
    Where siblings leave one another, their tree follows: the value of each state, and the advantage
    of the lines that lead to it.
    """
    wanted = ReplayRequest(
        path=path,
        part=RunPart(step=step, held_out=held_out),
        selection=Selection(which=shared.order(best=best, worst=worst)),
        say=shared.say,
        count=count,
    )
    screen = Screen()
    found = wanted.find()
    trees = branching_groups({place.path for place in found})
    for place in found:
        scored = read(place)
        screen.sample(place.id, scored, find_decode(place))
        if siblings := trees.get(place.group):
            shown = scored.trajectory.sibling_index
            screen.table(tree_table([read(one) for one in siblings], shown=shown))
    versions = ({} if place.origin is None else place.origin.versions for place in found)
    for text in list(filter(None, (graded_otherwise(one, path) for one in versions)))[:1]:
        shared.say(text)
