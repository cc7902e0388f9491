"""The keys over real kernels."""

import asyncio

import pytest

from repl_rl.records import OutcomeKind
from repl_rl.transcript.format import SUBMIT_STUB
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Limits
from stepper_seat import NAME_ERROR, OUTPUT, SILENT, MakeStepper, Seat, seated

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

REAL = (
    (" x = 6\n", SILENT, ">>>"),
    (" x * 7\n", OUTPUT, "42\n>>>"),
    (" y\n", NAME_ERROR, None),
)


def test_real_kernels_run_go_back_and_tell_their_variables(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await seat.press("n", "n")
        assert "live  ok_output" in seat.text
        assert "same" in seat.text
        await seat.press("v")
        assert seat.row_of(" x ").split()[1:4] == ["x", "int", "6"]
        await seat.press("escape", "b", "i")
        await seat.write("x + 1")
        assert seat.row_of(" 2* >>> x + 1")
        assert any(row.strip() == "7" for row in seat.rows)

    async def run() -> None:
        limits = Limits(memory_mib=256, line_wall_s=60)
        async with KernelPool(limits, preload=(), setup=(SUBMIT_STUB,), standby=1) as pool:
            app = stepper(REAL, kernels=pool)
            async with seated(app) as seat:
                await act(seat)

    asyncio.run(run())


def test_a_real_line_without_end_is_called_off_and_the_lines_before_are_there(
    stepper: MakeStepper,
) -> None:
    endless = [*REAL[:1], (" any(iter(int, 1))\n", OutcomeKind.TIMEOUT, None)]

    async def run() -> None:
        limits = Limits(memory_mib=256, line_cpu_s=60, line_wall_s=60)
        async with KernelPool(limits, preload=(), setup=(SUBMIT_STUB,), standby=1) as pool:
            app = stepper(endless, kernels=pool)
            async with seated(app) as seat:
                await seat.press("n", "i")
                await seat.fill("any(iter(int, 1))")
                await seat.begin("enter")
                await seat.until("running your line ...")
                await seat.press("escape")
                assert seat.at_line == "1/2"
                await seat.write("x")
                assert any(row.strip() == "6" for row in seat.rows)

    asyncio.run(run())
