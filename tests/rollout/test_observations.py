"""Tokens that count as answers of the interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from repl_rl.records import Branch, OutcomeKind, Scored, Thought, Trajectory
from repl_rl.rollout.observations import Answers
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OK, ERROR, SILENT = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR, OutcomeKind.OK_SILENT
ANSWERS = Answers(Encoding(PYTHON, ByteCodec()), setup=())


def answers(scored: Scored, setup: Sequence[str] = ()) -> list[str]:
    """The texts of the answers, and the mask is nothing but their spans."""
    found = dataclasses.replace(ANSWERS, setup=setup)
    ids, spans = scored.trajectory.completion_ids, list(found.spans(scored))
    inside = {at for span in spans for at in range(span.start, span.stop)}
    assert found.mask(scored) == [at in inside for at in range(len(ids))]
    return [bytes(ids[span.start : span.stop]).decode() for span in spans]


@pytest.fixture
def scored(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> Callable[..., Scored]:
    """`scored(parts)`, as `make_trajectory` has them."""
    return lambda parts: make_scored(make_trajectory(parts), 1.0)


def test_answers_are_outputs_without_the_prompt_behind_them(
    scored: Callable[..., Scored],
) -> None:
    """Silence has no token, and nothing stands behind the last line."""
    parts = [(" 2\n", OK, "2\n>>>"), (" x = 1\n", SILENT, ">>>"), (" q\n", ERROR, "No q\n>>>")]
    assert answers(scored([*parts, (" 5\n", OK, None)])) == ["2\n", "No q\n"]


def test_nothing_is_an_answer_from_a_line_that_names_a_clock_on(
    scored: Callable[..., Scored],
) -> None:
    parts = [(" 1\n", OK, "1\n>>>"), (" time.time()\n", OK, "17.5\n>>>"), (" 2\n", OK, "2\n>>>")]
    assert answers(scored(parts)) == ["1\n"]
    assert answers(scored(parts), setup=["import uuid"]) == []


def test_an_answer_ends_at_the_mark_of_what_was_cut(scored: Callable[..., Scored]) -> None:
    """Without the note that it was cut, the same text is an output as any other."""
    text = "abc\n... [12 characters omitted] ...\nz\n"
    whole = scored([(" 1\n", OK, f"{text}>>>"), (" 2\n", OK, None)])
    assert answers(whole) == [text]
    first, last = whole.trajectory.lines
    cut = dataclasses.replace(first.outcome, is_truncated=True)
    lines = (dataclasses.replace(first, outcome=cut), last)
    trajectory = dataclasses.replace(whole.trajectory, lines=lines)
    assert answers(dataclasses.replace(whole, trajectory=trajectory)) == ["abc\n"]


def test_copied_answers_belong_to_the_trajectory_that_they_were_copied_from(
    scored: Callable[..., Scored],
) -> None:
    """The answer to the last copied line is a copy, too."""
    parts = [(" 1\n", OK, "1\n>>>"), (" 2\n", OK, "2\n>>>"), (" 3\n", OK, "3\n>>>")]
    whole = scored(parts)
    branch = Branch(sibling_index=0, num_lines=2, seed=1)
    trajectory = dataclasses.replace(whole.trajectory, branch=branch)
    assert answers(whole) == ["1\n", "2\n", "3\n"]
    assert answers(dataclasses.replace(whole, trajectory=trajectory)) == ["3\n"]


def test_what_asks_for_a_line_behind_a_thought_is_no_answer(
    scored: Callable[..., Scored],
) -> None:
    whole = scored([(" 1\n", OK, "1\n>>>")])
    lines = tuple(
        dataclasses.replace(line, start=line.start + 5, stop=line.stop + 5)
        for line in whole.trajectory.lines
    )
    trajectory = dataclasses.replace(
        whole.trajectory,
        completion_ids=(*b"t</>\n", *whole.trajectory.completion_ids),
        thought=Thought(source="t</", stop=3, shown="t</>\n"),
        lines=lines,
    )
    assert answers(dataclasses.replace(whole, trajectory=trajectory)) == ["1\n"]


def test_a_message_that_answers_a_turn_has_its_answer_between_the_words_of_the_template(
    scored: Callable[..., Scored],
) -> None:
    """The model ended its turn itself in the second line, so the template does not."""
    chat = dataclasses.replace(PYTHON, closing="\n\nuser:", reopening="\n\nyou:")
    codec = dataclasses.replace(ANSWERS.encoding)
    whole = scored([(" 1\n", OK, "\n\nuser:1\n>>>\n\nyou:")])
    line = whole.trajectory.lines[0]
    outcome = dataclasses.replace(line.outcome, observation="1\n")
    trajectory = dataclasses.replace(
        whole.trajectory, lines=(dataclasses.replace(line, outcome=outcome),)
    )
    object.__setattr__(codec, "format", chat)
    found = Answers(codec, setup=())
    (span,) = found.spans(dataclasses.replace(whole, trajectory=trajectory))
    assert bytes(trajectory.completion_ids[span.start : span.stop]) == b"1\n"


def test_tokens_that_do_not_read_as_the_output_are_no_answer(
    scored: Callable[..., Scored],
) -> None:
    whole = scored([(" 1\n", OK, "1\n>>>"), (" 2\n", OK, None)])
    line = whole.trajectory.lines[0]
    other = dataclasses.replace(line.outcome, observation="one\n")
    lines = (dataclasses.replace(line, outcome=other), whole.trajectory.lines[1])
    trajectory = dataclasses.replace(whole.trajectory, lines=lines)
    assert answers(dataclasses.replace(whole, trajectory=trajectory)) == []
