"""A group that branches, in a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fixture_types import MakeTrajectory
from repl_rl.commands.show import tree_table
from repl_rl.records import Branch, Scored
from repl_rl.runs.trajectory_file import append
from repl_rl.viewer.show.display import Screen
from repl_rl.viewer.show.marked import marked_trajectory
from tree_kit import three_leaves

TREE = """\
its group                    lines   value  advantage
prompt                              +0.250
0  x = 1                       1-2  +0.500     +0.500
  0  submit_final_answer(_)      3  +1.000     +1.000
  1* x + 2                     3-4  +0.000     -0.500
2  submit_final_answer(4)        1  +0.000     -0.500
"""


@pytest.fixture
def leaves(make_trajectory: MakeTrajectory) -> list[Scored]:
    return three_leaves(make_trajectory)


def printed(show: Callable[[Screen], None]) -> str:
    file = io.StringIO()
    show(Screen(Console(file=file, width=80)))
    return "".join(f"{row.rstrip()}\n" for row in file.getvalue().splitlines())


def test_an_edge_is_a_row_indented_where_somebody_leaves(leaves: list[Scored]) -> None:
    assert printed(lambda screen: screen.table(tree_table(leaves, shown=1))) == TREE


def test_what_was_not_scored_has_no_value(leaves: list[Scored]) -> None:
    """0 is all that goes on from the state that 1 left, so it is held against 2 alone."""
    lost = replace(leaves[1], reward=replace(leaves[1].reward, outcome_reward=None))
    table = tree_table([leaves[0], lost, leaves[2]], shown=0)
    rows = printed(lambda screen: screen.table(table)).splitlines()
    assert [row.split()[-2:] for row in rows[2:]] == [
        ["+1.000", "+1.000"],
        ["+1.000", "+1.000"],
        ["-", "+0.000"],
        ["+0.000", "-1.000"],
    ]


def test_copied_lines_are_marked(leaves: list[Scored]) -> None:
    rows = printed(lambda screen: screen.sample("s:2", leaves[1])).splitlines()
    assert rows[0].startswith("s:2, branches from sibling 0 after line 2: reward +0.00, nothing")
    marks = [(row[3:66].strip(), row[66:67]) for row in rows[1:-1]]
    assert marks == [
        ("x = 1", "="),
        ("x + 1", "="),
        ("", "."),
        ("x + 2", "+"),
        ("", "."),
        ("submit_final_answer(3)", "+"),
    ]
    assert rows[-1].startswith("+ sampled, trained   . injected   = copied")
    whole = printed(lambda screen: screen.sample("s:1", leaves[0]))
    assert "copied" not in whole
    assert "=   " not in whole


def test_copied_lines_are_dim_in_colours(leaves: list[Scored]) -> None:
    found = marked_trajectory(leaves[1], width=80)
    styles = {found.plain[span.start : span.end].strip(): span.style for span in found.spans}
    assert (styles["x = 1"], styles["x + 2"]) == ("dim green", "bold green")


def test_show_prints_the_tree_below_each_of_its_trajectories(
    call: Callable[..., tuple[int, str, str]], leaves: list[Scored], tmp_path: Path
) -> None:
    append(tmp_path / "s.jsonl", leaves)
    code, out, _ = call("show", str(tmp_path / "s.jsonl"), "-n", "2")
    assert code == 0
    assert out.count("its group") == 2
    assert [row.split()[:3] for row in out.splitlines() if "1* x + 2" in row] == [["1*", "x", "+"]]


def test_show_prints_no_tree_where_nobody_leaves_anybody(
    call: Callable[..., tuple[int, str, str]], leaves: list[Scored], tmp_path: Path
) -> None:
    behind = Branch(sibling_index=None, num_lines=2, seed=1)
    trajectory = replace(leaves[1].trajectory, branch=behind)
    append(tmp_path / "s.jsonl", [leaves[0], replace(leaves[1], trajectory=trajectory), leaves[2]])
    code, out, _ = call("show", str(tmp_path / "s.jsonl"), "-n", "3")
    assert (code, out.count("its group")) == (0, 0)
    assert "begins after line 2 of a solution" in out


def test_siblings_that_begin_behind_a_solution_name_no_sibling(leaves: list[Scored]) -> None:
    behind = Branch(sibling_index=None, num_lines=2, seed=5)
    group = [replace(one, trajectory=replace(one.trajectory, branch=behind)) for one in leaves[:2]]
    rows = printed(lambda screen: screen.sample("s:2", group[1])).splitlines()
    assert rows[0].startswith("s:2, begins after line 2 of a solution: reward +0.00, nothing")
    assert printed(lambda screen: screen.table(tree_table(group, shown=1))).splitlines()[1:] == [
        "0  submit_final_answer(_)      3  +1.000     +1.000",
        "1* x + 2                     3-4  +0.000     -1.000",
    ]
