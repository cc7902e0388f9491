"""A model goes on from where a live trajectory stands, and says what it thinks of a stored one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attempt_kit import an_attempt
from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.hf import HF
from repl_rl.errors import ConfigError
from repl_rl.models.loading import LoadedModel, load_model
from repl_rl.models.precision import Precision
from repl_rl.records import Line, OutcomeKind, Problem, Reward, Scored, StopReason, Trajectory
from repl_rl.rollout.builder import check_trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import PYTHON, Part, Prompt, TranscriptFormat
from repl_rl.viewer.replay.live import Live
from repl_rl.viewer.replay.model_policy import ModelPolicy, open_policy
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution
from tiny_model import save_tiny_model

SAMPLING = SamplingConfig(
    max_lines=5,
    max_line_tokens=24,
    max_tokens=700,
    max_observation_tokens=64,
    max_in_flight=4,
    device="cpu",
    temperature=0.9,
)
CONFIG = Config(sampling=SAMPLING)
ROW_TOKENS = 800


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def loaded(model: Path) -> LoadedModel:
    return load_model(str(model), device=torch.device("cpu"), precision=Precision())


def answer(source: str) -> Execution:
    """Every other source prints more than an observation may have tokens."""
    is_long = len(source) % 2
    return Execution(status=ExecStatus.OK, output=f"{len(source)} {'ab' * 60 * is_long}\n")


def scene(config: Config = CONFIG, fmt: TranscriptFormat = PYTHON) -> Scene:
    config = replace(config, transcript=fmt.name)
    return Scene(config=config, setup=(), fmt=fmt, origin=None, notes=())


def as_scored(trajectory: Trajectory) -> Scored:
    reward = Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=0.0)
    problem = Problem(id="p", statement="?")
    return Scored(trajectory=trajectory, problem=problem, verdict=None, reward=reward)


def sample(loaded: LoadedModel, *, fmt: TranscriptFormat, prompt: str, number: int) -> list[Scored]:
    """Four trajectories at once, as a run samples them."""

    async def one(sampler: LineSampler, seed: int) -> Scored:
        made = Prompt((Part(prompt),), next_number=number)
        attempt = an_attempt(seed=seed)
        kernel = await FakeKernels(answer).acquire(seed=seed)
        return as_scored(await sampler.sample(attempt, made, kernel))

    async def inside() -> list[Scored]:
        engine = HF().open(CONFIG, loaded, row_tokens=ROW_TOKENS)
        sampler = LineSampler(engine, loaded.codec, fmt, SAMPLING, context_tokens=ROW_TOKENS)
        try:
            return await asyncio.gather(*(one(sampler, seed) for seed in range(1, 5)))
        finally:
            await engine.aclose()

    return asyncio.run(inside())


@pytest.fixture(scope="module")
def recorded(loaded: LoadedModel) -> list[Scored]:
    """Trajectories of five whole lines each."""
    made = sample(loaded, fmt=PYTHON, prompt=">>> # ?\n>>>", number=2)
    found = [one for one in made if one.trajectory.stop_reason is StopReason.MAX_LINES]
    assert len(found) >= 2
    return found


Act = Callable[[ModelPolicy, Live], Awaitable[Any]]


def beside(
    model: Path,
    scored: Scored,
    act: Act,
    *,
    config: Config = CONFIG,
    fmt: TranscriptFormat = PYTHON,
) -> Any:
    """Result of `act(policy, live)`, with the model asked anew."""

    async def inside() -> Any:
        at = scene(config, fmt)
        async with (
            open_policy(at, str(model)) as policy,
            Live(scored, at, FakeKernels(answer)) as live,
        ):
            return await act(policy, live)

    return asyncio.run(inside())


async def stand_before(live: Live, index: int) -> None:
    while live.at < index:
        assert await live.next() is not None


async def continue_from(policy: ModelPolicy, live: Live) -> Trajectory:
    made = await policy.continue_from(live, on_line=lambda line: None)
    check_trajectory(made, maker="a policy")
    return made


@pytest.mark.parametrize("start", range(5))
def test_the_recorded_policy_goes_on_as_it_did(
    model: Path, recorded: list[Scored], start: int
) -> None:
    async def act(policy: ModelPolicy, live: Live) -> Trajectory:
        await stand_before(live, start)
        return await continue_from(policy, live)

    for scored in recorded:
        made, stored = beside(model, scored, act), scored.trajectory
        assert made.completion_ids == stored.completion_ids
        assert made.loss_mask == stored.loss_mask
        assert made.logprobs == pytest.approx(stored.logprobs, abs=1e-5)
        assert [line.source for line in made.lines] == [line.source for line in stored.lines]


def test_some_observation_was_cut_to_its_cap_in_tokens(recorded: list[Scored]) -> None:
    """So that what stands above is shown for these, too."""
    assert any(line.outcome.is_truncated for one in recorded for line in one.trajectory.lines)


def test_each_further_time_it_goes_on_otherwise(model: Path, recorded: list[Scored]) -> None:
    async def act(policy: ModelPolicy, live: Live) -> list[Trajectory]:
        made = []
        for _ in range(3):
            await live.back(0)
            await stand_before(live, 1)
            made.append(await continue_from(policy, live))
        return made

    first, *others = beside(model, recorded[0], act)
    assert first.completion_ids == recorded[0].trajectory.completion_ids
    assert len({one.completion_ids for one in (first, *others)}) == 3


def test_the_first_time_is_that_of_each_trajectory(model: Path, recorded: list[Scored]) -> None:
    async def act(policy: ModelPolicy, live: Live) -> Trajectory:
        await continue_from(policy, live)
        async with Live(recorded[1], scene(), FakeKernels(answer)) as other:
            return await continue_from(policy, other)

    assert beside(model, recorded[0], act).completion_ids == recorded[1].trajectory.completion_ids


def test_lines_of_the_policy_are_those_of_the_live_trajectory(
    model: Path, recorded: list[Scored]
) -> None:
    heard: list[str] = []

    async def act(policy: ModelPolicy, live: Live) -> tuple[Trajectory, list[str], bool]:
        await stand_before(live, 2)
        await live.edit("changed = 1")
        made = await policy.continue_from(live, on_line=lambda line: heard.append(line.source))
        return made, [line.source for line in live.lines], live.is_branch

    made, sources, is_branch = beside(model, recorded[0], act)
    assert sources == [line.source for line in made.lines if is_whole(line.outcome.kind)]
    assert heard == sources[3:]
    assert sources[2] == " changed = 1\n"
    assert is_branch


def is_whole(kind: OutcomeKind) -> bool:
    return kind is not OutcomeKind.CUT


def test_what_goes_on_after_a_line_by_hand_is_trained_where_the_policy_wrote(
    model: Path, recorded: list[Scored], loaded: LoadedModel
) -> None:
    async def act(policy: ModelPolicy, live: Live) -> Trajectory:
        await live.edit("1+1")
        return await continue_from(policy, live)

    made = beside(model, recorded[0], act)
    by_hand, first = made.lines[:2]
    assert loaded.codec.decode(made.completion_ids[: by_hand.stop]) == " 1+1\n"
    assert set(made.logprobs[: by_hand.stop]) == {0.0}
    assert all(logprob < 0 for logprob in made.logprobs[first.start : first.stop])


async def call_off(policy: ModelPolicy, live: Live) -> None:
    """At its first line."""

    def cancel(_: Line) -> None:
        task.cancel()

    task = asyncio.create_task(policy.continue_from(live, on_line=cancel))
    with pytest.raises(asyncio.CancelledError):
        await task


def test_called_off_it_leaves_the_lines_that_ended_and_asks_for_no_kernel(
    model: Path, recorded: list[Scored]
) -> None:
    async def act(policy: ModelPolicy, live: Live) -> tuple[int, int]:
        await call_off(policy, live)
        assert isinstance(live._kernels, FakeKernels)
        return live.at, len(live._kernels.kernels)

    assert beside(model, recorded[0], act) == (1, 1)


def test_called_off_it_can_be_asked_again(model: Path, recorded: list[Scored]) -> None:
    async def act(policy: ModelPolicy, live: Live) -> Trajectory:
        await call_off(policy, live)
        await live.back(live.at)
        return await continue_from(policy, live)

    assert len(beside(model, recorded[0], act).lines) == 5


def test_a_line_that_the_policy_did_not_end_is_never_run(
    model: Path, recorded: list[Scored]
) -> None:
    short = replace(SAMPLING, max_line_tokens=1)

    async def act(policy: ModelPolicy, live: Live) -> tuple[Trajectory, list[str]]:
        made = await continue_from(policy, live)
        await live.back(live.at)
        assert isinstance(live._kernels, FakeKernels)
        return made, live._kernels.kernels[-1].sources

    for scored in recorded:
        made, sources = beside(model, scored, act, config=replace(CONFIG, sampling=short))
        if made.stop_reason is StopReason.MAX_LINE_TOKENS:
            assert len(made.lines) > len(sources)
            return
    pytest.fail("no line was cut")


def test_lines_by_hand_that_follow_are_numbered_on(model: Path, loaded: LoadedModel) -> None:
    made = sample(loaded, fmt=IPYTHON, prompt="In [7]:", number=7)
    scored = next(one for one in made if one.trajectory.stop_reason is StopReason.MAX_LINES)

    async def act(policy: ModelPolicy, live: Live) -> tuple[str, str]:
        await continue_from(policy, live)
        shown = live.lines[-1].text_after.rpartition("\n")[2]
        ran = await live.edit("x = 1")
        assert ran is not None
        return shown, ran.text_after.rpartition("\n")[2]

    before, behind = beside(model, scored, act, fmt=IPYTHON)
    number = int(before.removeprefix("In [").removesuffix("]:"))
    assert behind == f"In [{number + 1}]:"


def test_where_a_budget_is_used_up_that_is_said(model: Path, recorded: list[Scored]) -> None:
    small = replace(CONFIG, sampling=replace(SAMPLING, max_tokens=4))

    async def act(policy: ModelPolicy, live: Live) -> Trajectory:
        await stand_before(live, 2)
        return await continue_from(policy, live)

    with pytest.raises(ConfigError, match=r"sampling\.max_tokens = 4 leaves none"):
        beside(model, recorded[0], act, config=small)


def test_where_the_context_is_used_up_that_is_said(tmp_path: Path, recorded: list[Scored]) -> None:
    small = save_tiny_model(tmp_path / "small", context_tokens=16)

    async def act(policy: ModelPolicy, live: Live) -> Trajectory:
        await stand_before(live, 4)
        return await continue_from(policy, live)

    with pytest.raises(ConfigError, match="holds 16"):
        beside(small, recorded[0], act)


# Scores


def test_it_finds_what_it_sampled_as_likely_as_it_did(model: Path, recorded: list[Scored]) -> None:
    async def act(policy: ModelPolicy, live: Live) -> tuple[float, ...]:
        return policy.score(live.trajectory)

    for scored in recorded:
        trajectory, found = scored.trajectory, beside(model, scored, act)
        assert len(found) == len(trajectory.completion_ids)
        for logprob, was, is_sampled in zip(
            found, trajectory.logprobs, trajectory.loss_mask, strict=True
        ):
            assert not is_sampled or abs(logprob - was) < 1e-5


def test_other_weights_find_it_otherwise(tmp_path: Path, recorded: list[Scored]) -> None:
    other = save_tiny_model(tmp_path / "other", seed=1)

    async def act(policy: ModelPolicy, live: Live) -> tuple[float, ...]:
        return policy.score(live.trajectory)

    found, was = beside(other, recorded[0], act), recorded[0].trajectory.logprobs
    assert max(abs(a - b) for a, b in zip(found, was, strict=True)) > 1e-3


@pytest.mark.parametrize("spoil", ["completion_ids", "prompt_ids"])
def test_tokens_of_another_vocabulary_are_not_scored(
    model: Path, recorded: list[Scored], spoil: str
) -> None:
    ids = getattr(recorded[0].trajectory, spoil)
    foreign = {"completion_ids": tuple(i + 1 for i in ids), "prompt_ids": (10**6, *ids)}[spoil]
    spoilt: dict[str, Any] = {spoil: foreign}
    scored = as_scored(replace(recorded[0].trajectory, **spoilt))

    async def act(policy: ModelPolicy, live: Live) -> tuple[float, ...]:
        return policy.score(live.trajectory)

    with pytest.raises(ConfigError, match="decodes these tokens to other texts"):
        beside(model, scored, act)


def test_one_that_does_not_fit_is_not_scored(tmp_path: Path, recorded: list[Scored]) -> None:
    small = save_tiny_model(tmp_path / "small", context_tokens=16)

    async def act(policy: ModelPolicy, live: Live) -> tuple[float, ...]:
        return policy.score(live.trajectory)

    with pytest.raises(ConfigError, match="give a model with more"):
        beside(small, recorded[0], act)


def test_a_model_that_is_not_there_is_told_before_anything_runs(recorded: list[Scored]) -> None:
    with pytest.raises(ConfigError, match="no such run or folder"):
        beside(Path("/no/such"), recorded[0], continue_from)
