"""Worth of the line at hand, by continuations of the states around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from referee_kit import PROMPT, referee_of
from repl_rl.viewer.stepper import Stepper
from repl_sandbox.fake import FakeKernels
from stepper_seat import ANSWERS, SCENE, MakeStepper, Seat, Slow, after, sit

pytestmark = pytest.mark.slow


@pytest.fixture
def judged(stepper: MakeStepper) -> Any:
    """`judged(digits)`: a stepper with a referee that submits these, in kernels of its own."""

    def make(digits: Mapping[int, str], *parts: Any, kernels: Any = None) -> Stepper:
        referee = referee_of(SCENE, kernels or FakeKernels(ANSWERS), digits)
        return stepper(*parts, referee=referee, prompt=PROMPT)

    return make


def said(rows: list[str]) -> str:
    """Text of the status, which may take several rows, in single spaces."""
    return " ".join(" ".join(rows).split())


def test_a_line_was_worth_what_the_state_after_it_has_more(judged: Any) -> None:
    """Right 1 of 4 times before it and 3 of 4 after: 1/4, 3/4, each with the error 1/4."""
    rows = after(judged({1: "2333", 2: "2223"}), "n", "n", "c", "ctrl+u", "4", "enter")
    assert (
        "line 2 was worth +0.500, standard error 0.354: before it +0.250 (4 continuations), "
        "after it +0.750 (4 continuations)"
    ) in said(rows)
    assert "line 2/5" in rows[0]
    assert rows[-1].startswith("n next  b back")


def test_after_the_last_line_it_is_worth_what_was_earned(judged: Any) -> None:
    rows = after(judged({4: "23"}), "G", "c", "ctrl+u", "2", "enter")
    assert (
        "line 5 was worth +0.500, standard error 0.500: before it +0.500 (2 continuations), "
        "after it +1.000 (where it ended)"
    ) in said(rows)


def test_a_line_by_hand_is_judged_in_its_place(judged: Any) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("x = 3")
        await seat.press("escape", "c")
        await seat.write("2")
        assert (
            "line 2 was worth -0.500, standard error 0.500: before it +0.500 (2 continuations), "
            "after it +0.000 (2 continuations)"
        ) in said(seat.rows)
        assert seat.at_line == "2*"

    sit(judged({1: "23", 2: "33"}), act)


def test_a_submission_by_hand_is_worth_what_it_earns(judged: Any) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("submit_final_answer(2)")
        await seat.press("c")
        await seat.write("2")
        assert "before it +0.000 (2 continuations), after it +1.000 (where it ended)" in said(
            seat.rows
        )

    sit(judged({1: "33"}), act)


def test_of_a_state_that_cannot_be_had_again_nothing_is_said(judged: Any) -> None:
    """The second line prints another text in the referee's kernels, so what follows it is lost."""
    others = FakeKernels({name: ran for name, ran in ANSWERS.items() if name != "1+1"})
    app = judged({0: "2222", 1: "22"}, kernels=others)
    rows = after(app, "n", "n", "c", "ctrl+u", "2", "enter")
    assert (
        "the worth of line 2 is unknown: before it +1.000 (2 continuations), after it "
        "unknown (its state cannot be restored)"
    ) in said(rows)


def test_the_live_kernel_stays_where_it_is(judged: Any, stepper: MakeStepper) -> None:
    mine, theirs = FakeKernels(ANSWERS), FakeKernels(ANSWERS)
    referee = referee_of(SCENE, theirs, {1: "2", 2: "2"})
    app = stepper(referee=referee, prompt=PROMPT, kernels=mine)
    after(app, "n", "n", "c", "ctrl+u", "1", "enter")
    [live] = mine.kernels
    assert live.sources == ["1+1"]
    assert [kernel.sources for kernel in theirs.kernels] == [["2"], ["1+1", "2"]]
    assert all(kernel.is_closed for kernel in theirs.kernels)


def test_without_a_policy_it_is_said_how_to_bring_one(stepper: MakeStepper) -> None:
    assert any("start with --model PATH" in row for row in after(stepper(), "n", "c"))


def test_before_the_first_line_there_is_nothing_to_judge(judged: Any) -> None:
    assert any("nothing has run yet; n runs line 1" in row for row in after(judged({}), "c"))


@pytest.mark.parametrize("number", ["0", "1001", "x", ""])
def test_a_number_that_makes_no_sense_is_refused(judged: Any, number: str) -> None:
    rows = after(judged({}), "n", "c", "ctrl+u", *number, "enter")
    assert any("expected 1 to 1000 continuations" in row for row in rows)


def test_a_model_that_was_asked_otherwise_is_refused(stepper: MakeStepper) -> None:
    referee = referee_of(SCENE, FakeKernels(ANSWERS), {})
    rows = after(stepper(referee=referee), "n", "c", "enter")
    assert "has other tokens with 'm'; give the model that sampled its trajectory" in said(rows)


def test_continuations_are_called_off_and_may_be_asked_for_again(judged: Any) -> None:
    """One of two is scored when the line by hand takes for ever."""

    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("slow")
        await seat.press("escape", "c")
        await seat.fill("1")
        await seat.begin("enter")
        await seat.until("1 of 2 continuations ...", "Esc calls it off")
        await seat.press("escape")
        assert "called off" in seat.text
        assert seat.at_line == "2*"

    sit(judged({1: "2"}, kernels=Slow(ANSWERS)), act)
