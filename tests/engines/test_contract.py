"""Laws that every engine keeps, seen through the loop that uses it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress

import pytest
from transformers import Qwen3Config

from engine_kit import GROUPED, random_model
from repl_rl.config import SamplingConfig
from repl_rl.engines.base import Engine, LineEnd, SampledLine
from repl_rl.engines.hf import HFEngine
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.sampler import LineSampler, Rollout
from repl_rl.tokens import ByteCodec
from repl_rl.transcript import PYTHON
from repl_rl.types import Trajectory
from sandbox.fake import FakeKernel
from sandbox.types import ExecStatus, Execution


class Codec(ByteCodec):
    """Bytes of which many end a line: random ones are seldom UTF-8, and decode to no bytes."""

    newline_ids = frozenset({10, *range(192, 256)})
    eos_ids = frozenset({256, 5, 6})


CODEC = Codec()
SAMPLING = SamplingConfig(max_lines=6, max_line_tokens=6, max_tokens=400)


def scripted(seed: int) -> Engine:
    """Writes lines of one to seven letters; one of four ends the sequence."""
    rng = random.Random(seed)

    def write(_: str) -> str:
        letters = "".join(rng.choices("abcxyz", k=rng.randint(1, 7)))
        return letters + rng.choice(["\n", "\n", "\n", ""])

    return ScriptedEngine(CODEC, write)


def hf(_: int) -> Engine:
    """Needs no seed: its requests carry one."""
    model = random_model(lambda: Qwen3Config(**{**GROUPED, "vocab_size": 257}), scale=1.0)
    return HFEngine(model, newline_ids=CODEC.newline_ids, eos_ids=CODEC.eos_ids, num_rows=3)


@dataclass
class Witness:
    """Passes requests on and keeps them, and what came back."""

    engine: Engine
    asked: list[tuple[int, ...]] = field(default_factory=list)
    lines: list[SampledLine] = field(default_factory=list)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        line = await self.engine.line(ids, max_tokens=max_tokens, seed=seed)
        assert len(line.ids) <= max_tokens
        self.asked.append(tuple(ids))
        self.lines.append(line)
        return line

    async def aclose(self) -> None:
        await self.engine.aclose()


def answer(source: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=f"{len(source)} characters\n")


MakeEngine = Callable[[int], Engine]
Rolled = tuple[Witness, Trajectory]


def roll_out(make_engine: MakeEngine, seed: int) -> Rolled:
    """One trajectory after `>>>` with an output after every line."""

    async def inside() -> Trajectory:
        sampler = LineSampler(witness, CODEC, PYTHON, SAMPLING, context_tokens=500)
        rollout = Rollout(
            problem_id="p", group_index=0, sibling_index=0, seed=seed, prompt_text=">>>"
        )
        try:
            async with asyncio.timeout(20):
                return await sampler.sample(rollout, FakeKernel(answer))
        finally:
            await witness.aclose()

    witness = Witness(make_engine(seed))
    return witness, asyncio.run(inside())


@pytest.fixture(params=[scripted, hf], ids=lambda make: make.__name__)
def make_engine(request: pytest.FixtureRequest) -> MakeEngine:
    make: MakeEngine = request.param
    return make


@pytest.fixture
def rolled(make_engine: MakeEngine) -> Rolled:
    """The first trajectory of more than two lines, so that something is injected."""
    return next(
        found for seed in range(20) if len((found := roll_out(make_engine, seed))[0].lines) > 2
    )


def test_what_was_sampled_and_what_was_injected_is_the_completion(
    rolled: Rolled,
) -> None:
    witness, trajectory = rolled
    injected = [
        tuple(CODEC.encode(PYTHON.render_observation(line.outcome.observation, line.outcome.kind)))
        for line in trajectory.lines[:-1]
    ]
    parts = [witness.lines[0].ids]
    for observation, line in zip(injected, witness.lines[1:], strict=True):
        parts += [observation, line.ids]
    assert trajectory.completion_ids == tuple(i for part in parts for i in part)


def test_an_engine_is_asked_to_go_on_after_exactly_what_came_before(
    rolled: Rolled,
) -> None:
    witness, trajectory = rolled
    whole = trajectory.prompt_ids + trajectory.completion_ids
    starts = [len(trajectory.prompt_ids) + line.start for line in trajectory.lines]
    assert witness.asked == [whole[:start] for start in starts]


def test_every_sampled_token_has_the_logprob_its_engine_gave(
    rolled: Rolled,
) -> None:
    witness, trajectory = rolled
    sampled = tuple(compress(trajectory.logprobs, trajectory.loss_mask))
    assert sampled == tuple(x for line in witness.lines for x in line.logprobs)
    assert max(sampled) <= 0.0


def test_a_line_is_ended_by_its_last_token_alone(make_engine: MakeEngine) -> None:
    lines = [line for seed in range(8) for line in roll_out(make_engine, seed)[0].lines]
    stops = CODEC.newline_ids | CODEC.eos_ids
    by_end = {end: {line.ids[-1] for line in lines if line.end is end} for end in LineEnd}
    assert all(by_end.values())
    assert by_end[LineEnd.NEWLINE] <= CODEC.newline_ids
    assert by_end[LineEnd.EOS] <= CODEC.eos_ids
    assert not by_end[LineEnd.LENGTH] & stops
    assert not any(stops & set(line.ids[:-1]) for line in lines)


def test_a_line_without_a_stop_has_all_its_tokens(make_engine: MakeEngine) -> None:
    lines = [line for seed in range(8) for line in roll_out(make_engine, seed)[0].lines]
    assert {len(line.ids) for line in lines if line.end is LineEnd.LENGTH} == {6}


def test_the_same_seed_gives_the_same_trajectory(make_engine: MakeEngine) -> None:
    assert roll_out(make_engine, 7)[1] == roll_out(make_engine, 7)[1]


def test_an_engine_can_be_closed_twice(make_engine: MakeEngine) -> None:
    async def use(engine: Engine) -> None:
        await engine.line([1], max_tokens=1, seed=0)
        await engine.aclose()
        await engine.aclose()

    asyncio.run(use(make_engine(0)))
