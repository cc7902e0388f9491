"""Laws of a trajectory in the making: its lists grow together, and a wrong one is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from attempt_kit import an_attempt
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.errors import ConfigError
from repl_rl.records import Line, LineOutcome, OutcomeKind, StopReason, Trajectory
from repl_rl.rollout.builder import TrajectoryBuilder, check_trajectory
from repl_rl.transcript.encoding import Encoding, prompt_ids
from repl_rl.transcript.format import PYTHON, Part, Prompt, span_mask
from repl_rl.transcript.tokens import ByteCodec

MakeTrajectory = Callable[..., Trajectory]
OK = OutcomeKind.OK_OUTPUT


class Marking(ByteCodec):
    """Writes down where an encoding begins: 300 before plain text, 301 before a template's."""

    def encode(self, text: str, *, is_trusted: bool = False, is_first: bool = False) -> list[int]:
        return [300 + 10 * is_trusted + 100 * is_first, *text.encode()]

    def encode_template(self, text: str, *, is_first: bool = False) -> list[int]:
        return [301 + 100 * is_first, *text.encode()]


def new_builder(prompt: str = ">>>") -> TrajectoryBuilder:
    attempt = an_attempt(group_index=2, sibling_index=1, seed=9)
    encoding = Encoding(PYTHON, ByteCodec())
    return TrajectoryBuilder(attempt, Prompt.plain(prompt), encoding, context_tokens=4096)


def piece(text: str, *logprobs: float, version: int = 0) -> SampledLine:
    ids = tuple(text.encode())
    end = LineEnd.NEWLINE if text.endswith("\n") else LineEnd.LENGTH
    return SampledLine(ids=ids, logprobs=logprobs, end=end, policy_version=version)


# Building


def test_each_part_of_a_prompt_is_encoded_alone_and_trusted() -> None:
    prompt = Prompt((Part("<", is_template=True), Part("a"), Part("b")))
    assert prompt_ids(prompt, Marking()) == [401, 60, 310, 97, 310, 98]


def test_a_prompt_is_no_part_of_the_completion() -> None:
    built = new_builder("ab")
    assert (built.ids, built.num_prompt, built.num_completion) == ([97, 98], 2, 0)


def test_a_line_of_several_pieces_is_one_line() -> None:
    built = new_builder()
    text = built.add_line(piece(" 1", -1.0, -2.0, version=3), piece("\n", -3.0, version=4))
    trajectory = built.build(StopReason.EOS)
    outcome = LineOutcome(kind=OutcomeKind.CUT)
    assert text == " 1\n"
    assert trajectory.lines == (Line(index=0, source=" 1\n", start=0, stop=3, outcome=outcome),)
    assert trajectory.logprobs == (-1.0, -2.0, -3.0)


def test_a_character_that_two_pieces_share_is_whole_in_the_text() -> None:
    half, rest = (
        SampledLine(ids=ids, logprobs=(-1.0,), end=LineEnd.LENGTH, policy_version=0)
        for ids in ((0xC3,), (0xA9,))
    )
    assert new_builder().add_line(half, rest) == "\u00e9"


def test_what_is_built_is_all_that_was_added_in_order() -> None:
    built = new_builder()
    built.add_line(piece("a\n", -1.0, -2.0, version=5))
    built.set_outcome(LineOutcome(kind=OK, observation="1\n"))
    built.inject([49, 10])
    built.add_line(piece("b", -3.0, version=6))
    built.submission = "1"
    assert built.build(StopReason.SUBMITTED) == Trajectory(
        problem_id="p",
        group_index=2,
        sibling_index=1,
        policy_version=6,
        seed=9,
        prompt_text=">>>",
        prompt_ids=(62, 62, 62),
        completion_ids=(97, 10, 49, 10, 98),
        loss_mask=(True, True, False, False, True),
        logprobs=(-1.0, -2.0, 0.0, 0.0, -3.0),
        lines=(
            Line(
                index=0,
                source="a\n",
                start=0,
                stop=2,
                outcome=LineOutcome(kind=OK, observation="1\n"),
            ),
            Line(
                index=1,
                source="b",
                start=4,
                stop=5,
                outcome=LineOutcome(kind=OutcomeKind.CUT),
            ),
        ),
        stop_reason=StopReason.SUBMITTED,
        submission="1",
    )


def test_what_was_built_does_not_grow_with_the_builder() -> None:
    built = new_builder()
    built.add_line(piece("a", -1.0))
    first = built.build(StopReason.CANCELLED)
    built.inject([10])
    assert (len(first.completion_ids), len(built.build(StopReason.EOS).completion_ids)) == (1, 2)


def test_tokens_that_stand_before_the_first_line_may_be_injected() -> None:
    built = new_builder()
    built.inject([33])
    built.add_line(piece("a", -1.0))
    trajectory = built.build(StopReason.EOS)
    check_trajectory(trajectory, maker="Mine")
    assert span_mask(trajectory) == [False, True]


# What is refused


def test_a_trajectory_as_it_should_be_is_not_refused(make_trajectory: MakeTrajectory) -> None:
    check_trajectory(make_trajectory([(" x\n", OK, "1\n>>>"), ("y", OK, None)]), maker="Mine")


def cut(name: str) -> Callable[[Trajectory], Trajectory]:
    return lambda it: replace(it, **{name: getattr(it, name)[:-1]})


def changed(**values: Any) -> Callable[[Trajectory], Trajectory]:
    return lambda it: replace(it, **values)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut("loss_mask"), "4 mask entries and 5 logprobs for 5 tokens"),
        (cut("logprobs"), "5 mask entries and 4 logprobs for 5 tokens"),
        (cut("completion_ids"), "5 mask entries and 5 logprobs for 4 tokens"),
        (changed(loss_mask=(True,) * 5), "a loss mask that disagrees with its lines"),
        (
            changed(loss_mask=(False, True, True, False, False)),
            "a loss mask that disagrees with its lines",
        ),
        (
            changed(logprobs=(-1.0, -1.0, -1.0, 0.0, -0.5)),
            "log-probabilities at tokens that were not sampled",
        ),
        (changed(loss_mask=(False,) * 5, logprobs=(0.0,) * 5, lines=()), "no token to train"),
    ],
)
def test_a_trajectory_that_contradicts_itself_is_refused(
    make_trajectory: MakeTrajectory, spoil: Callable[[Trajectory], Trajectory], message: str
) -> None:
    trajectory = spoil(make_trajectory([(" x\n", OK, "1\n")]))
    with pytest.raises(ConfigError) as refused:
        check_trajectory(trajectory, maker="Mine")
    assert (
        str(refused.value) == f"Mine made a trajectory with {message}; see repl_rl.rollout.builder"
    )


def test_a_trajectory_without_a_token_is_refused(make_trajectory: MakeTrajectory) -> None:
    with pytest.raises(ConfigError, match="no token to train"):
        check_trajectory(make_trajectory([]), maker="Mine")


def test_a_line_beyond_the_tokens_is_refused(make_trajectory: MakeTrajectory) -> None:
    trajectory = make_trajectory([(" x\n", OK, None)])
    lines = (replace(trajectory.lines[0], stop=4),)
    with pytest.raises(ConfigError, match="lines that overlap or lie beyond its tokens"):
        check_trajectory(replace(trajectory, lines=lines), maker="Mine")
