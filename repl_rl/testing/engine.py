"""Laws that every engine keeps: those of the loop that uses it, and those of a model's lines."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, Protocol

import psutil
import pytest
import torch

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import Engine, EngineWrapper, LineEnd, SampledLine
from repl_rl.errors import ConfigError, EngineError
from repl_rl.records import Attempt, Problem, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.testing.under_test import (
    CODEC,
    CONTEXT_TOKENS,
    ENDLESS,
    FORBIDDING,
    NUM_DRAWS,
    USUAL,
    VOCABULARY,
    EngineOptions,
    EngineUnderTest,
    T,
    Use,
    Written,
    one_thread,
    prompt,
    shake,
    trajectories,
    trajectory,
    worst_difference,
)
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


async def long_trajectories(engine: Engine) -> list[Written]:
    """More trajectories than rows, with many observations and longer than any block of keys."""
    return await trajectories(engine, 10, num_lines=8, max_tokens=20)


def worst(
    under_test: EngineUnderTest, results: Iterable[Written], options: EngineOptions = USUAL
) -> float:
    model = under_test.model(options)
    temperature, forbidden_ids = options.temperature, options.forbidden_ids
    return max(
        worst_difference(model, *result, temperature=temperature, forbidden_ids=forbidden_ids)
        for result in results
    )


async def line_sync_lines(
    engine: Engine, under_test: EngineUnderTest, options: EngineOptions
) -> Written:
    """A line, other weights, and lines that go on after it."""
    first = await engine.line(prompt(0, 40), max_tokens=8, seed=1)
    shake(under_test.model(options))
    await engine.sync(under_test.model(options).named_parameters(), version=1)
    return await trajectory(engine, [*prompt(0, 40), *first.ids, 20], seed=2)


class EngineContract(LoopContract):
    """The laws, as tests. A subclass says how its engine is opened:

        class TestMyEngine(EngineContract):
            def open(self, model, folder, options):
                return MyEngine(model, newline_ids=options.newline_ids, ...)

    `model` is a small one of transformers in float32: the trainer's, and saved in `folder`. The
    engine samples with its weights. It is kept while laws ask for the same `options`, and closed
    after the last one.
    """

    forbids: ClassVar[bool] = True
    """False for an engine without `options.forbidden_ids`: see `EngineKind.most_forbidden`."""
    _shared: ClassVar[EngineUnderTest | None] = None

    def open(self, model: Any, folder: Path, options: EngineOptions) -> Engine:
        """An engine for `options` that samples with the weights of `model`."""
        raise NotImplementedError

    @pytest.fixture
    def under_test(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineUnderTest]:
        """The engine of this class. It is shared: what a law changes is put back."""
        here = type(self)
        if here._shared is None:
            here._shared = EngineUnderTest(self.open, tmp_path_factory.mktemp(here.__name__))
        with one_thread():
            yield here._shared
            here._shared.restore()

    @classmethod
    def teardown_class(cls) -> None:
        """Close the engine; pytest calls it after the last law of the class."""
        # A fixture for the whole class cannot be a method in all versions of pytest.
        shared, cls._shared = cls._shared, None
        if shared is not None:
            shared.close()

    @pytest.fixture
    def run(self, under_test: EngineUnderTest) -> LoopRun:
        return under_test.run

    # Draws

    @pytest.fixture
    def first_tokens(self, under_test: EngineUnderTest) -> list[SampledLine]:
        return under_test.first_tokens

    def test_every_id_that_ends_a_sequence_ends_a_line(
        self, first_tokens: list[SampledLine]
    ) -> None:
        ends = {line.ids[0] for line in first_tokens if line.end is LineEnd.EOS}
        assert ends == CODEC.eos_ids

    def test_lines_are_drawn_from_the_distribution_of_the_model(
        self, under_test: EngineUnderTest, first_tokens: list[SampledLine]
    ) -> None:
        """2,000 first tokens: their shares are off by less than five standard errors."""
        ids = torch.tensor([line.ids[0] for line in first_tokens])
        shares = torch.bincount(ids, minlength=VOCABULARY) / NUM_DRAWS
        with torch.no_grad():
            logits = under_test.model()(torch.tensor([prompt(0)])).logits[0, -1]
        expected = torch.softmax(logits, -1)
        error = (expected * (1 - expected) / NUM_DRAWS).sqrt()
        assert ((shares - expected).abs() <= 5 * error + 1e-3).all()

    def test_different_seeds_give_different_lines(self, under_test: EngineUnderTest) -> None:
        async def use(engine: Engine) -> set[tuple[int, ...]]:
            seeds = [*range(8), *(2**63 - 1 - i for i in range(8))]
            lines = [engine.line(prompt(0), max_tokens=8, seed=seed) for seed in seeds]
            return {line.ids for line in await asyncio.gather(*lines)}

        assert len(under_test.run(use)) > 12

    def test_a_line_is_the_same_whatever_else_is_in_flight(
        self, under_test: EngineUnderTest
    ) -> None:
        async def crowd(engine: Engine) -> Written:
            others = (trajectory(engine, prompt(i, 3 + 9 * i), seed=i) for i in range(2, 12))
            mine, *_ = await asyncio.gather(trajectory(engine, prompt(0, 20), seed=1), *others)
            return mine

        alone, _ = under_test.run(lambda engine: trajectory(engine, prompt(0, 20), seed=1))
        assert under_test.run(crowd)[0] == alone

    # Log-probabilities

    def test_logprobs_are_those_of_a_fresh_forward(self, under_test: EngineUnderTest) -> None:
        results = under_test.run(long_trajectories)
        assert max(len(ids) for ids, _ in results) > 64
        assert worst(under_test, results) < EXACT

    def test_the_same_prompt_twice_needs_no_new_token(self, under_test: EngineUnderTest) -> None:
        """An engine that holds the whole request still runs its last token for a distribution."""

        async def use(engine: Engine) -> list[SampledLine]:
            return [await engine.line(prompt(0, 64), max_tokens=5, seed=4) for _ in range(2)]

        first, second = under_test.run(use)
        assert first.ids == second.ids
        assert first.logprobs == pytest.approx(second.logprobs, abs=EXACT)

    def test_sampled_tokens_are_counted(self, under_test: EngineUnderTest) -> None:
        async def use(engine: Engine) -> tuple[int, int]:
            before = engine.num_sampled
            lines = [await engine.line(prompt(i), max_tokens=6, seed=0) for i in range(2)]
            return engine.num_sampled - before, sum(len(line.ids) for line in lines)

        counted, num_ids = under_test.run(use)
        assert counted == num_ids

    # Requests that are refused

    @pytest.mark.parametrize(
        ("ids", "max_tokens", "message"),
        [
            ([], 4, "4 tokens to sample after 0; expected at least one of each"),
            ([1], 0, "0 tokens to sample after 1; expected"),
            ([1, 257], 4, "from 1 to 257, the model embeds 257; give it the tokenizer"),
            ([-1, 4], 4, "from -1 to 4, the model embeds 257"),
            ([1] * 510, 3, "510 tokens and 3 to sample, but the model's context holds 512; lower"),
            ([1] * 600, 1, "600 tokens and 1 to sample, but the model's context holds 512"),
        ],
    )
    def test_a_request_that_no_forward_could_serve_is_refused_and_disturbs_no_other(
        self, under_test: EngineUnderTest, ids: list[int], max_tokens: int, message: str
    ) -> None:
        async def use(engine: Engine) -> tuple[SampledLine, SampledLine]:
            other = asyncio.create_task(engine.line(prompt(0), max_tokens=8, seed=1))
            await asyncio.sleep(0)
            with pytest.raises(ConfigError, match=message):
                await engine.line(ids, max_tokens=max_tokens, seed=0)
            return await other, await engine.line(prompt(0), max_tokens=8, seed=1)

        other, later = under_test.run(use)
        assert other.ids == later.ids

    # Updates

    def test_logprobs_are_those_of_the_weights_after_an_update(
        self, under_test: EngineUnderTest
    ) -> None:
        written = under_test.run(lambda engine: line_sync_lines(engine, under_test, USUAL))
        assert worst(under_test, [written]) < EXACT

    def test_a_line_has_the_version_of_the_last_sync(self, under_test: EngineUnderTest) -> None:
        async def use(engine: Engine) -> list[int]:
            before = await engine.line(prompt(0), max_tokens=2, seed=1)
            await engine.sync(under_test.model().named_parameters(), version=5)
            after = await engine.line(prompt(0), max_tokens=2, seed=1)
            return [before.policy_version, after.policy_version]

        assert under_test.run(use) == [0, 5]

    def test_an_update_with_lines_in_flight_is_seen_by_those_that_are_asked_for_later(
        self, under_test: EngineUnderTest
    ) -> None:
        async def use(engine: Engine) -> Written:
            crowd = [
                asyncio.create_task(engine.line(prompt(i, 40), max_tokens=20, seed=i))
                for i in range(12)
            ]
            await asyncio.sleep(0.005)
            shake(under_test.model())
            await engine.sync(under_test.model().named_parameters(), version=1)
            written = await trajectory(engine, prompt(0, 40), seed=2)
            await asyncio.gather(*crowd)
            return written

        assert worst(under_test, [under_test.run(use)]) < EXACT

    # Lines that do not end by themselves

    def test_a_cancelled_line_leaves_no_residue(self, under_test: EngineUnderTest) -> None:
        """Lines beside it and after it are as without it; an update is not held up."""

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
            await engine.sync(under_test.model().named_parameters(), version=1)
            return [*written, *await trajectories(engine, 8)]

        expected = under_test.run(alone, options=ENDLESS)
        results = under_test.run(beside, options=ENDLESS)
        assert [ids for ids, _ in results[:2]] == [ids for ids, _ in expected]
        assert worst(under_test, results, ENDLESS) < EXACT

    def test_a_request_may_fill_the_context_to_its_last_token(
        self, under_test: EngineUnderTest
    ) -> None:
        ids = prompt(0, CONTEXT_TOKENS - 2)
        line = under_test.run(lambda one: one.line(ids, max_tokens=2, seed=0), options=ENDLESS)
        assert len(line.ids) == 2

    @pytest.mark.parametrize("asked", ["in flight", "waiting for their turn"])
    def test_lines_end_in_an_error_when_the_engine_is_closed(
        self, under_test: EngineUnderTest, asked: str
    ) -> None:
        async def use() -> list[object]:
            engine = under_test.open(ENDLESS)
            lines = [engine.line(prompt(i), max_tokens=400, seed=i) for i in range(10)]
            waiting = [asyncio.ensure_future(line) for line in lines]
            await asyncio.sleep(0.02 if asked == "in flight" else 0)
            await engine.aclose()
            return await asyncio.gather(*waiting, return_exceptions=True)

        under_test.close()
        assert [type(result) for result in asyncio.run(use())] == [EngineError] * 10

    # Other settings

    def test_logprobs_are_those_of_the_tempered_distribution(
        self, under_test: EngineUnderTest
    ) -> None:
        """Logits are divided by the temperature, then one softmax takes them all, as in TRL."""
        cool = EngineOptions(temperature=0.7)
        written = under_test.run(
            lambda engine: line_sync_lines(engine, under_test, cool), options=cool
        )
        assert worst(under_test, [written], cool) < EXACT

    def test_a_forbidden_id_is_never_sampled_and_the_others_share_its_probability(
        self, under_test: EngineUnderTest
    ) -> None:
        """Injected tokens may be any: they are not sampled."""
        if not self.forbids:
            pytest.skip("this engine forbids no ids")
        results = under_test.run(long_trajectories, options=FORBIDDING)
        sampled = {i for ids, logprobs in results for i, x in zip(ids, logprobs, strict=True) if x}
        assert sampled.isdisjoint(FORBIDDING.forbidden_ids)
        assert worst(under_test, results, FORBIDDING) < EXACT

    def test_an_update_of_the_embedding_alone_reaches_the_output_layer_that_is_tied_to_it(
        self, under_test: EngineUnderTest
    ) -> None:
        tied = EngineOptions(is_tied=True)

        async def use(engine: Engine) -> Written:
            with torch.no_grad():
                model.get_input_embeddings().weight.mul_(1.5)
            await engine.sync(model.named_parameters(), version=1)
            return await trajectory(engine, prompt(0, 40), seed=2)

        model = under_test.model(tied)
        assert worst(under_test, [under_test.run(use, options=tied)], tied) < EXACT

    # The end

    def test_a_closed_engine_can_be_closed_again_and_serves_nothing(
        self, under_test: EngineUnderTest
    ) -> None:
        async def use() -> None:
            engine = under_test.open()
            await engine.line([1], max_tokens=1, seed=0)
            await engine.aclose()
            await engine.aclose()
            with pytest.raises(EngineError, match="closed"):
                await engine.line([1], max_tokens=1, seed=0)

        under_test.close()
        asyncio.run(use())

    def test_a_closed_engine_holds_no_thread_no_file_and_no_tensor(
        self, under_test: EngineUnderTest
    ) -> None:
        """Measured from the second one on: libraries keep a few files for themselves."""

        def resources() -> tuple[list[str], int, int]:
            gc.collect()
            tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
            files = psutil.Process().num_fds()
            threads = sorted(thread.name for thread in threading.enumerate())
            return threads, files, sum(one.numel() >= 1000 for one in tensors)

        async def use() -> Engine:
            engine = under_test.open()
            await engine.sync(under_test.model().named_parameters(), version=1)
            await long_trajectories(engine)
            await engine.aclose()
            return engine

        under_test.close()
        asyncio.run(use())
        before = resources()
        engine = asyncio.run(use())
        assert resources() == before
        assert engine.num_sampled > 0
