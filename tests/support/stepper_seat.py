"""A seat before the stepper: keys go in, rows of text come out, and nothing waits for a clock.

Its keys are waited for until every widget has handled every message and no command runs. With it
stand the lines, kernels and policies that the tests of the stepper share.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

from textual import events
from textual.message import Message
from textual.pilot import Pilot

from repl_rl.config import Config
from repl_rl.records import (
    Line,
    Origin,
    OutcomeKind,
    Problem,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.transcript.format import PYTHON, SUBMIT_STUB
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.replay.branch import as_trajectory
from repl_rl.viewer.replay.live import Live
from repl_rl.viewer.replay.scene import Scene
from repl_rl.viewer.stepper import Stepper
from repl_sandbox.fake import FakeKernel, FakeKernels
from repl_sandbox.types import ExecStatus, Execution, SandboxError

COMMENT, OUTPUT, SILENT = OutcomeKind.COMMENT, OutcomeKind.OK_OUTPUT, OutcomeKind.OK_SILENT
NAME_ERROR, SUBMITTED = OutcomeKind.NAME_ERROR, OutcomeKind.SUBMITTED
ANSWERS = {
    "1+1": Execution(status=ExecStatus.OK, output="2\n"),
    "y": Execution(status=ExecStatus.ERROR, output="NameError: y\n", error_type="NameError"),
    "2": Execution(status=ExecStatus.OK, value="2"),
    "3": Execution(status=ExecStatus.OK, value="3"),
}
PROVED = Verdict(kind=VerdictKind.PROVED)
LINES = (
    (" # think\n", COMMENT, ">>>"),
    (" 1+1\n", OUTPUT, "2\n>>>"),
    (" y\n", NAME_ERROR, "NameError: y\n>>>"),
    (" x = 2\n", SILENT, ">>>"),
    (" submit_final_answer(2)\n", SUBMITTED, None),
)
LINE_REWARDS = (0.0, 0.0, -0.1, 0.0, 0.0)
ORIGIN = Origin(config="", setup=(SUBMIT_STUB,), tokenizer=None, isolation="none", versions={})
SCENE = Scene(config=Config(), setup=(SUBMIT_STUB,), fmt=PYTHON, origin=ORIGIN, notes=())

SIZE = (80, 24)
"""Columns, rows."""
_MAX_WAIT_S = 90.0
"""Far over what anything takes, so that it ends only what would never end by itself."""
_NUM_QUIET = 3
"""Rounds. What ran when the first began may wake a widget, which may tell another in its own turn,
and that one handles it before the end of the third."""


class SaysProved:
    """A judge that likes every answer."""

    async def grade(self, _task_spec: str, _problem: Problem, _submission: str) -> Verdict:
        return PROVED


class Broken:
    """Kernels that are not to be had."""

    async def acquire(self, *, seed: int) -> FakeKernel:
        raise SandboxError(f"no kernel for seed {seed}: the zygote [/bold] is gone")


class Slow(FakeKernels):
    """Kernels in which `slow` takes for ever."""

    async def acquire(self, *, seed: int) -> FakeKernel:
        kernel = await super().acquire(seed=seed)
        run = kernel.run

        async def wait(source: str) -> Execution:
            if source == "slow":
                await asyncio.Event().wait()
            return await run(source)

        kernel.run = wait  # type: ignore[method-assign]  # a double
        return kernel


class WritesLines:
    """A policy that goes on with fixed sources, in bytes of log-probability -0.5."""

    def __init__(self, *sources: str, waits: bool = False, source: str | None = None) -> None:
        self.sources = sources
        self.waits = waits
        self.source = source

    def decode(self, ids: Sequence[int]) -> str:
        return ByteCodec().decode(ids)

    async def continue_from(self, live: Live, *, on_line: Callable[[Line], None]) -> Trajectory:
        for source in self.sources:
            outcome = await live.session.run(source)
            line = Line(index=live.at, source=f" {source}\n", start=0, stop=1, outcome=outcome)
            live.take(line, text_after=live.session.show(outcome.observation, outcome.kind))
            live.session.advance(outcome.kind)
            on_line(line)
        if self.waits:
            await asyncio.Event().wait()
        done = as_trajectory(live)
        logprobs = tuple(-0.5 if mask else 0.0 for mask in done.loss_mask)
        return replace(done, logprobs=logprobs, stop_reason=StopReason.MAX_LINES)


class Seat:
    """Seat of a person at the keys. `arrived` grows by every message that a widget handles."""

    def __init__(self, app: Stepper, pilot: Pilot[None], arrived: list[Message]) -> None:
        self.app, self._pilot, self._arrived = app, pilot, arrived

    async def settle(self) -> None:
        """Until every key was heard, and what it asked for is done and painted."""
        num_quiet, deadline = 0, time.monotonic() + _MAX_WAIT_S
        while num_quiet < _NUM_QUIET:
            assert time.monotonic() < deadline, f"it never came to rest:\n{self.text}"
            is_quiet = await self._is_quiet_round()
            num_quiet = num_quiet + 1 if is_quiet and not self.app.is_busy else 0

    async def _is_quiet_round(self) -> bool:
        """Have every widget handle what came to it; True where only the call to do so had."""
        num_calls = 1 + len(self.app.screen.walk_children(with_self=True))
        num_before = len(self._arrived)
        await self._pilot.pause(0.01 if self.app.is_busy else 0)
        return len(self._arrived) - num_before == num_calls

    async def until(self, *texts: str) -> None:
        """Until all of these stand on the screen: for what runs on, and so never settles."""
        deadline = time.monotonic() + _MAX_WAIT_S
        while not all(text in self.text for text in texts):
            assert time.monotonic() < deadline, f"{texts} never came:\n{self.text}"
            await self._pilot.pause(0.01)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self._pilot.press(key)
            await self.settle()

    async def begin(self, *keys: str) -> None:
        """Press keys and wait for nothing that they ask for; `until` says when it is there."""
        await self._pilot.press(*keys)

    async def fill(self, text: str) -> None:
        """Into the question that is open, in place of what stands there."""
        await self._pilot.press("ctrl+u", *text)
        await self.settle()

    async def write(self, text: str) -> None:
        """An answer to the question that is open."""
        await self.fill(text)
        await self.press("enter")

    async def leave(self, key: str) -> None:
        """Press a key that ends the app: no widget is left to wait for."""
        self.app.post_message(events.Key(key, None))
        deadline = time.monotonic() + _MAX_WAIT_S
        while self.app.return_code is None:
            assert time.monotonic() < deadline, f"{key} did not end it:\n{self.text}"
            await asyncio.sleep(0.01)

    @property
    def rows(self) -> list[str]:
        # What reaches the terminal, and there is no other way to it.
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    @property
    def at_line(self) -> str:
        return line_of(self.rows)

    def row_of(self, text: str) -> str:
        return next(row for row in self.rows if text in row)


MakeStepper = Callable[..., Stepper]
"""The fixture `stepper`: see tests/replay/stepper/conftest.py."""
Act = Callable[[Seat], Awaitable[None]]


@contextlib.asynccontextmanager
async def seated(app: Stepper, *, size: tuple[int, int] = SIZE) -> AsyncIterator[Seat]:
    """A person at the keys of an app that has come to rest."""
    arrived: list[Message] = []
    async with app.run_test(size=size, message_hook=arrived.append) as pilot:
        seat = Seat(app, pilot, arrived)
        await seat.settle()
        yield seat


def sit(app: Stepper, act: Act, *, size: tuple[int, int] = SIZE) -> None:
    """Run `act` with a person at the keys."""

    async def run() -> None:
        async with seated(app, size=size) as seat:
            await act(seat)

    asyncio.run(run())


def after(app: Stepper, *keys: str, size: tuple[int, int] = SIZE) -> list[str]:
    """The rows once these keys have done their work."""
    seen: list[str] = []

    async def act(seat: Seat) -> None:
        await seat.press(*keys)
        seen.extend(seat.rows)

    sit(app, act, size=size)
    return seen


def line_of(rows: Sequence[str]) -> str:
    """Place of a line, as the head says it: `2/5`, or `2*` on a branch."""
    return rows[0].split("line ")[1].split()[0]
