"""Lines of a stored trajectory run again in a fresh kernel, and held to their record.

    StoredTrajectory, Scene, KernelSource -> all lines -> Rerun
    StoredTrajectory, Scene, line -> those before it -> a kernel for a console, until its end

Knows kernels, signals and comparisons. Does not know files, screens or rewards, nor what a console
does with its kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repl_rl.errors import ConfigError
from repl_rl.records import Line, LineOutcome, OutcomeKind, Scored
from repl_rl.rollout.prefixes import kernel_sources, naming_lines, volatile_lines
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.viewer.replay.annotated import read
from repl_rl.viewer.replay.compare import Cause, OutcomeDifference, difference
from repl_rl.viewer.replay.live import Live, LiveLine, pool_of
from repl_rl.viewer.replay.scene import Scene, other_walls
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.jupyter.front_ends import LINES
from repl_sandbox.render import number_addresses
from repl_sandbox.types import PERSON_CPU_S, KernelSource

_UNSTEADY = "two runs here differ from each other"

_TWICE_S = 2.0
"""Two Ctrl-C within this end the kernel; one interrupts what runs in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A line that did something else than its record says."""

    line: Line
    difference: OutcomeDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """One trajectory run again, to its end or to the first line that diverged or met a limit."""

    id: str
    num_lines: int
    """Lines that were run and compared."""
    mismatches: tuple[Mismatch, ...]

    @property
    def divergence(self) -> Mismatch | None:
        """The first real one."""
        return next((one for one in self.mismatches if _is(one, Cause.DIVERGED)), None)

    def count(self, cause: Cause) -> int:
        return sum(_is(one, cause) for one in self.mismatches)


def reasons(scored: Scored, scene: Scene) -> list[str | None]:
    """Return why each line may do something else each time, [L]; None where it must not."""
    setup = scene.setup_of(scored.problem)
    return volatile_lines(kernel_sources(scored.trajectory.lines), setup=setup)


async def rerun(stored: StoredTrajectory, scene: Scene, kernels: KernelSource) -> Rerun:
    """Run one trajectory again and compare each line with its record.

    Raises SandboxError if our own side fails, ConfigError for a record that cannot be read.
    """
    scored = read(stored)
    # What runs behind such a line is held to its record: a second kernel shows whether it varies.
    reasons_L = naming_lines(kernel_sources(scored.trajectory.lines))
    mismatches: list[Mismatch] = []
    async with Live(scored, scene, kernels) as live:
        while (line := await live.next()) is not None:
            mismatch = compare(live, line, reasons_L)
            if mismatch is not None and mismatch.difference.cause is Cause.DIVERGED:
                mismatch = await _again(live, mismatch, kernels, scene)
            if mismatch is not None:
                mismatches.append(mismatch)
                if mismatch.difference.cause is not Cause.VOLATILE:
                    break
        return Rerun(id=stored.id, num_lines=live.at, mismatches=tuple(mismatches))


def compare(live: Live, line: LiveLine, reasons_L: Sequence[str | None]) -> Mismatch | None:
    """A live line held to its record, what it handed over included; None where they agree."""
    assert line.recorded is not None, "a line by hand has no record"
    reason = reasons_L[line.recorded.index]
    deviation = difference(
        _with_value(line.recorded.outcome, live.trajectory.value_of(line.recorded)),
        _with_value(line.outcome, line.value),
        volatile=reason,
    )
    return None if deviation is None else Mismatch(line=line.recorded, difference=deviation)


async def attach(
    stored: StoredTrajectory,
    scene: Scene,
    *,
    line: int,
    say: Callable[[str], None],
    on_ready: Callable[[Path], None],
) -> None:
    """Keep a kernel in the state before line `line` (from 1) until it ends or Ctrl-C comes twice.

    `on_ready` gets the connection file. Raises ConfigError for a line that is not there, or that
    the kernel does not reach because an earlier one ends it.
    """
    scored = read(stored)
    num_lines = len(scored.trajectory.lines)
    if not 1 <= line <= num_lines + 1:
        raise ConfigError(
            f"no line {line} in {stored.id}: it has {num_lines}; {num_lines + 1} is after the last"
        )
    # A person may compute for longer than a policy.
    kernels = pool_of(scene, front_end=LINES, standby=0, kernel_cpu_s=PERSON_CPU_S)
    # Closed last: a further Ctrl-C does not interrupt the cleanup.
    with contextlib.ExitStack() as signals:
        async with kernels as pool:
            for note in other_walls(scene.origin, str(pool.walls)):
                say(note)
            consoles = _Consoles(pool)
            async with Live(scored, scene, consoles) as live:
                await _stand_before(line, live, stored, reasons(scored, scene), say)
                ended = signals.enter_context(_interrupts(consoles.kernel, say))
                on_ready(consoles.connection)
                await _first(consoles.kernel.wait(), ended.wait())
    say("the kernel has ended, and what it held is gone")


def _is(mismatch: Mismatch, cause: Cause) -> bool:
    return mismatch.difference.cause is cause


def _with_value(outcome: LineOutcome, value: str | None) -> LineOutcome:
    """The outcome with what was submitted in place of an output, which it has none."""
    if value is None:
        return outcome
    text = number_addresses(value, {}) + "\n"
    return LineOutcome(kind=outcome.kind, observation=outcome.observation + text)


async def _again(live: Live, mismatch: Mismatch, kernels: KernelSource, scene: Scene) -> Mismatch:
    """Return the mismatch, or a volatile one where a second kernel here gives another result."""
    async with Live(live.scored, scene, kernels) as second:
        while second.at <= mismatch.line.index and await second.next() is not None:
            pass
        # Of this line alone: lines before it may differ if they are known to be volatile.
        if _result(second) == _result(live):
            return mismatch
    unsteady = compare(live, live.lines[-1], [_UNSTEADY] * len(live.trajectory.lines))
    assert unsteady is not None, "it did not agree before"
    return unsteady


def _result(live: Live) -> tuple[int, OutcomeKind, str]:
    """Return how many lines ran, and the result of the last one."""
    outcome = _with_value(live.lines[-1].outcome, live.lines[-1].value)
    return live.at, outcome.kind, outcome.observation


class _Consoles:
    """A `KernelSource` whose kernels have a console's sockets."""

    def __init__(self, pool: KernelPool) -> None:
        self._pool = pool

    async def acquire(self, *, seed: int) -> SupervisedKernel:
        self.kernel, self.connection = await self._pool.acquire_console(seed=seed)
        return self.kernel


async def _stand_before(
    line: int,
    live: Live,
    stored: StoredTrajectory,
    reasons_L: Sequence[str | None],
    say: Callable[[str], None],
) -> None:
    """Run the lines before `line`. Raises ConfigError where the kernel does not get there."""
    await _run_lines(live, line - 1, reasons_L, say)
    if live.at < line - 1 or live.kernel_is_gone:
        raise ConfigError(_why_not(live, stored))
    if live.session.pending:
        say(f"line {line} stands inside an open statement, and the kernel has run none of it")


async def _run_lines(
    live: Live, count: int, reasons_L: Sequence[str | None], say: Callable[[str], None]
) -> None:
    """Run the first `count` lines, or all; `say` gets a row for each that did something else."""
    while live.at < count and (ran := await live.next()) is not None:
        if (mismatch := compare(live, ran, reasons_L)) is not None:
            difference = mismatch.difference
            why = f" ({difference.why})" if difference.why else ""
            say(f"line {live.at} did something else here: {difference.headline}{why}")


def _why_not(live: Live, stored: StoredTrajectory) -> str:
    """Explain why the kernel does not get to a line, and how far it gets."""
    if live.kernel_is_gone:
        return f"line {live.at} of {stored.id} ends its kernel; --line {live.at} is the last"
    return f"line {live.at + 1} of {stored.id} never ran; --line {live.at + 1} is the last"


@contextlib.contextmanager
def _interrupts(kernel: SupervisedKernel, say: Callable[[str], None]) -> Iterator[asyncio.Event]:
    """Yield an event that a second Ctrl-C or SIGTERM sets; one Ctrl-C interrupts the kernel."""
    loop, ended, last = asyncio.get_running_loop(), asyncio.Event(), float("-inf")

    def on_interrupt() -> None:
        nonlocal last
        if loop.time() - last < _TWICE_S:
            ended.set()
        elif not ended.is_set():
            say("interrupted; Ctrl-C again ends the kernel")
        last = loop.time()
        kernel.interrupt()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    try:
        yield ended
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of them, then cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
