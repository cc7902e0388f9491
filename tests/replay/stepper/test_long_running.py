"""A line without end is shown, keys wait for it, and it can be called off or left."""

import asyncio
from collections.abc import Callable

import pytest

from repl_rl.records import Line, Trajectory
from repl_rl.viewer.replay.live import Live
from repl_sandbox.fake import FakeKernels
from stepper_seat import ANSWERS, OUTPUT, SILENT, MakeStepper, Seat, Slow, WritesLines, sit

pytestmark = pytest.mark.slow


def test_a_policy_that_is_called_off_leaves_the_lines_that_ran(stepper: MakeStepper) -> None:
    kernels = FakeKernels(ANSWERS)

    async def act(seat: Seat) -> None:
        await seat.press("n")
        await seat.begin("m")
        await seat.until("line 2*", "Esc calls it off")
        assert "Esc calls it off" in seat.rows[-1]
        await seat.press("escape")
        assert seat.at_line == "2*"
        assert "called off" in seat.text
        assert kernels.kernels[-1].sources == ["1+1"]  # a fresh one with the same lines

    sit(stepper(kernels=kernels, policy=WritesLines("1+1", waits=True)), act)


class TidiesUp(WritesLines):
    """A policy that, called off, comes to its end once it is let go."""

    def __init__(self, *sources: str) -> None:
        super().__init__(*sources, waits=True)
        self.let_go = asyncio.Event()
        self.is_tidy = False

    async def continue_from(self, live: Live, *, on_line: Callable[[Line], None]) -> Trajectory:
        try:
            return await super().continue_from(live, on_line=on_line)
        finally:
            await self.let_go.wait()
            self.is_tidy = True


def test_a_second_escape_does_not_call_off_the_tidying_up_after_the_first(
    stepper: MakeStepper,
) -> None:
    kernels, policy = FakeKernels(ANSWERS), TidiesUp("1+1", "y")

    async def act(seat: Seat) -> None:
        await seat.press("n")
        await seat.begin("m")
        await seat.until("line 3*", "Esc calls it off")
        await seat.begin("escape", "escape")
        assert seat.app.is_busy
        policy.let_go.set()
        await seat.settle()
        assert seat.at_line == "3*"
        assert "called off" in seat.text

    sit(stepper(kernels=kernels, policy=policy), act)
    assert policy.is_tidy
    assert [kernel.sources for kernel in kernels.kernels] == [["1+1", "y"]] * 2


def test_a_key_pressed_while_a_line_runs_waits_for_its_end(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin("n")
        await seat.until("running ...")
        await seat.begin("b")
        assert seat.at_line == "0/1"
        await seat.press("escape")
        assert "called off" in seat.text
        assert seat.at_line == "0/1"

    sit(stepper([(" slow\n", SILENT, ">>>")], kernels=Slow()), act)


def test_going_to_a_line_ahead_can_be_called_off(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("colon", "3")
        await seat.begin("enter")
        await seat.until("line 1/3", "Esc calls it off")
        assert "Esc calls it off" in seat.rows[-1]
        await seat.press("escape")
        assert seat.at_line == "1/3"

    parts = [(" 1+1\n", OUTPUT, "2\n>>>"), (" slow\n", SILENT, ">>>"), (" x = 2\n", SILENT, ">>>")]
    sit(stepper(parts, kernels=Slow(ANSWERS)), act)


def test_a_line_by_hand_that_takes_long_shows_that_it_runs(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("i")
        await seat.fill("slow")
        await seat.begin("enter")
        await seat.until("running your line ...")
        await seat.press("escape")
        assert seat.rows[-2].startswith(">>>")

    sit(stepper(kernels=Slow()), act)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_leaving_closes_the_kernel(stepper: MakeStepper, key: str) -> None:
    kernels = FakeKernels(ANSWERS)
    app = stepper(kernels=kernels)

    async def act(seat: Seat) -> None:
        await seat.leave(key)

    sit(app, act)
    assert app.return_code == 0
    assert kernels.kernels[0].is_closed


@pytest.mark.parametrize(
    ("key", "shown"), [("i", "Enter takes it"), ("n", "running ..."), ("s", "about step-000003:1")]
)
def test_control_c_leaves_from_a_question_and_from_a_running_line(
    stepper: MakeStepper, key: str, shown: str
) -> None:
    app = stepper([(" slow\n", SILENT, ">>>")], kernels=Slow())

    async def act(seat: Seat) -> None:
        await seat.begin(key)
        await seat.until(shown)
        await seat.leave("ctrl+c")

    sit(app, act)
    assert app.return_code == 0
