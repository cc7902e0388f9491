"""Laws of what ran live as tokens: recorded ids are kept where they can be, and nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixture_types import MakeScene, MakeScored, MakeTrajectory, Record
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, StopReason, Trajectory
from repl_rl.rollout.builder import check_trajectory
from repl_rl.runs.trajectory_file import append, places
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.replay.branch import as_trajectory, begin, is_same_vocabulary
from repl_rl.viewer.replay.live import Live
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution

ANSWERS = {
    "1+1": Execution(status=ExecStatus.OK, output="2\n"),
    "3": Execution(status=ExecStatus.OK, value="3"),
    "long": Execution(status=ExecStatus.OK, output="a" * 200 + "\n"),
    "die": Execution(status=ExecStatus.DIED),
    "kill": Execution(status=ExecStatus.KILLED),
}
LINES = (" # think\n", " 1+1\n", " submit_final_answer(3)\n")
After = Callable[..., Any]
"""What it returns is what the function that it calls does."""


class Shifted(ByteCodec):
    """Bytes under other numbers: another vocabulary, whose ids tell which of the two made them."""

    newline_ids = frozenset({1010})

    def encode(self, text: str, *, is_trusted: bool = False, is_first: bool = False) -> list[int]:
        return [1000 + byte for byte in text.encode()]

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        return bytes(i - 1000 for i in ids if 1000 <= i < 1256).decode(errors="replace")


@pytest.fixture
def after(record: Record, a_scene: MakeScene) -> After:
    """`after(act, *lines)`: what `act(live)` returns beside a recorded trajectory in bytes."""

    def run(
        act: Callable[[Live], Awaitable[object]],
        *lines: str,
        answers: Mapping[str, Execution] = ANSWERS,
        **limits: Any,
    ) -> Any:
        async def inside() -> object:
            scored = await record(lines, FakeKernels(ANSWERS), **limits)
            async with Live(scored, a_scene(), FakeKernels(answers)) as live:
                return await act(live)

        return asyncio.run(inside())

    return run


async def all_lines(live: Live) -> None:
    await live.run_to(lambda line: False)


def checked(trajectory: Trajectory) -> Trajectory:
    check_trajectory(trajectory, maker="a branch")
    return trajectory


def test_lines_that_ran_as_recorded_are_the_recorded_tokens(after: After) -> None:
    async def act(live: Live) -> object:
        await all_lines(live)
        return begin(live, ByteCodec()).build(StopReason.SUBMITTED), live.trajectory

    built, recorded = after(act, *LINES)
    assert checked(built).completion_ids == recorded.completion_ids
    assert built.logprobs == recorded.logprobs
    assert built.loss_mask == recorded.loss_mask
    assert (built.prompt_ids, built.policy_version) == (recorded.prompt_ids, 0)
    assert built.submission == "3"


def test_another_vocabulary_has_all_of_it_encoded_and_no_log_probability(after: After) -> None:
    async def act(live: Live) -> object:
        await all_lines(live)
        return begin(live, Shifted()).build(StopReason.SUBMITTED), live.trajectory

    built, recorded = after(act, *LINES)
    assert Shifted().decode(checked(built).completion_ids) == ByteCodec().decode(
        recorded.completion_ids
    )
    assert min(built.prompt_ids + built.completion_ids) >= 1000
    assert set(built.logprobs) == {0.0}


def test_a_line_by_hand_is_encoded_and_what_stood_before_it_is_kept(after: After) -> None:
    async def act(live: Live) -> object:
        await live.next()
        await live.edit("1+1")
        return begin(live, ByteCodec())

    built = after(act, *LINES)
    assert bytes(built.ids) == b">>> # think\n>>> 1+1\n2\n>>>"
    assert [line.source for line in built.lines] == [" # think\n", " 1+1\n"]


def test_an_output_that_is_another_here_is_what_stands_there(after: After) -> None:
    async def act(live: Live) -> object:
        await live.next()
        return begin(live, ByteCodec())

    other = {"1+1": Execution(status=ExecStatus.OK, output="3\n")}
    assert bytes(after(act, " 1+1\n", answers=other).ids) == b">>> 1+1\n3\n>>>"


def test_an_output_that_a_cap_in_tokens_had_cut_stays_cut(after: After) -> None:
    async def act(live: Live) -> object:
        await all_lines(live)
        recorded = live.trajectory
        return begin(live, ByteCodec()).build(StopReason.EOS), recorded, live.lines

    lines = (" long\n", " 1+1\n", " # end\n")
    built, recorded, ran = after(act, *lines, max_observation_tokens=64, max_lines=3)
    assert len(ran[0].outcome.observation) == 201
    # The prompt after the last line was not asked for when it was recorded.
    assert checked(built).completion_ids == (*recorded.completion_ids, *b">>>")
    assert built.lines[0].outcome == recorded.lines[0].outcome


def test_a_prompt_that_does_not_fit_is_refused(after: After) -> None:
    async def act(live: Live) -> object:
        return begin(live, ByteCodec(), context_tokens=3)

    with pytest.raises(ConfigError, match="has 3 tokens"):
        after(act, *LINES)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (LINES, StopReason.SUBMITTED),
        (LINES[:2], StopReason.EOS),
        ((" die\n",), StopReason.KERNEL_DIED),
        ((" kill\n",), StopReason.KERNEL_KILLED),
    ],
)
def test_what_ran_is_a_whole_trajectory_with_its_end(
    after: After, lines: tuple[str, ...], reason: StopReason
) -> None:
    async def act(live: Live) -> object:
        await all_lines(live)
        return as_trajectory(live)

    assert checked(after(act, *lines)).stop_reason is reason


def test_a_branch_that_is_kept_can_be_replayed(
    after: After, make_scored: MakeScored, a_scene: MakeScene, tmp_path: Path
) -> None:
    async def act(live: Live) -> object:
        await live.next()
        await live.edit("x = '\u221a'")
        await live.edit("1+1")
        return as_trajectory(live)

    path = tmp_path / "branch.jsonl"
    append(path, [make_scored(checked(after(act, *LINES)), 1.0)])

    async def again() -> list[tuple[str, OutcomeKind]]:
        (place,) = places(path)
        async with Live(place.read(), a_scene(), FakeKernels(ANSWERS)) as live:
            await all_lines(live)
            return [(line.source, line.outcome.kind) for line in live.lines]

    assert asyncio.run(again()) == [
        (" # think\n", OutcomeKind.COMMENT),
        (" x = '\u221a'\n", OutcomeKind.OK_SILENT),
        (" 1+1\n", OutcomeKind.OK_OUTPUT),
    ]


def test_a_vocabulary_is_known_by_the_texts_of_lines_and_without_any_by_the_prompt(
    make_trajectory: MakeTrajectory,
) -> None:
    some = make_trajectory([(" 1+1\n", OutcomeKind.OK_OUTPUT, "2\n>>>")])
    for trajectory in (some, make_trajectory([])):
        assert is_same_vocabulary(trajectory, ByteCodec())
        assert not is_same_vocabulary(trajectory, Shifted())
