"""A group that branches, as a table: an edge a row, indented where one leaves another.

    files -> groups that branch -> edges -> Table

Knows values. Does not know screens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from repl_rl.base.terminal import shorten, signed
from repl_rl.credit.trees.edges import outline
from repl_rl.records import Scored
from repl_rl.runs.trajectory_file import StoredTrajectory, places
from repl_rl.transcript.format import strip_line
from repl_sandbox.render import clean

_SOURCE = 44
"""Characters of an edge's first line, its indent included."""


def branching_groups(paths: Iterable[Path]) -> dict[object, list[StoredTrajectory]]:
    """Siblings in the order of files, by `StoredTrajectory.group`, where one leaves others."""
    members: defaultdict[object, list[StoredTrajectory]] = defaultdict(list)
    for path in paths:
        for stored in places(path):
            members[stored.group].append(stored)
    return {
        group: same
        for group, same in members.items()
        if any(one.glance.trajectory.branch for one in same)
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
