"""Going back keeps every line, whatever becomes of the kernel that is to run them again."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from fixture_types import MakeScene, Record
from repl_rl.errors import ConfigError
from repl_rl.records import Line, LineOutcome, OutcomeKind
from repl_rl.viewer.replay.live import Live
from repl_sandbox.fake import FakeKernel, FakeKernels
from repl_sandbox.types import ExecStatus, Execution, SandboxError

OUTPUT = OutcomeKind.OK_OUTPUT
TWO = Execution(status=ExecStatus.OK, output="2\n")
ANSWERS = {"1+1": TWO, "3": Execution(status=ExecStatus.OK, value="3")}
FOUR = (" # think\n", " 1+1\n", " x = 3\n", " submit_final_answer(3)\n")


class Spoiled(FakeKernels):
    """Kernels in which `x = 3` does what is written here, from `since` on (counted from 0)."""

    def __init__(self, spoil: Callable[[], Awaitable[None]] | None, *, since: int) -> None:
        super().__init__(ANSWERS)
        self.spoil, self.since = spoil, since

    async def acquire(self, *, seed: int) -> FakeKernel:
        kernel = await super().acquire(seed=seed)
        run, is_spoiled = kernel.run, len(self.kernels) > self.since

        async def spoiled(source: str) -> Execution:
            if is_spoiled and source == "x = 3" and self.spoil is not None:
                await self.spoil()
            return await run(source)

        kernel.run = spoiled  # type: ignore[method-assign]  # a double
        return kernel


async def breaks() -> None:
    raise SandboxError("the fork server is gone")


async def never_ends() -> None:
    await asyncio.Event().wait()


K = TypeVar("K", bound=FakeKernels)
Beside = Callable[..., Any]
"""What it returns is what the function that it calls does."""


@pytest.fixture
def beside(record: Record, a_scene: MakeScene) -> Beside:
    """`beside(use, kernels)`: what `use(live, kernels)` returns."""

    def run(use: Callable[[Live, K], Awaitable[object]], kernels: K, *lines: str) -> Any:
        async def inside() -> object:
            scored = await record(lines or FOUR, FakeKernels(ANSWERS))
            async with Live(scored, a_scene(), kernels) as live:
                return await use(live, kernels)

        return asyncio.run(inside())

    return run


async def call_off(coroutine: Coroutine[Any, Any, object]) -> None:
    """After it has come as far as it can."""
    task = asyncio.create_task(coroutine)
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def fail(coroutine: Coroutine[Any, Any, object]) -> None:
    with pytest.raises(SandboxError, match="the fork server is gone"):
        await coroutine


@pytest.mark.parametrize(("spoil", "end"), [(never_ends, call_off), (breaks, fail)])
def test_lines_of_which_only_some_ran_again_are_all_kept(
    beside: Beside,
    spoil: Callable[[], Awaitable[None]],
    end: Callable[[Coroutine[Any, Any, object]], Awaitable[None]],
) -> None:
    async def use(live: Live, kernels: Spoiled) -> object:
        await live.run_to(lambda line: False)
        before = list(live.lines)
        await end(live.back(3))
        kept = live.lines == before, live.session.submission, live.has_kernel
        closed = [kernel.is_closed for kernel in kernels.kernels]
        kernels.spoil = None
        await live.back(4)
        return *kept, closed, live.has_kernel, kernels.kernels[-1].sources

    found = beside(use, Spoiled(spoil, since=1))
    assert found == (True, "3", False, [True, True], True, ["1+1", "x = 3", "3"])


@pytest.mark.parametrize(("spoil", "end"), [(never_ends, call_off), (breaks, fail)])
def test_nothing_runs_in_a_kernel_in_which_a_line_came_to_no_end(
    beside: Beside,
    spoil: Callable[[], Awaitable[None]],
    end: Callable[[Coroutine[Any, Any, object]], Awaitable[None]],
) -> None:
    async def use(live: Live, kernels: Spoiled) -> object:
        await live.run_to(lambda line: line.outcome.kind is OUTPUT)
        await end(live.next())
        for ask in (live.next, live.variables, lambda: live.edit("1+1")):
            with pytest.raises(SandboxError, match="there is no kernel; go back"):
                await ask()
        return live.at, kernels.kernels[0].sources

    assert beside(use, Spoiled(spoil, since=0)) == (2, ["1+1"])


# A cap of the policy's in tokens

LONG = "a" * 30 + "\n"
CUT = "aaaa\n... [25 characters omitted] ...\na\n"  # `truncate` to 6 of 31 characters

Taken = Callable[[str], list[tuple[str, str]]]
"""Gets what the line prints again; what each line printed, and what is shown after it."""


@pytest.fixture
def taken(beside: Beside) -> Taken:
    """Text there after `back`: a policy's line that it saw as CUT, and the same by hand."""

    def run(again: str) -> Any:
        async def use(live: Live, kernels: FakeKernels) -> object:
            outcome = LineOutcome(kind=OUTPUT, observation=CUT, is_truncated=True)
            line = Line(index=0, source=" long\n", start=0, stop=6, outcome=outcome)
            live.take(line, text_after=f"{CUT}>>>")
            await live.edit("long")
            await live.back(2)
            return [(line.outcome.observation, line.text_after) for line in live.lines]

        return beside(use, FakeKernels({"long": Execution(status=ExecStatus.OK, output=again)}))

    return run


def test_a_line_of_a_policys_that_prints_the_same_again_stays_as_the_policy_saw_it(
    taken: Taken,
) -> None:
    assert taken(LONG) == [(CUT, f"{CUT}>>>"), (LONG, f"{LONG}>>>")]


def test_a_line_of_a_policys_that_prints_something_else_is_what_it_is_here(
    taken: Taken,
) -> None:
    other = "b" * 30 + "\n"
    assert taken(other)[0] == (other, f"{other}>>>")


# The setup


def test_a_setup_that_fails_is_told_by_its_first_characters(
    record: Record, a_scene: MakeScene
) -> None:
    source = "def broken():\n" + "    # of a file from elsewhere\n" * 1000
    failed = Execution(status=ExecStatus.ERROR, error_type="SyntaxError")
    kernels = FakeKernels({f"{source}\n": failed})

    async def run() -> None:
        scored = await record(FOUR, FakeKernels(ANSWERS))
        async with Live(scored, replace(a_scene(setup=(source,)), is_known=False), kernels):
            pass

    with pytest.raises(ConfigError) as caught:
        asyncio.run(run())
    told = "def broken():\\n    # of a file from elsewhere\\n   "  # 48, each newline one of them
    assert str(caught.value) == f"the setup of these trajectories fails here (error), in `{told}`"
    assert kernels.kernels[0].is_closed
