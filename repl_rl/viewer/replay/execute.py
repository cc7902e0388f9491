"""Every line of a stored trajectory run again in a fresh kernel, and held to its record.

    StoredTrajectory, Scene, KernelSource -> Rerun

Knows kernels and comparisons. Does not know files, screens or rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repl_rl.records import Line, LineOutcome, OutcomeKind, Scored
from repl_rl.rollout.prefixes import kernel_sources, naming_lines, volatile_lines
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.viewer.replay.annotated import read
from repl_rl.viewer.replay.compare import Cause, OutcomeDifference, difference
from repl_rl.viewer.replay.live import Live, LiveLine
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.render import number_addresses
from repl_sandbox.types import KernelSource

_UNSTEADY = "two runs here differ from each other"


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


def _is(mismatch: Mismatch, cause: Cause) -> bool:
    return mismatch.difference.cause is cause


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
