"""A notebook is inert: what a policy or a task wrote is text in it, and nothing else."""

import pytest
from markdown_it import MarkdownIt

from fixture_types import MakeTrajectory
from notebook_kit import CLEAN, HOSTILE, annotated, notebook_of, one_cell, sources, stream
from repl_rl.records import OutcomeKind
from repl_rl.viewer.replay.notebook import to_notebook


@pytest.mark.parametrize(
    "statement",
    [HOSTILE, "```\n<b>out</b>\n````\n# big\n`````", "a\n\n<div>\n\n~~~\n---", "    ```", ""],
)
def test_no_statement_leaves_its_fence(make_trajectory: MakeTrajectory, statement: str) -> None:
    notebook = notebook_of(make_trajectory([]), statement=statement)
    tokens = MarkdownIt().parse(notebook.cells[0].source)
    fences = [token for token in tokens if token.type == "fence"]
    assert fences[1].content == statement.removeprefix("\x1b[31m\u202e") + "\n"
    outside = {token.type for token in tokens} - {"fence", "inline"}
    assert outside == {"heading_open", "heading_close", "paragraph_open", "paragraph_close"}
    assert len(fences) == 2


def test_facts_from_elsewhere_stay_in_a_fence_too(make_trajectory: MakeTrajectory) -> None:
    notebook = notebook_of(make_trajectory([], submission="```\n<script>"))
    tokens = MarkdownIt().parse(notebook.cells[0].source)
    assert "html_block" not in {token.type for token in tokens}


def test_a_source_is_shown_without_unseen_marks_and_kept_as_it_was(
    make_trajectory: MakeTrajectory,
) -> None:
    cell = one_cell(make_trajectory, f" s = '{HOSTILE}'\n", OutcomeKind.OK_SILENT)
    assert cell.source == f"s = '{CLEAN}'"
    assert cell.metadata.repl_rl.source == f"s = '{HOSTILE}'"


def test_a_foreign_setup_is_shown_without_unseen_marks_too(make_trajectory: MakeTrajectory) -> None:
    setup = (f"s = '{HOSTILE}'\rt = 1  # \x1b]0;\ny = 2\n",)
    notebook = to_notebook(annotated(make_trajectory([])), setup=setup)
    assert notebook.cells[1].source.split("\n")[1:4] == [f"s = '{CLEAN}'", "t = 1  # ", "y = 2"]


def test_an_open_escape_sequence_hides_no_line_below_it(make_trajectory: MakeTrajectory) -> None:
    parts = [
        (" # \x1b]0;\n", OutcomeKind.COMMENT, ">>>"),
        (" x = 1\n", OutcomeKind.OK_SILENT, ">>>"),
    ]
    assert sources(notebook_of(make_trajectory(parts))) == ["# \nx = 1"]


def test_a_carriage_return_makes_no_code_of_a_comment(make_trajectory: MakeTrajectory) -> None:
    cell = one_cell(make_trajectory, " # a\rprint(1)\n", OutcomeKind.COMMENT)
    assert cell.source == "# aprint(1)"


def test_a_carriage_return_in_a_source_ends_a_line_as_it_did(
    make_trajectory: MakeTrajectory,
) -> None:
    cell = one_cell(make_trajectory, " a = 1\rb = 2\r\n", OutcomeKind.OK_SILENT)
    assert cell.source == "a = 1\nb = 2\n"


def test_outputs_are_plain_text_alone(make_trajectory: MakeTrajectory) -> None:
    cell = one_cell(make_trajectory, " print(s)\n", OutcomeKind.OK_OUTPUT, HOSTILE + "\n")
    assert cell.outputs == [stream(CLEAN + "\n")]
