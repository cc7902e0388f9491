"""Kernels that die or are not to be had: it is said, and the stepper stands where it can."""

import asyncio

from sandbox.fake import FakeKernels
from stepper_seat import ANSWERS, SIZE, Broken, sit


def test_a_dead_kernel_is_shown_and_what_was_before_it_is_there(stepper):
    async def act(seat):
        await seat.press("n", "n")
        assert seat.row_of(" 2  >>> 1+1").split()[-3] == "died"
        await seat.press("n")
        assert "the kernel is gone (died)" in seat.text
        await seat.press("b", "i")
        await seat.write("x = 2")
        assert seat.at_line == "2*"

    sit(stepper(kernels=FakeKernels(ANSWERS, dies_at={"1+1"})), act)


def test_what_cannot_begin_ends_in_one_line_and_exit_code_1(stepper, capsys):
    app = stepper(kernels=Broken())
    asyncio.run(app.run_async(headless=True, size=SIZE))
    assert app.return_code == 1
    assert "the zygote [/bold] is gone" in capsys.readouterr().err


def test_a_kernel_that_is_not_to_be_had_later_leaves_the_stepper_standing(stepper):
    kernels = FakeKernels(ANSWERS)

    async def act(seat):
        await seat.press("n", "n")
        kernels.acquire = Broken().acquire
        await seat.press("b", "v")
        assert "there is no kernel" in seat.text

    sit(stepper(kernels=kernels), act)
