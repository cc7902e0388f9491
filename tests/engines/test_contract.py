"""Laws that every engine keeps: those of the loop that uses it, and those of a model's lines."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterable, Iterator
from itertools import compress

import psutil
import pytest
import torch

from engine_kit import Written, prompt, shake, trajectories, trajectory, worst_difference
from engine_stands import (
    CODEC,
    CONTEXT_TOKENS,
    ENDLESS,
    OPENERS,
    PLAIN,
    Rolled,
    Runner,
    ScriptedStand,
    Stand,
    Wish,
    roll_out,
)
from repl_rl.engines.base import Engine, LineEnd, SampledLine
from repl_rl.errors import ConfigError, EngineError
from repl_rl.transcript.format import PYTHON

EXACT = 1e-5
"""Nats that a log-probability may be off by in single precision."""


@pytest.fixture(scope="module")
def stands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stand]]:
    found = {name: Stand(name, tmp_path_factory.mktemp(name)) for name in OPENERS}
    yield found
    for stand in found.values():
        stand.close()


@pytest.fixture(params=OPENERS)
def stand(request: pytest.FixtureRequest, stands: dict[str, Stand]) -> Iterator[Stand]:
    """An engine with a model. It may be shared: what a law changes is put back."""
    one = stands[request.param]
    yield one
    one.restore()


@pytest.fixture(params=["scripted", *OPENERS])
def runner(request: pytest.FixtureRequest, stands: dict[str, Stand]) -> Runner:
    return ScriptedStand() if request.param == "scripted" else stands[request.param]


# The loop


@pytest.fixture
def rolled(runner: Runner) -> Rolled:
    """The first trajectory of more than two lines, so that something is injected."""
    return next(found for seed in range(20) if len((found := roll_out(runner, seed))[0].lines) > 2)


def test_what_was_sampled_and_what_was_injected_is_the_completion(rolled: Rolled) -> None:
    witness, trajectory = rolled
    injected = [
        tuple(CODEC.encode(PYTHON.render_observation(line.outcome.observation, line.outcome.kind)))
        for line in trajectory.lines[:-1]
    ]
    parts = [witness.lines[0].ids]
    for observation, line in zip(injected, witness.lines[1:], strict=True):
        parts += [observation, line.ids]
    assert trajectory.completion_ids == tuple(i for part in parts for i in part)


def test_an_engine_is_asked_to_go_on_after_exactly_what_came_before(rolled: Rolled) -> None:
    witness, trajectory = rolled
    whole = trajectory.prompt_ids + trajectory.completion_ids
    starts = [len(trajectory.prompt_ids) + line.start for line in trajectory.lines]
    assert witness.asked == [whole[:start] for start in starts]


def test_every_sampled_token_has_the_logprob_its_engine_gave(rolled: Rolled) -> None:
    witness, trajectory = rolled
    sampled = tuple(compress(trajectory.logprobs, trajectory.loss_mask))
    assert sampled == tuple(x for line in witness.lines for x in line.logprobs)
    assert max(sampled) <= 0.0


def test_a_line_is_ended_by_its_last_token_alone(runner: Runner) -> None:
    lines = [line for seed in range(16) for line in roll_out(runner, seed)[0].lines]
    stops = CODEC.newline_ids | CODEC.eos_ids
    by_end = {end: {line.ids[-1] for line in lines if line.end is end} for end in LineEnd}
    assert all(by_end.values())
    assert by_end[LineEnd.NEWLINE] <= CODEC.newline_ids
    assert by_end[LineEnd.EOS] <= CODEC.eos_ids
    assert not by_end[LineEnd.LENGTH] & stops
    assert not any(stops & set(line.ids[:-1]) for line in lines)


def test_a_line_without_a_stop_has_all_its_tokens(runner: Runner) -> None:
    lines = [line for seed in range(8) for line in roll_out(runner, seed)[0].lines]
    assert {len(line.ids) for line in lines if line.end is LineEnd.LENGTH} == {6}


def test_the_same_seed_gives_the_same_trajectory(runner: Runner) -> None:
    first, again = roll_out(runner, 7)[1], roll_out(runner, 7)[1]
    assert first.completion_ids == again.completion_ids
    assert first.logprobs == pytest.approx(again.logprobs, abs=EXACT)


# Draws


async def sample_first_tokens(engine: Engine, count: int) -> list[SampledLine]:
    lines = [engine.line(prompt(0), max_tokens=1, seed=seed) for seed in range(count)]
    return await asyncio.gather(*lines)


def test_every_id_that_ends_a_sequence_ends_a_line(stand: Stand) -> None:
    lines = stand.run(lambda engine: sample_first_tokens(engine, 2000))
    assert {line.ids[0] for line in lines if line.end is LineEnd.EOS} == CODEC.eos_ids


def test_lines_are_drawn_from_the_distribution_of_the_model(stand: Stand) -> None:
    """2,000 first tokens: their shares are off by less than five standard errors."""
    lines = stand.run(lambda engine: sample_first_tokens(engine, 2000))
    drawn = torch.bincount(torch.tensor([line.ids[0] for line in lines]), minlength=257)
    with torch.no_grad():
        expected = torch.softmax(stand.model()(torch.tensor([prompt(0)])).logits[0, -1], -1)
    error = (expected * (1 - expected) / 2000).sqrt()
    assert ((drawn / 2000 - expected).abs() <= 5 * error + 1e-3).all()


def test_different_seeds_give_different_lines(stand: Stand) -> None:
    async def use(engine: Engine) -> set[tuple[int, ...]]:
        seeds = [*range(8), *(2**63 - 1 - i for i in range(8))]
        lines = [engine.line(prompt(0), max_tokens=8, seed=seed) for seed in seeds]
        return {line.ids for line in await asyncio.gather(*lines)}

    assert len(stand.run(use)) > 12


def test_a_line_is_the_same_whatever_else_is_in_flight(stand: Stand) -> None:
    async def crowd(engine: Engine) -> Written:
        others = (trajectory(engine, prompt(i, 3 + 9 * i), seed=i) for i in range(2, 12))
        mine, *_ = await asyncio.gather(trajectory(engine, prompt(0, 20), seed=1), *others)
        return mine

    alone, _ = stand.run(lambda engine: trajectory(engine, prompt(0, 20), seed=1))
    assert stand.run(crowd)[0] == alone


# Log-probabilities


async def long_trajectories(engine: Engine) -> list[Written]:
    """More of them than rows, through many observations and beyond any block of keys."""
    return await trajectories(engine, 10, num_lines=8, max_tokens=20)


def worst(stand: Stand, results: Iterable[Written], wish: Wish = PLAIN) -> float:
    model, temperature = stand.model(wish), wish.temperature
    return max(worst_difference(model, *result, temperature=temperature) for result in results)


def test_logprobs_are_those_of_a_fresh_forward(stand: Stand) -> None:
    results = stand.run(long_trajectories)
    assert max(len(ids) for ids, _ in results) > 64
    assert worst(stand, results) < EXACT


def test_the_same_prompt_twice_needs_no_new_token(stand: Stand) -> None:
    """What holds the whole request still runs its last token for a distribution."""

    async def use(engine: Engine) -> list[SampledLine]:
        return [await engine.line(prompt(0, 64), max_tokens=5, seed=4) for _ in range(2)]

    first, second = stand.run(use)
    assert first.ids == second.ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=EXACT)


def test_sampled_tokens_are_counted(stand: Stand) -> None:
    async def use(engine: Engine) -> tuple[int, int]:
        before = engine.num_sampled
        lines = [await engine.line(prompt(i), max_tokens=6, seed=0) for i in range(2)]
        return engine.num_sampled - before, sum(len(line.ids) for line in lines)

    counted, num_ids = stand.run(use)
    assert counted == num_ids


# Requests that are refused


@pytest.mark.parametrize(
    ("ids", "max_tokens", "message"),
    [
        ([], 4, "4 tokens to sample after 0; expected at least one of each"),
        ([1], 0, "0 tokens to sample after 1; expected"),
        ([1, 257], 4, "from 1 to 257, the model embeds 257; give it the tokenizer"),
        ([-1, 4], 4, "from -1 to 4, the model embeds 257"),
        ([1] * 510, 3, "510 tokens and 3 to sample, the model's context holds 512; lower"),
        ([1] * 600, 1, "600 tokens and 1 to sample, the model's context holds 512"),
    ],
)
def test_a_request_that_no_forward_could_serve_is_refused_and_disturbs_no_other(
    stand: Stand, ids: list[int], max_tokens: int, message: str
) -> None:
    async def use(engine: Engine) -> tuple[SampledLine, SampledLine]:
        other = asyncio.create_task(engine.line(prompt(0), max_tokens=8, seed=1))
        await asyncio.sleep(0)
        with pytest.raises(ConfigError, match=message):
            await engine.line(ids, max_tokens=max_tokens, seed=0)
        return await other, await engine.line(prompt(0), max_tokens=8, seed=1)

    other, later = stand.run(use)
    assert other.ids == later.ids


# Updates


async def line_sync_lines(engine: Engine, stand: Stand, wish: Wish) -> Written:
    """A line, other weights, and lines that go on after it."""
    first = await engine.line(prompt(0, 40), max_tokens=8, seed=1)
    shake(stand.model(wish))
    await engine.sync(stand.model(wish).named_parameters(), version=1)
    return await trajectory(engine, [*prompt(0, 40), *first.ids, 20], seed=2)


def test_logprobs_are_those_of_the_weights_after_an_update(stand: Stand) -> None:
    written = stand.run(lambda engine: line_sync_lines(engine, stand, PLAIN))
    assert worst(stand, [written]) < EXACT


def test_a_line_has_the_version_of_the_last_sync(stand: Stand) -> None:
    async def use(engine: Engine) -> list[int]:
        before = await engine.line(prompt(0), max_tokens=2, seed=1)
        await engine.sync(stand.model().named_parameters(), version=5)
        after = await engine.line(prompt(0), max_tokens=2, seed=1)
        return [before.policy_version, after.policy_version]

    assert stand.run(use) == [0, 5]


def test_an_update_with_lines_in_flight_is_seen_by_those_that_are_asked_for_later(
    stand: Stand,
) -> None:
    async def use(engine: Engine) -> Written:
        crowd = [
            asyncio.create_task(engine.line(prompt(i, 40), max_tokens=20, seed=i))
            for i in range(12)
        ]
        await asyncio.sleep(0.005)
        shake(stand.model())
        await engine.sync(stand.model().named_parameters(), version=1)
        written = await trajectory(engine, prompt(0, 40), seed=2)
        await asyncio.gather(*crowd)
        return written

    assert worst(stand, [stand.run(use)]) < EXACT


# Lines that do not end by themselves


def test_a_cancelled_line_leaves_no_residue(stand: Stand) -> None:
    """Beside it and after it everything is as without it; an update finds nothing in the way."""

    async def alone(engine: Engine) -> list[Written]:
        return [await trajectory(engine, prompt(i, 40), seed=i) for i in range(2)]

    async def beside(engine: Engine) -> list[Written]:
        doomed = [
            asyncio.create_task(engine.line(prompt(i, 40), max_tokens=400, seed=0))
            for i in range(12)
        ]
        mine = asyncio.create_task(trajectory(engine, prompt(0, 40), seed=0))
        await asyncio.sleep(0.05)
        for one in doomed:
            one.cancel()
        written = [await mine, await trajectory(engine, prompt(1, 40), seed=1)]
        await engine.sync(stand.model().named_parameters(), version=1)
        return [*written, *await trajectories(engine, 8)]

    expected = stand.run(alone, wish=ENDLESS)
    results = stand.run(beside, wish=ENDLESS)
    assert [ids for ids, _ in results[:2]] == [ids for ids, _ in expected]
    assert worst(stand, results, ENDLESS) < EXACT


def test_a_request_may_fill_the_context_to_its_last_token(stand: Stand) -> None:
    ids = prompt(0, CONTEXT_TOKENS - 2)
    line = stand.run(lambda one: one.line(ids, max_tokens=2, seed=0), wish=ENDLESS)
    assert len(line.ids) == 2


@pytest.mark.parametrize("asked", ["in flight", "waiting for their turn"])
def test_lines_end_in_an_error_when_the_engine_is_closed(stand: Stand, asked: str) -> None:
    async def use() -> list[object]:
        engine = stand.open(ENDLESS)
        lines = [engine.line(prompt(i), max_tokens=400, seed=i) for i in range(10)]
        waiting = [asyncio.ensure_future(line) for line in lines]
        await asyncio.sleep(0.02 if asked == "in flight" else 0)
        await engine.aclose()
        return await asyncio.gather(*waiting, return_exceptions=True)

    stand.close()
    assert [type(result) for result in asyncio.run(use())] == [EngineError] * 10


# Other settings


def test_logprobs_are_those_of_the_tempered_distribution(stand: Stand) -> None:
    """As TRL has it: logits divided by the temperature, then one softmax over all of them."""
    cool = Wish(temperature=0.7)
    written = stand.run(lambda engine: line_sync_lines(engine, stand, cool), wish=cool)
    assert worst(stand, [written], cool) < EXACT


def test_an_update_of_the_embedding_alone_reaches_the_output_layer_that_is_tied_to_it(
    stand: Stand,
) -> None:
    tied = Wish(is_tied=True)

    async def use(engine: Engine) -> Written:
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(1.5)
        await engine.sync(model.named_parameters(), version=1)
        return await trajectory(engine, prompt(0, 40), seed=2)

    model = stand.model(tied)
    assert worst(stand, [stand.run(use, wish=tied)], tied) < EXACT


# The end


def test_a_closed_engine_can_be_closed_again_and_serves_nothing(stand: Stand) -> None:
    async def use() -> None:
        engine = stand.open()
        await engine.line([1], max_tokens=1, seed=0)
        await engine.aclose()
        await engine.aclose()
        with pytest.raises(EngineError, match="closed"):
            await engine.line([1], max_tokens=1, seed=0)

    stand.close()
    asyncio.run(use())


def test_a_closed_engine_holds_no_thread_no_file_and_no_tensor(stand: Stand) -> None:
    """Measured from the second one on: libraries keep a few files for themselves."""

    def held() -> tuple[list[str], int, int]:
        gc.collect()
        tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
        files = psutil.Process().num_fds()
        threads = sorted(thread.name for thread in threading.enumerate())
        return threads, files, sum(one.numel() >= 1000 for one in tensors)

    async def use() -> Engine:
        engine = stand.open()
        await engine.sync(stand.model().named_parameters(), version=1)
        await long_trajectories(engine)
        await engine.aclose()
        return engine

    stand.close()
    asyncio.run(use())
    before = held()
    engine = asyncio.run(use())
    assert held() == before
    assert engine.num_sampled > 0
