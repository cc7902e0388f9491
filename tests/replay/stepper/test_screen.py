"""Content of the screen, at 80 columns and 24 rows and at other sizes, and nothing else."""

import pytest

from repl_rl.records import Problem, Trajectory
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution
from stepper_seat import COMMENT, LINES, OUTPUT, SILENT, MakeStepper, after

pytestmark = pytest.mark.slow


def test_the_head_says_who_it_is_and_where_one_stands(stepper: MakeStepper) -> None:
    rows = after(stepper(LINES, LINES), "n")
    assert " ".join(rows[0].split()) == "step-000003:1 line 1/5 sibling 1 of 2 1 of 2"
    assert rows[1].startswith("What is 1 + 1?")
    assert rows[2].startswith("right (exact) +0.900")  # 1 for the answer, -0.1 for a line


def test_80_by_24_holds_the_line_at_hand_both_outputs_and_the_keys(stepper: MakeStepper) -> None:
    rows = after(stepper(), "n", "n")
    assert len(rows) == 24
    assert any(row.startswith(" 2  >>> 1+1") and "ok_output" in row for row in rows)
    titles = next(row for row in rows if "recorded  ok_output" in row)
    assert "live  ok_output  0.0 ms  same" in titles
    below = rows[rows.index(titles) + 1]
    assert below.split() == ["2", "2"]
    assert rows[-1].startswith("n next  b back")
    assert rows[-1].rstrip().endswith("? help  q quit")


@pytest.mark.parametrize("size", [(40, 14), (60, 20), (80, 24), (200, 60)])
def test_every_size_shows_the_line_at_hand_and_how_to_leave(
    stepper: MakeStepper, size: tuple[int, int]
) -> None:
    rows = after(stepper(), "n", "n", size=size)
    assert any(row.startswith(" 2  >>> 1+") for row in rows)
    assert "q quit" in rows[-1]


def test_outputs_stand_one_above_the_other_where_it_is_narrow(stepper: MakeStepper) -> None:
    rows = after(stepper(), "n", "n", size=(60, 24))
    recorded = next(at for at, row in enumerate(rows) if "recorded  ok_output" in row)
    live = next(at for at, row in enumerate(rows) if "live  ok_output" in row)
    assert live > recorded


def test_lines_ahead_show_what_they_did_when_recorded(stepper: MakeStepper) -> None:
    rows = after(stepper())
    assert any(row.startswith(" 3  >>> y") and "name_error" in row for row in rows)


def test_with_a_model_an_answer_shows_how_much_it_surprised(stepper: MakeStepper) -> None:
    """`2` and its newline cost 1 and 2 nats, and the prompt behind them does not count.

    A line that ran otherwise here was not foreseen by anybody.
    """
    parts = [(" 1+1\n", OUTPUT, "2\n>>>"), (" y\n", OUTPUT, "5\n>>>")]

    def score(trajectory: Trajectory) -> tuple[float, ...]:
        nats = {ord("2"): -1.0, ord("\n"): -2.0}
        return tuple(nats.get(token, -9.0) for token in trajectory.completion_ids)

    rows = after(stepper(parts, score=score), "n", "n")
    assert [row.split() for row in rows if "surprise" in row] == [["2", "surprise", "1.50"]]
    assert not any("surprise" in row for row in after(stepper(parts), "n", "n"))


@pytest.mark.parametrize(
    ("keys", "is_shown"), [("", True), ("nb", False), ("]", False), ("s", True)]
)
def test_notes_are_shown_once_and_among_the_details(
    stepper: MakeStepper, keys: str, *, is_shown: bool
) -> None:
    rows = after(stepper(LINES, LINES, notes=["made with python 3.10, here it is 3.11"]), *keys)
    assert any("made with python 3.10" in row for row in rows) is is_shown


HOSTILE = "[red]a[/red] {{x}} <b> \x1b[31m\u202eevil\x07\t|"


INERT = "[red]a[/red] {{x}} <b> evil"


def test_hostile_text_is_shown_as_the_text_it_is(stepper: MakeStepper) -> None:
    parts = [(f" # {HOSTILE}\n", COMMENT, ">>>"), (" 1+1\n", OUTPUT, f"{HOSTILE}\n>>>")]
    answers = {"1+1": Execution(status=ExecStatus.OK, output=f"{HOSTILE}\n")}
    problem = Problem(id="[/]", statement=f"{HOSTILE} [/bold]")
    rows = after(stepper(parts, kernels=FakeKernels(answers), problem=problem), "n", "n")
    assert sum(INERT in row for row in rows) == 4  # statement, source, answer, both outputs
    assert not any(mark in "".join(rows) for mark in "\x1b\u202e\x07")


@pytest.mark.parametrize("key", ["t", "s", "v"])
def test_hostile_text_is_text_on_a_sheet(stepper: MakeStepper, key: str) -> None:
    told = f'[["x", "int", "{INERT}"]]'
    kernels = FakeKernels(lambda source: Execution(status=ExecStatus.OK, value=repr(told)))
    problem = Problem(id="[/]", statement=HOSTILE)
    app = stepper([(" x = '[/]'\n", SILENT, ">>>")], kernels=kernels, problem=problem)
    rows = after(app, "n", key)
    assert any(("'['" if key == "t" else INERT) in row for row in rows)
