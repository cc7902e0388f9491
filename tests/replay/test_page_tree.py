"""The page of a group that branches: who leaves whom, and what states and edges are worth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixture_types import MakeTrajectory
from page_browser import Viewer, wait_for
from repl_rl.config.sections import GRPOConfig
from repl_rl.records import Reward, Scored, StopReason
from repl_rl.runs.trajectory_file import append, places
from repl_rl.viewer.page import details_of, write_page
from repl_rl.viewer.replay.annotated import annotate
from tree_kit import SHARED, three_leaves

pytestmark = pytest.mark.slow


def written(folder: Path, scored: Sequence[Scored]) -> Path:
    """The page of a file that holds these."""
    append(folder / "s.jsonl", scored)
    items = annotate(places(folder / "s.jsonl"), GRPOConfig(credit="tree"))
    write_page(folder / "tree.html", items, title="tree")
    return folder / "tree.html"


def test_each_trajectory_has_the_edges_of_its_own_lines(
    tmp_path: Path, make_trajectory: MakeTrajectory
) -> None:
    append(tmp_path / "s.jsonl", three_leaves(make_trajectory))
    items = annotate(places(tmp_path / "s.jsonl"), GRPOConfig())
    found = [json.loads(json.dumps(details_of(item))) for item in items]
    assert [one["branch"] for one in found] == [None, {"sibling": 0, "lines": 2, "id": "s:1"}, None]
    assert [
        [
            tuple(edge[key] for key in ("start", "stop", "before", "after", "advantage"))
            for edge in one
        ]
        for one in (record["edges"] for record in found)
    ] == [
        [(0, 2, 0.25, 0.5, 0.5), (2, 3, 0.5, 1.0, 1.0)],
        [(2, 4, 0.5, 0.0, -0.5)],
        [(0, 1, 0.25, 0.0, -0.5)],
    ]


def test_where_nobody_leaves_anybody_there_are_no_edges(
    tmp_path: Path, make_trajectory: MakeTrajectory
) -> None:
    first, _, last = three_leaves(make_trajectory)
    append(tmp_path / "s.jsonl", [first, last])
    items = annotate(places(tmp_path / "s.jsonl"), GRPOConfig())
    assert [details_of(item)["edges"] for item in items] == [[], []]


@pytest.fixture
def tree(viewer: Viewer, tmp_path: Path, make_trajectory: MakeTrajectory) -> Any:
    """`tree(id)`: the page at a trajectory of three leaves."""

    def show(id: str) -> Any:
        page = viewer.open(f"#{id}", path=written(tmp_path, three_leaves(make_trajectory)))
        wait_for(page, id)
        assert viewer.errors == []
        return page

    return show


def outline(page: Any) -> list[tuple[int, str]]:
    """(how deep, text in single spaces) of each head of an edge and each state, in their order."""
    rows = page.eval_on_selector_all(
        ".tree .edge-head, .tree .state",
        "all => all.map(e => { let depth = 0;"
        " for (let up = e; (up = up.parentElement.closest('.tree ul')); ) depth++;"
        " return [depth, e.innerText] })",
    )
    return [(depth, " ".join(text.split())) for depth, text in rows]


def test_the_tree_is_indented_where_somebody_leaves(tree: Any) -> None:
    assert outline(tree("s:2")) == [
        (0, "value of the prompt +0.250"),
        (1, "s:1 sibling 0, lines 1 to 2 advantage +0.500"),
        (1, "value after line 2 +0.500"),
        (2, "s:1 continues, line 3 advantage +1.000"),
        (2, "ends with +1.000 \u2013 nothing submitted"),
        (2, "s:2 sibling 1, lines 3 to 4 advantage -0.500 this one"),
        (2, "ends with +0.000 \u2013 nothing submitted"),
        (1, "s:3 sibling 2, line 1 advantage -0.500"),
        (1, "ends with +0.000 \u2013 nothing submitted"),
    ]


def test_lines_that_two_share_stand_in_the_tree_once(tree: Any) -> None:
    assert tree("s:2").locator(".tree code").all_inner_texts() == [
        *("x = 1", "x + 1", "submit_final_answer(_)"),
        *("x + 2", "submit_final_answer(3)", "submit_final_answer(4)"),
    ]


def test_the_way_to_its_end_is_marked(tree: Any) -> None:
    heads = tree("s:2").locator(".tree .on-path > .edge .names").all_inner_texts()
    assert heads == ["s:1", "s:2"]


def test_copied_lines_are_marked_in_transcript_and_ledger(tree: Any) -> None:
    page = tree("s:2")
    marks = [mark.strip() for mark in page.locator(".gutter").all_inner_texts()]
    assert marks == ["1 =", "2 =", ".", "3 +", ".", "4 +"]
    assert page.locator("#ledger tr.copied").count() == 2
    assert "branches from sibling 0 after line 2" in page.inner_text("#heading")
    assert "a copy, trained in the other" in page.inner_text("#legend")
    page.locator("#heading .facts a").click()
    wait_for(page, "s:1")
    assert "branches from" not in page.inner_text("#heading")
    assert "a copy" not in page.inner_text("#legend")


def test_a_page_that_lacks_whom_one_leaves_says_so(
    viewer: Viewer, tmp_path: Path, make_trajectory: MakeTrajectory
) -> None:
    _, second, third = three_leaves(make_trajectory)
    page = viewer.open("#s:1", path=written(tmp_path, [second, third]))
    assert outline(page) == [
        (0, "value of the prompt +0.000"),
        (
            1,
            "s:1 sibling 1, lines 3 to 4 advantage +0.000 this one "
            "branches from sibling 0 after line 2, not in this page",
        ),
        (1, "ends with +0.000 \u2013 nothing submitted"),
        (1, "s:2 sibling 2, line 1 advantage +0.000"),
        (1, "ends with +0.000 \u2013 nothing submitted"),
    ]


def test_one_that_ended_as_it_was_left_is_not_on_the_way_to_those_that_left_it(
    viewer: Viewer, tmp_path: Path, make_trajectory: MakeTrajectory
) -> None:
    """0 ran out of time behind the line where 1 left it, and is worth 0; 1 is worth 1."""
    first, second, third = three_leaves(make_trajectory)
    ended = replace(make_trajectory(SHARED, sibling_index=0), stop_reason=StopReason.TIME_LIMIT)
    group = [
        replace(
            first, trajectory=ended, reward=Reward(line_rewards=(0.0, 0.0), outcome_reward=0.0)
        ),
        replace(second, reward=replace(second.reward, outcome_reward=1.0)),
        third,
    ]
    page = viewer.open("#s:2", path=written(tmp_path, group))
    wait_for(page, "s:2")
    assert outline(page)[1:6] == [
        (1, "s:1 sibling 0, lines 1 to 2 advantage +0.500"),
        (1, "value after line 2 +0.500"),
        (2, "s:1 continues, no more lines advantage -0.500"),
        (2, "ends with +0.000 \u2013 nothing submitted"),
        (2, "s:2 sibling 1, lines 3 to 4 advantage +1.000 this one"),
    ]
    heads = page.locator(".tree .on-path > .edge .names").all_inner_texts()
    assert heads == ["s:1", "s:2"]


@pytest.mark.parametrize("width", [400, 1440])
def test_the_tree_makes_no_page_scroll_sideways(tree: Any, width: int) -> None:
    page = tree("s:2")
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
