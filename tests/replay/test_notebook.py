"""A notebook holds the trajectory whole: every line in a cell, every token in a run."""

from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixture_types import MakeTrajectory, Part, Play
from notebook_kit import HOSTILE, SETUP, annotated, line_cells, notebook_of, one_cell, sources
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, StopReason, Verdict, VerdictKind
from repl_rl.transcript.format import spans
from repl_rl.viewer.replay.notebook import to_notebook, write_notebook
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution


@given(
    st.lists(
        st.tuples(
            st.text(alphabet="x #\n\r\x1b]\u202e", max_size=6),
            st.sampled_from(OutcomeKind),
            st.sampled_from([None, ">>>", "2\n>>>"]),
        ),
        max_size=12,
    )
)
def test_whatever_was_sampled_every_line_is_in_one_cell_and_every_token_in_one_run(
    make_trajectory: MakeTrajectory, parts: list[Part]
) -> None:
    trajectory = make_trajectory([(f" {source}\n", *rest) for source, *rest in parts])
    notebook = notebook_of(trajectory)
    nbformat.validate(notebook)
    lines = [line for cell in line_cells(notebook) for line in cell.metadata.repl_rl.lines]
    assert [line["index"] for line in lines] == list(range(len(parts)))
    assert [tuple(run) for line in lines for run in line["mask"]] == [
        (span.start, span.stop, span.is_sampled) for span in spans(trajectory)
    ]


def test_a_cell_sends_what_the_kernel_got(play: Play) -> None:
    kernel = FakeKernel(
        lambda source: Execution(
            status=ExecStatus.INCOMPLETE
            if source.startswith("def") and not source.endswith("\n")
            else ExecStatus.OK
        )
    )
    lines = [" x = 1\n", " def f():\n", "     # inside\n", "     return 2\n", "\n", "  # end\n"]
    assert sources(notebook_of(play(*lines, kernel=kernel, max_lines=6))) == [
        *kernel.sources[:1],
        kernel.sources[-1],
        " # end",
    ]
    assert kernel.sources[-1] == "def f():\n    # inside\n    return 2\n"


def test_a_statement_stands_below_the_comments_that_led_to_it(play: Play) -> None:
    notebook = notebook_of(play(" # a plan\n", "\n", " x = 1\n", " x\n", max_lines=4))
    assert sources(notebook) == ["# a plan\n\nx = 1", "x"]


def test_comments_at_the_end_have_a_cell_of_their_own(play: Play) -> None:
    notebook = notebook_of(play(" x = 1\n", " # a\n", " # b\n", max_lines=3))
    assert sources(notebook) == ["x = 1", "# a\n# b"]
    assert line_cells(notebook)[1].cell_type == "code"


def test_what_never_ran_is_raw_and_plain(make_trajectory: MakeTrajectory) -> None:
    open_and_cut = [
        (" # so\n", OutcomeKind.COMMENT, ">>>"),
        (" for i in x:\n", OutcomeKind.INCOMPLETE, "..."),
        ("     pri", OutcomeKind.CUT, None),
    ]
    [cell] = line_cells(notebook_of(make_trajectory(open_and_cut)))
    assert (cell.cell_type, cell.source) == ("raw", "# so\nfor i in x:\n    pri")
    assert cell.metadata.raw_mimetype == "text/plain"


def test_a_statement_that_was_left_open_is_raw(make_trajectory: MakeTrajectory) -> None:
    assert one_cell(make_trajectory, " f(\n", OutcomeKind.INCOMPLETE).cell_type == "raw"


def test_a_cut_comment_is_raw(make_trajectory: MakeTrajectory) -> None:
    assert one_cell(make_trajectory, " # and so o", OutcomeKind.CUT).cell_type == "raw"


def test_the_numbers_of_a_line(make_trajectory: MakeTrajectory) -> None:
    parts = [(" a\n", OutcomeKind.OK_SILENT, ">>>"), (" bcd\n", OutcomeKind.OK_OUTPUT, "2\n>>>")]
    second = line_cells(notebook_of(make_trajectory(parts)))[1].metadata.repl_rl.lines[0]
    # 3 sampled, 3 injected, 5 sampled, 5 injected; log-probabilities are -1.
    assert second == {
        "index": 1,
        "outcome": "ok_output",
        "is_truncated": False,
        "reward": -0.1,
        "advantage": 0.5,
        "share": 0.625,
        "tokens": [6, 11],
        "logprob": -5.0,
        "mask": [[6, 11, True], [11, 16, False]],
    }


def test_the_notebook_says_what_it_was_made_of(make_trajectory: MakeTrajectory) -> None:
    trajectory = make_trajectory(
        [(" a\n", OutcomeKind.OK_SILENT, ">>>"), (" b\n", OutcomeKind.CUT, None)],
        group_index=4,
        sibling_index=2,
        stop_reason=StopReason.MAX_LINES,
    )
    notebook = notebook_of(trajectory, verdict=Verdict(kind=VerdictKind.WRONG), outcome=0.25)
    assert notebook.metadata.repl_rl == {
        "format": 1,
        "trajectory": "step-000003:7",
        "problem": "p",
        "statement": "What is 1 + 1?",
        "seed": 0,
        "policy_version": 0,
        "group_index": 4,
        "sibling_index": 2,
        "stop_reason": "max_lines",
        "verdict": "wrong",
        "outcome_reward": 0.25,
        "total_reward": 0.15,
        "submission": None,
    }


def test_the_same_trajectory_makes_the_same_notebook(play: Play) -> None:
    trajectory = play(" # a\n", " x\n", " submit_final_answer(x)\n", max_lines=3)
    assert notebook_of(trajectory) == notebook_of(trajectory)


# Files


def test_a_file_is_ascii_and_reads_back_as_the_notebook(
    make_trajectory: MakeTrajectory, tmp_path: Path
) -> None:
    parts = [(f" s = '{HOSTILE}\xe9'\n", OutcomeKind.OK_OUTPUT, "\u2211\n>>>")]
    item = annotated(make_trajectory(parts), statement="\u202e\xe9")
    write_notebook(tmp_path / "a.ipynb", item, setup=SETUP)
    assert (tmp_path / "a.ipynb").read_bytes().isascii()
    assert nbformat.read(tmp_path / "a.ipynb", as_version=4) == to_notebook(item, setup=SETUP)


def test_a_file_that_cannot_be_written_is_told(
    make_trajectory: MakeTrajectory, tmp_path: Path
) -> None:
    path = tmp_path / "no" / "a.ipynb"
    with pytest.raises(ConfigError, match=r"no/a\.ipynb.*No such file or directory; name a file"):
        write_notebook(path, annotated(make_trajectory([])), setup=SETUP)


def test_a_person_reads_right_or_wrong_where_programs_read_the_kind(
    make_trajectory: MakeTrajectory,
) -> None:
    verdict = Verdict(kind=VerdictKind.REFUTED, evidence="it holds for all x")
    notebook = notebook_of(make_trajectory([]), verdict=verdict, outcome=-0.6)
    assert "verdict         wrong (it holds for all x)\n" in notebook.cells[0].source
    assert notebook.metadata.repl_rl["verdict"] == "refuted"
