"""Lines by hand in place of the recorded ones: how they are asked for and what they earn."""

import pytest

from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution
from stepper_seat import MakeStepper, Seat, after, sit

pytestmark = pytest.mark.slow


def test_an_edited_line_begins_as_the_recorded_one(stepper: MakeStepper) -> None:
    rows = after(stepper(), "n", "i")
    assert rows[-2].rstrip() == ">>> 1+1"


def test_typing_replaces_the_recorded_line_and_an_arrow_keeps_it(stepper: MakeStepper) -> None:
    assert after(stepper(), "n", "i", "7")[-2].rstrip() == ">>> 7"
    assert after(stepper(), "n", "i", "end", "7")[-2].rstrip() == ">>> 1+17"


def test_a_branch_earns_line_by_line_beside_the_recorded_rewards(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("y")
        # Recorded, so in brackets: `1+1`, 0. By hand: a name that is not there, -0.1.
        assert seat.row_of(" 2* >>> y").split()[-3:] == ["name_error", "(0)", "-0.100"]
        assert "here -0.100 so far" in seat.rows[2]

    sit(stepper(), act)


def test_only_lines_of_the_record_have_an_advantage_on_a_branch(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        assert seat.row_of(">>> # think").split()[-3:] == ["comment", "0", "0"]
        await seat.press("n", "i")
        await seat.write("x = 2")
        assert seat.row_of(" 1  >>> # think").split()[-4:] == ["comment", "0", "0", "0"]
        assert seat.row_of(" 2* >>> x = 2").split()[-3:] == ["ok_silent", "(0)", "0"]

    sit(stepper(), act)


def test_a_submission_by_hand_is_judged_and_scored(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("y")
        await seat.write("submit_final_answer(3)")
        assert "here right +0.900" in seat.rows[2]  # 1 - 0.1
        assert "? help" in seat.rows[-1]  # nothing can follow, so nothing is asked

    sit(stepper(), act)


def test_a_block_by_hand_is_asked_for_row_by_row(stepper: MakeStepper) -> None:
    def answer(source: str) -> Execution:
        is_open = source.startswith("for") and not source.endswith("\n")
        return Execution(status=ExecStatus.INCOMPLETE if is_open else ExecStatus.OK)

    async def act(seat: Seat) -> None:
        await seat.press("i")
        await seat.write("for i in 'ab':")
        assert seat.rows[-2].startswith("...")
        await seat.write("    i")
        await seat.write("")
        assert seat.rows[-2].startswith(">>>")
        assert seat.at_line == "3*"

    sit(stepper(kernels=FakeKernels(answer)), act)


def test_a_bare_enter_runs_nothing_where_no_block_is_open(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("i")
        await seat.write("")
        assert seat.at_line == "0/5"

    sit(stepper(), act)


def test_going_back_before_an_edit_finds_the_recorded_lines_again(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("y")
        await seat.press("escape", "n")
        assert "a branch: i continues by hand" in seat.text
        await seat.press("b", "n")
        assert seat.at_line == "2/5"
        assert "here" not in seat.rows[2]

    sit(stepper(), act)
