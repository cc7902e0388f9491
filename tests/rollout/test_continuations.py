"""From which states others go on, to say what a line was worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixture_types import MakeScored, MakeTrajectory
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind
from repl_rl.rollout.prefixes import attempts_around, check_asked, why_not_again
from repl_rl.transcript.format import Part, Prompt
from repl_rl.transcript.tokens import ByteCodec

OK, OPEN, SUBMITTED = OutcomeKind.OK_OUTPUT, OutcomeKind.INCOMPLETE, OutcomeKind.SUBMITTED
LINES = (
    (" if x:\n", OPEN, "..."),
    ("     1\n", OK, ">>>"),
    (" import time\n", OK, ">>>"),
    (" time.time()\n", OK, "17.0\n>>>"),
    (" submit_final_answer(2)\n", SUBMITTED, None),
)


@pytest.mark.parametrize(
    ("states", "expected"), [(None, [0, 2]), ((2, 3), [2]), ((1, 2), [2]), ((4, 5), [])]
)
def test_whoever_goes_on_begins_a_statement_behind_lines_that_do_the_same_again(
    make_trajectory: MakeTrajectory,
    make_scored: MakeScored,
    states: tuple[int, ...] | None,
    expected: list[int],
) -> None:
    """Not inside of the `if`, nor behind the line that names the clock."""
    scored = make_scored(make_trajectory(LINES), 1.0)
    found = attempts_around(scored, (), num_branches=2, states=states)
    assert [one.group_index for one in found] == [at for at in expected for _ in range(2)]
    assert [one.sibling_index for one in found] == [0, 1] * len(expected)
    stems = [one.stem for one in found[::2]]
    assert [0 if stem is None else stem.num_lines for stem in stems] == expected
    assert len({one.seed for one in found}) == len(found)


def test_each_state_that_nobody_goes_on_from_has_its_reason(
    make_trajectory: MakeTrajectory,
) -> None:
    lines = make_trajectory(LINES).lines
    clock = "line 3 names a clock: time"
    assert why_not_again(lines, ()) == [None, "line 1 is incomplete", None, clock, clock]
    cut = replace(lines[0], outcome=replace(lines[3].outcome, is_truncated=True))
    assert why_not_again((cut, lines[3]), ()) == [None, "the output of line 1 was cut"]
    silent = make_trajectory([(" x = 1\n", OK, ">>>"), (" x\n", OK, None)]).lines
    after = "line 1 runs after a setup that names a clock: time"
    assert why_not_again(silent, ("import time",)) == [None, after]


@pytest.mark.parametrize(
    ("lines", "setup", "expected"),
    [
        ("x = 1 | t = time.time() | t", ["import time"], [0]),
        ("x = 1 | t = time.time() | t", [], [0, 1]),
        ("from time import time as t | x = t() | x", [], [0]),
        ("import random as r | r.seed() | x = r.random() | x", [], [0, 1]),
        ("import random as r | x = r.random() | x", [], [0, 1, 2]),
        ("time = symbols('t') | time + 1", [], [0]),
    ],
)
def test_nobody_begins_behind_a_line_that_names_a_clock_or_a_draw(
    make_trajectory: MakeTrajectory,
    make_scored: MakeScored,
    lines: str,
    setup: list[str],
    expected: list[int],
) -> None:
    """Whatever it prints: most of these print nothing. A variable of that name costs as much."""
    rows = [(f" {line}\n", OutcomeKind.OK_SILENT, ">>>") for line in lines.split(" | ")]
    found = attempts_around(make_scored(make_trajectory(rows), 1.0), setup, num_branches=1)
    assert [one.group_index for one in found] == expected


def test_a_model_that_would_be_asked_in_other_tokens_is_refused(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    scored, codec = make_scored(make_trajectory(LINES[:1]), 1.0), ByteCodec()
    asked = scored.trajectory.prompt_text
    check_asked(scored, Prompt((Part(asked),)), codec, source="m")
    with pytest.raises(ConfigError, match="has other tokens with 'm'"):
        check_asked(scored, Prompt((Part(f"# {asked}"),)), codec, source="m")
