"""Laws of the loop that uses an engine: what was sampled is what is trained, token for token.

    Run(use) -> (requests and answers of the engine, Trajectory)

Knows the line loop. Does not know models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Protocol

import pytest

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import Engine, EngineWrapper, LineEnd, SampledLine
from repl_rl.records import Attempt, Problem, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.testing.under_test import CODEC, T, Use
from repl_rl.transcript.format import PYTHON, Part, Prompt
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

EXACT = 1e-5
"""Nats that a log-probability may be off by in single precision."""
SAMPLING = SamplingConfig(max_lines=6, max_line_tokens=6, max_tokens=400)


class LoopRun(Protocol):
    def __call__(self, use: Use[T], *, seed: int = 0) -> T:
        """Return the result of `use` on an engine."""
        ...


@dataclass
class RecordingEngine(EngineWrapper):
    """Passes requests on to another engine, and keeps them with their answers."""

    asked: list[tuple[int, ...]] = field(default_factory=list)
    lines: list[SampledLine] = field(default_factory=list)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        line = await super().line(ids, max_tokens=max_tokens, seed=seed)
        assert len(line.ids) <= max_tokens
        self.asked.append(tuple(ids))
        self.lines.append(line)
        return line


def answer(source: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=f"{len(source)} characters\n")


Rolled = tuple[RecordingEngine, Trajectory]


def roll_out(run: LoopRun, seed: int) -> Rolled:
    """One trajectory after `>>>` with an output after every line."""

    async def use(engine: Engine) -> Rolled:
        recording = RecordingEngine(engine)
        sampler = LineSampler(recording, CODEC, PYTHON, SAMPLING, context_tokens=500)
        start = Prompt(parts=(Part(">>>"),))
        problem = Problem(id="p", statement="?")
        attempt = Attempt(problem=problem, group_index=0, sibling_index=0, seed=seed)
        return recording, await sampler.sample(attempt, start, FakeKernel(answer))

    return run(use, seed=seed)


class LoopContract:
    """Laws of any engine in the loop, one without a model included. A subclass gives `run`."""

    @pytest.fixture
    def run(self) -> LoopRun:
        raise NotImplementedError

    @pytest.fixture
    def rolled(self, run: LoopRun) -> Rolled:
        """The first trajectory of more than two lines, so that something is injected."""
        return next(made for seed in range(20) if len((made := roll_out(run, seed))[0].lines) > 2)

    def test_what_was_sampled_and_what_was_injected_is_the_completion(self, rolled: Rolled) -> None:
        recording, trajectory = rolled
        outcomes = [line.outcome for line in trajectory.lines[:-1]]
        injected = [
            tuple(CODEC.encode(PYTHON.render_observation(outcome.observation, outcome.kind)))
            for outcome in outcomes
        ]
        parts = [recording.lines[0].ids]
        for observation, line in zip(injected, recording.lines[1:], strict=True):
            parts += [observation, line.ids]
        assert trajectory.completion_ids == tuple(i for part in parts for i in part)

    def test_an_engine_is_asked_to_go_on_after_exactly_what_came_before(
        self, rolled: Rolled
    ) -> None:
        recording, trajectory = rolled
        whole = trajectory.prompt_ids + trajectory.completion_ids
        starts = [len(trajectory.prompt_ids) + line.start for line in trajectory.lines]
        assert recording.asked == [whole[:start] for start in starts]

    def test_every_sampled_token_has_the_logprob_its_engine_gave(self, rolled: Rolled) -> None:
        recording, trajectory = rolled
        sampled = tuple(compress(trajectory.logprobs, trajectory.loss_mask))
        assert sampled == tuple(x for line in recording.lines for x in line.logprobs)
        assert max(sampled) <= 0.0

    def test_a_line_is_ended_by_its_last_token_alone(self, run: LoopRun) -> None:
        lines = [line for seed in range(16) for line in roll_out(run, seed)[0].lines]
        stops = CODEC.newline_ids | CODEC.eos_ids
        by_end = {end: {line.ids[-1] for line in lines if line.end is end} for end in LineEnd}
        assert all(by_end.values())
        assert by_end[LineEnd.NEWLINE] <= CODEC.newline_ids
        assert by_end[LineEnd.EOS] <= CODEC.eos_ids
        assert not by_end[LineEnd.LENGTH] & stops
        assert not any(stops & set(line.ids[:-1]) for line in lines)

    def test_a_line_without_a_stop_has_all_its_tokens(self, run: LoopRun) -> None:
        lines = [line for seed in range(8) for line in roll_out(run, seed)[0].lines]
        assert {len(line.ids) for line in lines if line.end is LineEnd.LENGTH} == {6}

    def test_the_same_seed_gives_the_same_trajectory(self, run: LoopRun) -> None:
        first, again = roll_out(run, 7)[1], roll_out(run, 7)[1]
        assert first.completion_ids == again.completion_ids
        assert first.logprobs == pytest.approx(again.logprobs, abs=EXACT)
