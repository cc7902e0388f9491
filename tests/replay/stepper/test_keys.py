"""Each key leads where help says, and keys are heard in the order in which they come."""

import pytest
from textual import events
from textual.actions import parse

from repl_rl.records import OutcomeKind
from repl_rl.viewer.stepper import Stepper
from repl_rl.viewer.stepper.app import RUNS
from repl_rl.viewer.stepper.screen import KEYS, Field
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution
from stepper_seat import ANSWERS, LINES, OUTPUT, MakeStepper, Seat, after, line_of, sit

pytestmark = pytest.mark.slow

ACTIONS = sorted({action for row in KEYS for action in row.actions.values()})


@pytest.mark.parametrize("action", ACTIONS)
def test_what_a_key_asks_for_is_there(action: str) -> None:
    _, name, _ = parse(action)
    assert callable(getattr(Stepper, f"action_{name}", None))


def test_the_keys_that_run_lines_ask_for_all_that_can_be_run_and_no_more() -> None:
    asked = [parameters for _, name, parameters in map(parse, ACTIONS) if name == "run"]
    assert sorted(asked) == sorted((what,) for what in RUNS)


@pytest.mark.parametrize("key", ["n", "space", "down"])
def test_a_line_is_run_by_each_of_its_keys(stepper: MakeStepper, key: str) -> None:
    assert line_of(after(stepper(), key)) == "1/5"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("nnb", "1/5"),
        ("b", "0/5"),
        ("G", "5/5"),
        ("Gg", "0/5"),
        ("e", "3/5"),
        ("r", "3/5"),
        ("ee", "5/5"),
        ("d", "5/5"),
        ("nnnnnnnn", "5/5"),
    ],
)
def test_keys_lead_to_their_lines(stepper: MakeStepper, keys: str, line: str) -> None:
    assert line_of(after(stepper(), *keys)) == line


@pytest.mark.parametrize(
    ("before", "number", "line"), [("", "4", "4/5"), ("G", "2", "2/5"), ("", "9", "5/5")]
)
def test_a_number_and_enter_go_to_that_line(
    stepper: MakeStepper, before: str, number: str, line: str
) -> None:
    assert line_of(after(stepper(), *before, number, "enter")) == line
    assert line_of(after(stepper(), *before, "colon", number, "enter")) == line


def test_the_digits_of_a_number_count_wherever_they_stand(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("colon")
        await seat.write(f"{' ' * 9}2")
        assert seat.at_line == "2/5"

    sit(stepper(), act)


def test_going_back_is_a_fresh_kernel_with_the_same_seed_and_lines(stepper: MakeStepper) -> None:
    kernels = FakeKernels(ANSWERS)
    after(stepper(kernels=kernels), "n", "n", "n", "b")
    first, second = kernels.kernels
    assert first.sources == ["1+1", "y"]
    assert second.sources == ["1+1"]
    assert first.is_closed
    assert second.is_closed
    assert first.seed == second.seed


def test_the_next_difference_is_where_kernel_and_record_part(stepper: MakeStepper) -> None:
    answers = {**ANSWERS, "y": Execution(status=ExecStatus.OK, output="7\n")}
    rows = after(stepper(kernels=FakeKernels(answers)), "d")
    assert "line 3/5" in rows[0]
    assert any("diverged: name_error -> ok_output; NameError: y -> 7" in row for row in rows)
    assert any(" ! ok_output " in row for row in rows)


@pytest.mark.parametrize("key", ["e", "r", "d"])
def test_with_nothing_ahead_it_is_said_why(stepper: MakeStepper, key: str) -> None:
    assert any("an answer was submitted" in row for row in after(stepper(), "G", key))


def test_outcomes_of_a_line_that_was_cut_are_said(stepper: MakeStepper) -> None:
    parts = [(" 1+1\n", OUTPUT, "2\n>>>"), (" submit_fi", OutcomeKind.CUT, None)]
    rows = after(stepper(parts), "n", "n")
    assert any("was cut while it was sampled" in row for row in rows)


RIGHT, LEFT = "right_square_bracket", "left_square_bracket"


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (("n", RIGHT), "step-000003:2   line 0/2"),
        ((RIGHT, RIGHT), "step-000003:2   line 0/2"),
        ((RIGHT, LEFT), "step-000003:1   line 0/5"),
    ],
)
def test_brackets_turn_to_the_trajectory_beside(
    stepper: MakeStepper, keys: tuple[str, ...], shown: str
) -> None:
    assert after(stepper(LINES, LINES[:2]), *keys)[0].startswith(shown)


def test_keys_in_a_row_are_all_heard(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin(*"nnnb")
        await seat.settle()
        assert seat.at_line == "2/5"

    sit(stepper(), act)


def test_rows_that_come_in_one_burst_run_one_after_another(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("i")
        field = seat.app.query_one(Field)
        for character in "\x15a = 1\rb = 2\r":
            key = {"\r": "enter", "\x15": "ctrl+u"}.get(character, character)
            field.post_message(events.Key(key, character))
        await seat.settle()
        assert "1* >>> a = 1" in seat.text
        assert "2* >>> b = 2" in seat.text
        assert seat.at_line == "2*"

    sit(stepper(), act)
