"""What a stepper shows of a claim, beside its record and in full."""

from repl_rl.types import Lemma, OutcomeKind, Problem
from repl_sandbox.fake import FakeKernels
from stepper_seat import ANSWERS, SUBMITTED, MakeStepper, Seat, sit

PROBLEM = Problem(id="p", statement="Find b", lemmas=(Lemma(name="a"),))


def test_a_claim_by_hand_shows_the_value_that_it_handed_over(stepper: MakeStepper) -> None:
    parts = [
        (" x = 2\n", OutcomeKind.OK_SILENT, ">>>"),
        (" submit_final_answer(2)\n", SUBMITTED, None),
    ]

    async def act(seat: Seat) -> None:
        await seat.press("i")
        await seat.write('have("a", 3)')
        assert "claimed" in seat.row_of(' 1* >>> have("a", 3)')
        assert "claimed 3" in seat.text
        await seat.write('have("a", 2)')
        assert "ok_silent" in seat.row_of(' 2* >>> have("a", 2)')  # the fake has no stub

    sit(stepper(parts, problem=PROBLEM, submission="2", kernels=FakeKernels(ANSWERS)), act)
