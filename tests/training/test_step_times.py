"""Laws of the times of a step: every second has one name, and overlapping waits are shared out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.engines.busy import BusyEngine
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.rollout.waits import Waits
from repl_rl.training.laps import Laps
from repl_rl.training.rollout_counts import time_metrics
from repl_rl.transcript.tokens import ByteCodec


def test_every_second_goes_to_one_part() -> None:
    """Begun at 10, 11, 15 and 18; a second step from 20 on."""
    now = iter([10.0, 11.0, 15.0, 18.0, 20.0, 23.0, 24.0])
    laps = Laps(lambda: next(now))
    for part in ("sync", "rollout", "sync", "update"):
        laps.begin(part)
    assert laps.take(then="other") == {"sync": 1.0 + 3.0, "rollout": 4.0, "update": 2.0}
    laps.begin("sync")
    assert laps.take(then="other") == {"other": 3.0, "sync": 1.0}


def test_the_rollouts_time_is_divided_as_its_trajectories_are() -> None:
    """Two at once for 4 s: 2 of their 8 s wait for kernels, 1 for verdicts."""
    waits = Waits(total_s=8.0, kernel_s=2.0, grading_s=1.0)
    found = time_metrics({"rollout": 4.0, "sync": 0.5, "update": 3.0}, *waits.shares())
    assert found == pytest.approx(
        {
            "time/rollout": 2.5,
            "time/kernel": 1.0,
            "time/grading": 0.5,
            "time/sync": 0.5,
            "time/update": 3.0,
            "time/other": 0.0,
        }
    )
    assert sum(found.values()) == pytest.approx(4.0 + 0.5 + 3.0)


def test_without_a_trajectory_all_of_it_is_sampling() -> None:
    assert time_metrics({"rollout": 4.0}, *Waits().shares())["time/rollout"] == 4.0


class Gated(ScriptedEngine):
    """Answers once it is let."""

    def __init__(self) -> None:
        super().__init__(ByteCodec(), script("1\n"))
        self.gate = asyncio.Event()

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        await self.gate.wait()
        return SampledLine(ids=(10,), logprobs=(0.0,), end=LineEnd.NEWLINE, policy_version=0)


def test_an_engine_is_busy_while_any_line_is_in_flight() -> None:
    """Two lines from 0 and 3 to 7 are 7 s, not 11; then it is idle."""
    times = iter([0.0, 7.0, 100.0, 101.0])

    async def run() -> float:
        slow = Gated()
        engine = BusyEngine(slow, clock=lambda: next(times))
        lines = [asyncio.ensure_future(engine.line([1], max_tokens=9, seed=0)) for _ in range(2)]
        await asyncio.sleep(0)
        slow.gate.set()
        await asyncio.gather(*lines)
        assert engine.busy_s == 7.0
        await engine.line([1], max_tokens=9, seed=0)
        return engine.busy_s

    assert asyncio.run(run()) == 8.0
