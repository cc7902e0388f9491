"""`repl-rl show`: stored trajectories in words, and the trees of those that leave one another.

    RUN, a part of it -> [Place] -> rows on the screen
    files -> groups that branch -> edges -> a row for each, indented where one leaves another

Knows which are asked for, and the values of a tree. Does not know how a trajectory is drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from repl_rl.base.terminal import shorten, signed
from repl_rl.commands import options as shared
from repl_rl.credit.trees import outline
from repl_rl.records import Scored
from repl_rl.runs.folder import RunPart, graded_otherwise
from repl_rl.runs.trajectory_file import Selection, StoredTrajectory, places
from repl_rl.transcript.format import strip_line
from repl_rl.viewer.replay.annotated import read
from repl_rl.viewer.replay.jobs import ReplayRequest
from repl_rl.viewer.replay.scene import find_decode
from repl_rl.viewer.show.display import Screen
from repl_sandbox.render import clean

_SOURCE = 44
"""Characters of an edge's first line, its indent included."""


@click.command()
@shared.run_argument()
@shared.with_options(shared.PART, shared.BEST, shared.WORST)
@shared.count(3, "How many to show.")
def show(
    path: Path, count: int, *, step: int | None, held_out: bool, best: bool, worst: bool
) -> None:
    """Print stored trajectories, with each line's outcome and reward.

    RUN is a run folder [the newest in runs/] or a .jsonl file. Of a run, the last training step is
    shown. If siblings branch from one another, their tree follows, with the value of each state and
    the advantage of the lines that lead to it.
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


def branching_groups(paths: Iterable[Path]) -> dict[object, list[StoredTrajectory]]:
    """Siblings in the order of files, by `StoredTrajectory.group`, where one leaves others."""
    members: defaultdict[object, list[StoredTrajectory]] = defaultdict(list)
    for path in paths:
        for stored in places(path):
            members[stored.group].append(stored)
    return {
        group: same
        for group, same in members.items()
        if any(
            left and left.leaves_sibling
            for left in map(attrgetter("glance.trajectory.branch"), same)
        )
    }


def tree_table(group: Sequence[Scored], *, shown: int) -> Table:
    """The value of each state behind an edge, and the edge's advantage; `*` marks sibling `shown`.

    Lines that several share stand in one row.
    """
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("its group", no_wrap=True)
    for name in ("lines", "value", "advantage"):
        table.add_column(name, justify="right")
    edges = outline(group)
    first = next((one.edge for one in edges if one.edge.start == 0), None)
    if first is not None:
        table.add_row(Text("prompt", "dim"), "", _value(first.before), "")
    for depth, at, edge in edges:
        trajectory = group[at].trajectory
        is_marked = trajectory.sibling_index == shown
        name = f"{'  ' * depth}{trajectory.sibling_index}{'*' if is_marked else ' '} "
        lines = trajectory.lines[edge.start : edge.stop]
        source = strip_line(lines[0].source) if lines else ""
        text = shorten(clean(source).replace("\n", " "), max(8, _SOURCE - len(name)))
        table.add_row(
            Text(name + text, "bold" if is_marked else ""),
            f"{edge.start + 1}-{edge.stop}" if len(lines) > 1 else f"{edge.stop}" if lines else "",
            _value(edge.after),
            signed(edge.advantage),
        )
    return table


def _value(value: float | None) -> str:
    return "-" if value is None else signed(value)
