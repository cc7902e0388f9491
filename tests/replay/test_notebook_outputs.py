"""Outputs of a line of a notebook: streams, errors, and what stopped its kernel."""

from dataclasses import replace

import nbformat
import pytest
from nbclient import NotebookClient

from fixture_types import MakeTrajectory
from notebook_kit import error, line_cells, notebook_of, one_cell, stream
from repl_rl.records import OutcomeKind
from repl_rl.viewer.replay.notebook import TIMEOUT_TAG

ZERO_DIVISION = """\
Traceback (most recent call last):
  File "<stdin>", line 1, in <module>
ZeroDivisionError: division by zero
"""


def test_a_value_is_a_stream(make_trajectory: MakeTrajectory) -> None:
    cell = one_cell(make_trajectory, " 1+1\n", OutcomeKind.OK_OUTPUT, "2\n>>>")
    assert cell.outputs == [stream("2\n")]
    assert "tags" not in cell.metadata


def test_an_exception_is_its_traceback_and_a_bare_error(make_trajectory: MakeTrajectory) -> None:
    cell = one_cell(make_trajectory, " 1/0\n", OutcomeKind.RUNTIME_ERROR, ZERO_DIVISION + ">>>")
    assert cell.outputs == [stream(ZERO_DIVISION), error("ZeroDivisionError")]
    assert cell.metadata.tags == ["raises-exception"]


@pytest.mark.parametrize(
    ("last", "name"),
    [
        ("sympy.polys.polyerrors.PolynomialError: no\nsuch thing\n", "PolynomialError"),
        ("f.<locals>.Odd\n", "Odd"),
        ("A message without a name\n", "Exception"),
    ],
)
def test_an_error_has_the_bare_name_of_its_class(
    make_trajectory: MakeTrajectory, last: str, name: str
) -> None:
    shown = f'Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\n{last}'
    cell = one_cell(make_trajectory, " f()\n", OutcomeKind.RUNTIME_ERROR, shown)
    assert cell.outputs[1].ename == name


@pytest.mark.parametrize(
    ("tail", "name"),
    [
        ("  File ...\nsome.where.OddError: no\n", "OddError"),
        ("rror: division by zero\n", "Exception"),
        ("ionError: division by zero\n", "Exception"),
    ],
)
def test_an_output_that_was_cut_names_what_its_last_whole_row_names(
    make_trajectory: MakeTrajectory, tail: str, name: str
) -> None:
    shown = (
        f"Traceback (most recent call last):\nTypeError: x\n... [9 characters omitted] ...\n{tail}"
    )
    trajectory = make_trajectory([(" f()\n", OutcomeKind.RUNTIME_ERROR, shown)])
    [line] = trajectory.lines
    cut = replace(line, outcome=replace(line.outcome, is_truncated=True))
    [cell] = line_cells(notebook_of(replace(trajectory, lines=(cut,))))
    assert cell.outputs[1].ename == name


def test_a_printed_traceback_is_no_error(make_trajectory: MakeTrajectory) -> None:
    cell = one_cell(make_trajectory, " print(s)\n", OutcomeKind.OK_OUTPUT, ZERO_DIVISION)
    assert cell.outputs == [stream(ZERO_DIVISION)]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (OutcomeKind.TIMEOUT, "interrupted"),
        (OutcomeKind.KILLED, "killed"),
        (OutcomeKind.DIED, "died"),
    ],
)
def test_a_cell_that_stopped_the_kernel_is_passed_over(
    make_trajectory: MakeTrajectory, kind: OutcomeKind, word: str
) -> None:
    cell = one_cell(make_trajectory, " while 1: pass\n", kind)
    assert cell.metadata.tags == ["raises-exception", TIMEOUT_TAG, "skip-execution"]
    assert cell.metadata.repl_rl.kernel == word
    assert NotebookClient(nbformat.v4.new_notebook()).skip_cells_with_tag == "skip-execution"


def test_a_submission_is_shown_below_what_it_printed(make_trajectory: MakeTrajectory) -> None:
    source, kind = " submit_final_answer(f())\n", OutcomeKind.SUBMITTED
    cell = one_cell(make_trajectory, source, kind, "hm\n", submission="[2, 3]")
    assert cell.outputs == [stream("hm\n[2, 3]\n")]
