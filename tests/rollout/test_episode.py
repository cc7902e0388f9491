"""Laws of a trajectory that is pushed: whoever samples its lines, it is the same trajectory."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attempt_kit import an_attempt
from repl_rl.config.sections import RewardConfig, RunOn, SamplingConfig
from repl_rl.credit.rewards import RunningReward, shaped
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import ConfigError
from repl_rl.records import Line, LineOutcome, OutcomeKind, StopReason, Trajectory
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.rollout.episode import Episode, Session, Step
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON, Part, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

CODEC = ByteCodec()
CONTEXT = 400
ANSWERS = {
    "x = 1": Execution(status=ExecStatus.OK),
    "x": Execution(status=ExecStatus.OK, output="1\n"),
    "y": Execution(status=ExecStatus.ERROR, output="NameError\n", error_type="NameError"),
    "long": Execution(status=ExecStatus.OK, output="9" * 300 + "\n"),
    "die": Execution(status=ExecStatus.DIED, output="gone\n"),
    "1": Execution(status=ExecStatus.OK, value="1"),
}
ATTEMPT = an_attempt(seed=7)
PROMPT = Prompt((Part("# p\n>>>"),))


def make_episode(
    running: RunningReward | None = None, *, kernel: FakeKernel | None = None, **limits: Any
) -> Episode:
    built = TrajectoryBuilder(ATTEMPT, PROMPT, Encoding(PYTHON, CODEC), context_tokens=CONTEXT)
    return Episode(
        built,
        Session(FakeKernel(ANSWERS) if kernel is None else kernel, PYTHON),
        limits=SamplingConfig(**limits),
        seed=ATTEMPT.seed,
        running=running,
    )


def with_episode(
    use: Callable[[Episode], Awaitable[Any]], running: RunningReward | None = None, **limits: Any
) -> Any:
    async def inside() -> Any:
        return await use(make_episode(running, **limits))

    return asyncio.run(inside())


def pushed(lines: list[str], **limits: Any) -> Trajectory:
    """Trajectory that a loop of somebody else's makes of the same lines."""

    async def use(episode: Episode) -> Trajectory:
        engine = ScriptedEngine(CODEC, script(*lines))
        while episode.stop is None:
            line = await engine.line(episode.ids, max_tokens=episode.room, seed=episode.line_seed)
            await episode.take(line.ids, line.logprobs, version=line.policy_version)
        return episode.trajectory()

    made: Trajectory = with_episode(use, **limits)
    return made


def pulled(lines: list[str], **limits: Any) -> Trajectory:
    sampler = LineSampler(
        ScriptedEngine(CODEC, script(*lines)),
        CODEC,
        PYTHON,
        SamplingConfig(**limits),
        context_tokens=CONTEXT,
    )
    return asyncio.run(sampler.sample(ATTEMPT, PROMPT, FakeKernel(ANSWERS)))


SUBMIT = " submit_final_answer(1)\n"


@pytest.mark.parametrize(
    ("lines", "limits", "stop"),
    [
        ([" x = 1\n", " x\n", SUBMIT], {}, StopReason.SUBMITTED),
        ([" x\n", " y\n", " # so\n", "\n", ""], {}, StopReason.EOS),
        ([" if x:\n", "     x\n", "\n", SUBMIT], {}, StopReason.SUBMITTED),
        ([" die\n"], {}, StopReason.KERNEL_DIED),
        ([" x\n"] * 9, {"max_lines": 3}, StopReason.MAX_LINES),
        ([" x" * 40 + "\n"], {"max_line_tokens": 9}, StopReason.MAX_LINE_TOKENS),
        ([" long\n", SUBMIT], {"max_tokens": 90}, StopReason.MAX_TOKENS),
        ([" long\n"] * 9, {}, StopReason.CONTEXT_FULL),
        ([" x\n"] * 99, {"max_tokens": 31, "max_lines": 99}, StopReason.MAX_TOKENS),
        ([" x\n"] * 9, {"time_limit_s": 0.0}, StopReason.TIME_LIMIT),
    ],
)
def test_a_loop_of_somebody_elses_makes_the_same_trajectory(
    lines: list[str], limits: dict[str, Any], stop: StopReason
) -> None:
    theirs, ours = pushed(lines, **limits), pulled(lines, **limits)
    assert theirs == ours
    assert ours.stop_reason is stop


def take(text: str) -> Callable[[Episode], Awaitable[Step]]:
    return lambda episode: episode.take(list(text.encode()))


def test_a_step_says_what_came_back() -> None:
    step = with_episode(take(" x\n"))
    assert step.line.source == " x\n"
    assert step.outcome.kind is OutcomeKind.OK_OUTPUT
    assert step.observation == "1\n>>>"
    assert bytes(step.injected_ids) == b"1\n>>>"
    assert (step.stop, step.done, step.reward) == (None, False, None)


def test_after_the_last_line_nothing_is_injected() -> None:
    step = with_episode(take(SUBMIT))
    assert (step.stop, step.done) == (StopReason.SUBMITTED, True)
    assert (step.observation, step.injected_ids) == ("", ())


def test_without_log_probabilities_a_trajectory_has_zeros() -> None:
    async def use(episode: Episode) -> Trajectory:
        await episode.take(list(b" x\n"))
        return episode.trajectory()

    made = with_episode(use)
    assert made.logprobs == (0.0,) * len(b" x\n1\n>>>")
    assert made.stop_reason is StopReason.CANCELLED
    assert made.loss_mask == (True,) * 3 + (False,) * 5


@pytest.mark.parametrize(
    ("ids", "logprobs", "message"),
    [
        (b"", None, "a line of 0 tokens; expected 1 to 192"),
        (b" x\n1\n", None, "continues after a stop token"),
        (b" x", None, "without a stop token; expected one of"),
        (b" x\n", [0.0], "3 tokens and 1 log-probabilities"),
        (b" " * 193, None, "a line of 193 tokens; expected 1 to 192"),
    ],
)
def test_what_is_no_line_is_refused_and_leaves_no_trace(
    ids: bytes, logprobs: list[float] | None, message: str
) -> None:
    async def use(episode: Episode) -> int:
        with pytest.raises(ConfigError, match=message):
            await episode.take(list(ids), logprobs)
        return len(episode.built.lines)

    assert with_episode(use) == 0


def test_an_episode_that_has_ended_takes_no_line() -> None:
    async def use(episode: Episode) -> None:
        await episode.take(list(SUBMIT.encode()))
        await episode.take(list(b" x\n"))

    with pytest.raises(ConfigError, match=r"the episode has ended \(submitted\)"):
        with_episode(use)


class Slow(FakeKernel):
    """Answers once it may, and says when it was asked."""

    def __init__(self) -> None:
        super().__init__(ANSWERS)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def run(self, source: str) -> Execution:
        self.asked.set()
        await self.may_answer.wait()
        return await super().run(source)


def test_a_line_that_is_under_way_is_alone_and_its_trajectory_that_of_one_line() -> None:
    async def inside() -> Trajectory:
        kernel = Slow()
        episode = make_episode(kernel=kernel)
        first = asyncio.create_task(episode.take(list(b" x\n")))
        await kernel.asked.wait()
        with pytest.raises(ConfigError, match="a line is under way"):
            await episode.take(list(b" y\n"))
        with pytest.raises(ConfigError, match="a line is under way"):
            episode.trajectory()
        kernel.may_answer.set()
        assert (await first).observation == "1\n>>>"
        return episode.trajectory()

    assert bytes(asyncio.run(inside()).completion_ids) == b" x\n1\n>>>"


def test_an_episode_whose_line_was_called_off_has_ended() -> None:
    """Nobody knows how much of the line has run, and no answer stands after it."""

    async def inside() -> Trajectory:
        kernel = Slow()
        episode = make_episode(kernel=kernel)
        first = asyncio.create_task(episode.take(list(b" x\n")))
        await kernel.asked.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        with pytest.raises(ConfigError, match=r"the episode has ended \(cancelled\)"):
            await episode.take(list(b" y\n"))
        return episode.trajectory()

    made = asyncio.run(inside())
    assert bytes(made.completion_ids) == b" x\n"
    assert made.stop_reason is StopReason.CANCELLED


# Rewards of lines as they come


LONG = " # a long line " * 20
"""Both forms must charge alike whatever a line says."""


def lines_of(*kinds: OutcomeKind) -> tuple[Line, ...]:
    return tuple(
        Line(index=i, source=LONG, start=i, stop=i + 1, outcome=LineOutcome(kind=kind))
        for i, kind in enumerate(kinds)
    )


def running(kinds: list[OutcomeKind], config: RewardConfig) -> list[float]:
    rewards, last = RunningReward(config), len(kinds) - 1
    return [rewards.add(line, is_last=line.index == last) for line in lines_of(*kinds)]


def at_the_end(kinds: list[OutcomeKind], config: RewardConfig, made: Trajectory) -> list[float]:
    found = shaped(dataclasses.replace(made, lines=lines_of(*kinds)), None, config)
    return list(found.line_rewards)


def test_the_first_lines_pay_and_the_last_go_free_where_the_cap_binds() -> None:
    """-0.3, -0.3 and -0.1 under a cap of 0.4; at the end each would pay four sevenths."""
    kinds = [OutcomeKind.SYNTAX_ERROR, OutcomeKind.TIMEOUT, OutcomeKind.NAME_ERROR]
    config = RewardConfig()
    assert running(kinds, config) == pytest.approx([-0.3, -0.1, 0.0])
    ended = at_the_end(kinds, config, pulled([SUBMIT]))
    assert ended == pytest.approx([-0.3 * 4 / 7, -0.3 * 4 / 7, -0.1 * 4 / 7])


def test_below_the_cap_both_forms_say_the_same_of_each_line() -> None:
    kinds = [OutcomeKind.NAME_ERROR, OutcomeKind.OK_OUTPUT, OutcomeKind.DUPLICATE]
    assert running(kinds, RewardConfig()) == [-0.1, 0.0, -0.05]
    assert at_the_end(kinds, RewardConfig(), pulled([SUBMIT])) == [-0.1, 0.0, -0.05]


@given(
    kinds=st.lists(st.sampled_from(list(OutcomeKind)), min_size=1, max_size=12),
    cap=st.floats(0, 1),
    potential=st.sampled_from([0.0, 0.8]),
)
def test_both_forms_have_the_same_sum(
    kinds: list[OutcomeKind], cap: float, potential: float
) -> None:
    config = RewardConfig(max_line_charge=min(cap, 0.4), potential=potential)
    made = pulled([SUBMIT])
    assert sum(running(kinds, config)) == pytest.approx(sum(at_the_end(kinds, config, made)))


def test_a_step_pays_what_is_known_by_then() -> None:
    async def use(episode: Episode) -> list[float | None]:
        return [(await episode.take(list(line))).reward for line in (b" y\n", b" x\n", b" (\n")]

    async def refuse(episode: Episode) -> float | None:
        return (await episode.take(list(b" y\n"))).reward

    assert with_episode(use, RunningReward(RewardConfig()))[:2] == [-0.1, 0.0]
    assert with_episode(refuse) is None


# Ids that are forbidden


class Merging(ByteCodec):
    """256 ends the sequence; 300 is two newlines."""

    newline_ids = frozenset({10, 300})
    run_on_ids = frozenset({300})

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        return super().decode([j for i in ids for j in ([10, 10] if i == 300 else [i])])


def test_a_line_with_a_forbidden_id_is_refused() -> None:
    encoding = Encoding(PYTHON, Merging())

    async def take(run_on: RunOn) -> tuple[frozenset[int], str]:
        built = TrajectoryBuilder(ATTEMPT, PROMPT, encoding, context_tokens=CONTEXT)
        limits = SamplingConfig(run_on=run_on)
        episode = Episode(built, Session(FakeKernel(ANSWERS), PYTHON), limits=limits, seed=0)
        return episode.forbidden_ids, (await episode.take([*b" x", 300])).line.source

    assert asyncio.run(take("allow")) == (frozenset(), " x\n\n")
    with pytest.raises(ConfigError, match=r"sample without episode\.forbidden_ids"):
        asyncio.run(take("forbid"))
