"""Laws of the views of one trajectory: everything is shown, it fits, and nothing is obeyed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from rich.text import Text

from attempt_kit import an_attempt
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.records import (
    LineOutcome,
    OutcomeKind,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.show.rollout_view import (
    LineStream,
    ending_rows,
    result_rows,
    token_rows,
    token_table,
    visible,
)

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OK = OutcomeKind.OK_OUTPUT


def texts(trajectory: Trajectory) -> list[str]:
    return [ByteCodec().decode([i]) for i in trajectory.completion_ids]


def plain(rows: Iterable[Text]) -> list[str]:
    return [row.plain.rstrip() for row in rows]


def test_sampled_and_injected_tokens_are_told_apart_without_colour(
    make_trajectory: MakeTrajectory,
) -> None:
    trajectory = make_trajectory([(" 1\n", OK, "1\n>>>"), (" 2\n", OK, None)])
    assert plain(token_rows(trajectory, texts(trajectory), width=80)) == [
        r"    0 + | |1|\n|",
        r"    3 . |1|\n|>|>|>|",
        r"    8 + | |2|\n|",
    ]


@pytest.mark.parametrize("width", [40, 80])
def test_rows_of_tokens_fit_and_go_on_with_their_mark(
    make_trajectory: MakeTrajectory, width: int
) -> None:
    trajectory = make_trajectory([(" " + 100 * "1" + "\n", OK, None)])
    rows = plain(token_rows(trajectory, texts(trajectory), width=width))
    assert len(rows) > 2
    assert all(len(row) <= width and row[6] == "+" for row in rows)
    assert sum(row.count("1|") for row in rows) == 100


def test_what_cannot_be_printed_is_escaped() -> None:
    assert visible("a\x1b[31m\u202e\n<b>[red]") == r"a\x1b[31m\u202e\n<b>[red]"


def test_the_table_has_the_gap_of_sampled_tokens_alone(make_trajectory: MakeTrajectory) -> None:
    trajectory = make_trajectory([("1", OK, "2")])
    rows = plain(token_table(trajectory, ["1", "2"], [-1.5, -3.0]))
    assert rows[1:] == [
        "    0      49  '1'                   sampled     -1.0000   -1.5000  5.0e-01",
        "    1      50  '2'                   injected              -3.0000",
    ]


def test_a_stream_shows_what_a_policy_saw_and_each_line_once() -> None:
    """Driven by hand: the builder as it stands after each line."""
    codec, shown = ByteCodec(), list[str]()
    stream = LineStream(codec, lambda text: shown.append(text.plain))
    attempt = an_attempt()
    prompt = Prompt.plain("hello\n>>>")
    built = TrajectoryBuilder(attempt, prompt, Encoding(PYTHON, codec), context_tokens=99)
    for source, kind, answer in (
        (" f(\n", OutcomeKind.INCOMPLETE, "..."),
        (" 1)\x1b[2J\n", OK, ""),
    ):
        ids = tuple(codec.encode(source))
        built.add_line(
            SampledLine(ids=ids, logprobs=(0.0,) * len(ids), end=LineEnd.NEWLINE, policy_version=0)
        )
        built.set_outcome(LineOutcome(kind=kind, observation="" if answer else "7\n"))
        stream.show_line(built)
        built.inject(codec.encode(answer))
    assert shown == ["hello", ">>> f(", "... 1)", "7"]


def test_a_time_limit_says_how_far_it_let_a_policy_come(make_trajectory: MakeTrajectory) -> None:
    """` 1` and ` 2`, each with a newline, are six tokens."""
    trajectory = make_trajectory([(" 1\n", OK, "1\n>>>"), (" 2\n", OK, None)])
    ended = replace(trajectory, stop_reason=StopReason.TIME_LIMIT)
    assert plain(ending_rows(ended)) == [
        "stopped      time_limit after 6 sampled tokens; raise sampling.time_limit_s"
    ]


def test_a_result_says_why_what_and_how_much(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory(
        [(" (\n", OutcomeKind.SYNTAX_ERROR, ">>>"), (" 2\n", OutcomeKind.SUBMITTED, None)],
        stop_reason=StopReason.SUBMITTED,
        submission="'[red]\x1b[2J'",
    )
    verdict = Verdict(kind=VerdictKind.PROVED, method="structural", evidence="equal")
    scored = make_scored(trajectory, 1.0, (-0.3, 0.0), verdict)
    assert plain(result_rows(scored)) == [
        "stopped      submitted",
        "submission   '[red]'",
        "verdict      right (exact), by structural, equal",
        "reward       +0.700 = outcome +1.000, lines -0.300",
        "  line 1     -0.300  syntax_error",
    ]


def test_what_could_not_be_scored_is_not_shown_as_nought(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory([(" 2\n", OutcomeKind.OK_SILENT, None)])
    rows = plain(result_rows(make_scored(trajectory, None)))
    assert rows[-1] == "reward       +0.000 = outcome not scored, lines +0.000"
