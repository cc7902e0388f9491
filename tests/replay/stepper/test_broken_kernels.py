"""Kernels that die or are not to be had: it is said, and the stepper stands where it can."""

import asyncio
from collections.abc import Callable

import pytest

from repl_rl.records import Line, Trajectory
from repl_rl.viewer.replay.live import Live
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import SandboxError
from stepper_seat import ANSWERS, SIZE, Broken, MakeStepper, Seat, WritesLines, sit

pytestmark = pytest.mark.slow


def test_a_dead_kernel_is_shown_and_what_was_before_it_is_there(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", "n")
        assert seat.row_of(" 2  >>> 1+1").split()[-3] == "died"
        await seat.press("n")
        assert "the kernel is gone (died)" in seat.text
        await seat.press("b", "i")
        await seat.write("x = 2")
        assert seat.at_line == "2*"

    sit(stepper(kernels=FakeKernels(ANSWERS, dies_at={"1+1"})), act)


def test_what_cannot_begin_ends_in_one_line_and_exit_code_1(
    stepper: MakeStepper, capsys: pytest.CaptureFixture[str]
) -> None:
    app = stepper(kernels=Broken())
    asyncio.run(app.run_async(headless=True, size=SIZE))
    assert app.return_code == 1
    assert "the zygote [/bold] is gone" in capsys.readouterr().err


def test_a_kernel_that_is_not_to_be_had_later_leaves_the_stepper_standing(
    stepper: MakeStepper,
) -> None:
    kernels = FakeKernels(ANSWERS)

    async def act(seat: Seat) -> None:
        await seat.press("n", "n")
        kernels.acquire = Broken().acquire  # type: ignore[method-assign]  # a double
        await seat.press("b", "v")
        assert "there is no kernel" in seat.text

    sit(stepper(kernels=kernels), act)


class BreaksIts(WritesLines):
    """A policy whose kernel breaks after its lines."""

    async def continue_from(self, live: Live, *, on_line: Callable[[Line], None]) -> Trajectory:
        await super().continue_from(live, on_line=on_line)
        raise SandboxError("the fork server is gone")


@pytest.mark.parametrize("key", ["v", "m", "i"])
def test_without_a_kernel_that_is_said_until_a_fresh_one_has_run_the_same_lines(
    stepper: MakeStepper, key: str
) -> None:
    kernels = FakeKernels(ANSWERS)

    async def act(seat: Seat) -> None:
        await seat.press("n", "m")
        assert "the fork server is gone" in seat.text
        await seat.press(key)
        if key == "i":
            await seat.write("x = 2")
            await seat.press("escape")
        assert "there is no kernel; go back, or to this line again" in seat.text
        assert seat.at_line == "2*"
        await seat.press("colon", "2", "enter", "i")
        await seat.write("x = 2")
        assert seat.at_line == "3*"

    sit(stepper(kernels=kernels, policy=BreaksIts("1+1")), act)
    assert [kernel.sources for kernel in kernels.kernels] == [["1+1"], ["1+1", "x = 2"]]


def test_what_is_called_off_where_no_kernel_is_to_be_had_keeps_its_lines(
    stepper: MakeStepper,
) -> None:
    kernels = FakeKernels(ANSWERS)
    acquire = kernels.acquire

    async def act(seat: Seat) -> None:
        await seat.press("n")
        await seat.begin("m")
        await seat.until("line 3*", "Esc calls it off")
        kernels.acquire = Broken().acquire  # type: ignore[method-assign]  # a double
        await seat.press("escape")
        assert "no kernel for seed" in seat.text
        assert seat.at_line == "3*"
        kernels.acquire = acquire  # type: ignore[method-assign]  # as it was
        await seat.press("colon", "3", "enter")
        assert seat.at_line == "3*"

    sit(stepper(kernels=kernels, policy=WritesLines("1+1", "y", waits=True)), act)
    assert kernels.kernels[-1].sources == ["1+1", "y"]


def test_the_start_is_gone_to_again_where_there_is_no_kernel_before_the_first_line(
    stepper: MakeStepper,
) -> None:
    kernels = FakeKernels(ANSWERS)
    acquire = kernels.acquire

    async def act(seat: Seat) -> None:
        await seat.begin("m")
        await seat.until("Esc calls it off")
        kernels.acquire = Broken().acquire  # type: ignore[method-assign]  # a double
        await seat.press("escape", "n")
        assert "there is no kernel" in seat.text
        kernels.acquire = acquire  # type: ignore[method-assign]  # as it was
        await seat.press("g", "n")
        assert seat.at_line == "1/5"

    sit(stepper(kernels=kernels, policy=WritesLines(waits=True)), act)
