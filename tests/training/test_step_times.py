"""Laws of the times of a step: every second has one name, and overlapping waits are shared out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from repl_rl.engines.base import BusyEngine, LineEnd, SampledLine
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.rollout.runner import Waits
from repl_rl.training.rollouts import Laps, RolloutCounts, taken_metrics, time_metrics
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


def a_runtime() -> Any:
    return SimpleNamespace(
        engine=SimpleNamespace(num_sampled=0, busy_s=0.0, prefix_tokens=(0, 0)),
        runner=SimpleNamespace(waits=Waits(), num_retries=0),
    )


def test_what_rollouts_took_is_counted_over_all_processes(
    monkeypatch: pytest.MonkeyPatch,
    make_trajectory: Callable[..., Trajectory],
    make_scored: Callable[..., Scored],
) -> None:
    """Two engines, of 100 tokens in 2 s and 30 in 3 s, in rollouts of 4 s."""
    clock = iter([0.0, 0.0, 4.0, 4.0])
    monkeypatch.setattr("repl_rl.training.rollouts.time.monotonic", lambda: next(clock))
    runtimes = [a_runtime(), a_runtime()]
    counted = [RolloutCounts(runtime) for runtime in runtimes]
    made = ((100, 2.0, (30, 60), 1, 10.0), (30, 3.0, (10, 20), 2, 90.0))
    for runtime, (sampled, busy_s, prefix, retries, start_ms) in zip(runtimes, made, strict=True):
        runtime.engine = SimpleNamespace(num_sampled=sampled, busy_s=busy_s, prefix_tokens=prefix)
        runtime.runner.num_retries, waits = retries, runtime.runner.waits
        waits.starts_ms, waits.verdicts_ms = [start_ms], [2 * start_ms]
    trajectory = make_trajectory([(" b\n", OutcomeKind.OK_OUTPUT, "1\n>>>")])
    takens = [one.taken() for one in counted]
    found = taken_metrics(takens, [make_scored(trajectory, 0.0)], [1.0])
    expected = {
        "rollout/retries": 3,
        "rollout/wasted_tokens": 130 - sum(trajectory.loss_mask),
        "engine/tokens_per_s": 60.0,
        "engine/idle_share": 3 / 8,
        "engine/prefix_hit_rate": 0.5,
        "kernel/start_p99_ms": 90.0,
        "grader/verdict_p99_ms": 180.0,
    }
    assert {name: found[name] for name in expected} == expected
