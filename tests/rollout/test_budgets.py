"""Laws of how a trajectory ends: its named reasons, and the budgets that nothing exceeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, StopReason, Trajectory
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

CODEC = ByteCodec()
Play = Callable[..., Trajectory]


def printed(output: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=output)


def kinds(trajectory: Trajectory) -> list[OutcomeKind]:
    return [line.outcome.kind for line in trajectory.lines]


# How a trajectory ends


def test_an_end_of_sequence_token_ends_it_and_is_trained(play: Play) -> None:
    trajectory = play(" x", max_lines=5)
    assert trajectory.stop_reason is StopReason.EOS
    assert trajectory.completion_ids == (32, 120, 256)
    assert trajectory.loss_mask == (True, True, True)


def test_a_line_cut_by_the_end_of_sequence_is_not_run(play: Play) -> None:
    kernel = FakeKernel()
    play(" submit_final_answer(1)", kernel=kernel)
    assert kernel.sources == []


@pytest.mark.parametrize("lines", [(" x",), (" abcdefgh\n",)], ids=["end", "limit"])
def test_a_line_without_its_newline_is_called_cut(play: Play, lines: tuple[str, ...]) -> None:
    assert kinds(play(*lines, max_line_tokens=4)) == [OutcomeKind.CUT]


def test_max_lines_ends_it_without_a_last_observation(play: Play) -> None:
    trajectory = play(" x\n", " x\n", answers={"x": printed("1\n")}, max_lines=1)
    assert trajectory.stop_reason is StopReason.MAX_LINES
    assert CODEC.decode(trajectory.completion_ids) == " x\n"


def test_the_time_limit_ends_it(play: Play) -> None:
    trajectory = play(" x\n", " x\n", time_limit_s=-1.0)
    assert (trajectory.stop_reason, len(trajectory.lines)) == (StopReason.TIME_LIMIT, 1)


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (ExecStatus.KILLED, OutcomeKind.KILLED, StopReason.KERNEL_KILLED),
        (ExecStatus.DIED, OutcomeKind.DIED, StopReason.KERNEL_DIED),
    ],
)
def test_the_end_of_a_kernel_ends_it(
    play: Play, status: ExecStatus, kind: OutcomeKind, reason: StopReason
) -> None:
    trajectory = play(" boom\n", " x\n", answers={"boom": Execution(status=status)})
    assert (kinds(trajectory), trajectory.stop_reason) == ([kind], reason)


def test_a_kernel_that_ends_over_a_submission_ends_the_trajectory(play: Play) -> None:
    trajectory = play(" submit_final_answer(a)\n", " x\n", kernel=FakeKernel(dies_at={"a"}))
    assert (trajectory.submission, trajectory.stop_reason) == (None, StopReason.KERNEL_DIED)


def test_a_timeout_goes_on(play: Play) -> None:
    answers = {"slow": Execution(status=ExecStatus.TIMEOUT, output="KeyboardInterrupt\n")}
    trajectory = play(" slow\n", "\n", answers=answers, max_lines=2)
    assert kinds(trajectory) == [OutcomeKind.TIMEOUT, OutcomeKind.BLANK]


# Budgets


def test_injected_tokens_count_against_the_budget(play: Play) -> None:
    """3 sampled + 5 injected leave 4 of 12 tokens, and the line is cut there."""
    answers = {"x": printed("1\n")}
    trajectory = play(" x\n", " abcdefgh\n", answers=answers, max_tokens=12)
    assert CODEC.decode(trajectory.completion_ids) == " x\n1\n>>> abc"
    assert trajectory.stop_reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("max_tokens", range(2, 24))
def test_a_completion_never_exceeds_max_tokens(play: Play, max_tokens: int) -> None:
    answers = {"x": printed("12345\n")}
    trajectory = play(" x\n", " x\n", " x\n", answers=answers, max_tokens=max_tokens)
    assert len(trajectory.completion_ids) <= max_tokens


def test_an_observation_that_leaves_no_room_for_a_token_ends_it(play: Play) -> None:
    """3 sampled + 5 injected fill 8 tokens exactly: nothing could answer."""
    trajectory = play(" x\n", " y\n", answers={"x": printed("1\n")}, max_tokens=8)
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    assert CODEC.decode(trajectory.completion_ids) == " x\n"


def test_an_observation_that_leaves_one_token_is_shown(play: Play) -> None:
    trajectory = play(" x\n", " y\n", answers={"x": printed("1\n")}, max_tokens=9)
    assert CODEC.decode(trajectory.completion_ids) == " x\n1\n>>> "


def test_a_full_context_is_judged_by_prompt_and_completion(play: Play) -> None:
    """3 of the prompt + 3 sampled + 5 injected + 1: the twelfth token is the last."""
    answers = {"x": printed("1\n")}
    trajectory = play(" x\n", " abc\n", answers=answers, context_tokens=12)
    assert trajectory.stop_reason is StopReason.CONTEXT_FULL
    assert len(trajectory.prompt_ids) + len(trajectory.completion_ids) == 12


@pytest.mark.parametrize("context_tokens", [1, 3])
def test_a_prompt_that_fills_the_context_is_a_config_error(play: Play, context_tokens: int) -> None:
    message = rf"problem p has 3 tokens, the model's context holds {context_tokens}"
    with pytest.raises(ConfigError, match=message):
        play(" x\n", context_tokens=context_tokens)


def test_a_line_over_its_own_limit_is_not_called_a_full_budget(play: Play) -> None:
    """4 of 100 tokens are used: neither the budget nor the context is what ended it."""
    trajectory = play(" abcdefgh\n", max_line_tokens=4, max_tokens=100)
    assert len(trajectory.completion_ids) == 4
    assert trajectory.stop_reason is StopReason.MAX_LINE_TOKENS


def test_a_line_that_meets_both_limits_at_once_is_called_a_full_budget(play: Play) -> None:
    trajectory = play(" abcdefgh\n", max_line_tokens=4, max_tokens=4)
    assert trajectory.stop_reason is StopReason.MAX_TOKENS


def test_an_observation_is_cut_to_its_token_cap(play: Play) -> None:
    answers = {"x": printed("a" * 300 + "\n")}
    trajectory = play(" x\n", "\n", answers=answers, max_observation_tokens=100, max_lines=2)
    outcome = trajectory.lines[0].outcome
    assert len(outcome.observation.encode()) <= 100
    assert "characters omitted" in outcome.observation
    assert outcome.is_truncated


@pytest.mark.parametrize("letter", ["a", "\u4e2d", "\n", "\U0001f600"])
def test_the_smallest_cap_that_a_config_allows_holds(play: Play, letter: str) -> None:
    """The words that tell of a cut are 33 bytes of the 64."""
    answers = {"x": printed(letter * 300 + "\n")}
    trajectory = play(" x\n", "\n", answers=answers, max_observation_tokens=64, max_lines=2)
    assert len(trajectory.lines[0].outcome.observation.encode()) <= 64


def test_a_cut_observation_fills_its_cap(play: Play) -> None:
    """64 bytes: 20 and a newline, 33 of words, 9 and a newline."""
    answers = {"x": printed("a" * 300 + "\n")}
    trajectory = play(" x\n", "\n", answers=answers, max_observation_tokens=64, max_lines=2)
    assert trajectory.lines[0].outcome.observation == (
        f"{'a' * 20}\n... [271 characters omitted] ...\n{'a' * 9}\n"
    )


def test_an_observation_within_its_cap_is_whole(play: Play) -> None:
    answers = {"x": printed("a" * 99 + "\n")}
    trajectory = play(" x\n", "\n", answers=answers, max_observation_tokens=100, max_lines=2)
    outcome = trajectory.lines[0].outcome
    assert (len(outcome.observation), outcome.is_truncated) == (100, False)
