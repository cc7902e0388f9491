"""Laws of the audit's readings: tokens say in their place what ran and what was shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from repl_rl.records import Finding, Line, OutcomeKind, Trajectory
from repl_rl.training.audit import Counts
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import PYTHON, TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec

MakeTrajectory = Callable[..., Trajectory]
OK = OutcomeKind.OK_OUTPUT


def alone(trajectory: Trajectory) -> Trajectory:
    """Trajectory as it is where each piece is encoded and decoded by itself, with a space of its
    own."""
    ids = list(trajectory.completion_ids)
    mask, logprobs = list(trajectory.loss_mask), list(trajectory.logprobs)
    lines: list[Line] = []
    for line in reversed(trajectory.lines):
        lines.insert(0, replace(line, source=line.source.removeprefix(" ")))
        if line.stop < len(ids):
            ids[line.stop : line.stop] = [32]
            mask[line.stop : line.stop] = [False]
            logprobs[line.stop : line.stop] = [0.0]
    moved = [replace(ln, start=ln.start + i, stop=ln.stop + i) for i, ln in enumerate(lines)]
    return replace(
        trajectory,
        completion_ids=tuple(ids),
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        lines=tuple(moved),
    )


def misread(trajectory: Trajectory, fmt: TranscriptFormat | None = PYTHON) -> dict[str, Finding]:
    counts = Counts()
    counts.take(trajectory, ByteCodec(), fmt)
    found = counts.findings(is_exact=True)
    return {one.name: one for one in found if one.name.startswith("misread")}


TALK = [
    (" x\n", OK, "1\n>>>"),
    (" if x:\n", OutcomeKind.INCOMPLETE, "..."),
    ("     x\n", OK, ">>>"),
    (" y\n", OK, None),
]


def test_tokens_that_read_in_their_place_as_they_ran_and_were_shown_are_well(
    make_trajectory: MakeTrajectory,
) -> None:
    found = misread(make_trajectory(TALK))
    assert [(one.text, one.passed) for one in found.values()] == [
        ("0 of 4", True),
        ("0 of 3", True),
    ]


def test_pieces_with_a_space_of_their_own_are_misread(make_trajectory: MakeTrajectory) -> None:
    found = misread(alone(make_trajectory(TALK)))
    assert [(one.text, one.passed) for one in found.values()] == [
        ("4 of 4", False),
        ("3 of 3", False),
    ]


@pytest.mark.parametrize(
    ("shown", "passed"),
    [("In [3]:", True), ("In [17]:", True), (" In [3]:", False), ("In [x]:", False)],
)
def test_an_observation_ends_in_a_prompt_of_its_format(
    make_trajectory: MakeTrajectory, shown: str, passed: bool
) -> None:
    plain = make_trajectory([(" x\n", OK, shown), (" y\n", OK, None)])
    silent = replace(plain.lines[0].outcome, observation="")
    lines = (replace(plain.lines[0], outcome=silent), plain.lines[1])
    found = misread(replace(plain, lines=lines), IPYTHON)
    assert found["misread observations"].passed is passed


def test_what_a_loop_of_ones_own_shows_is_not_read(make_trajectory: MakeTrajectory) -> None:
    found = misread(make_trajectory([(" x\n", OK, " = 1"), (" y\n", OK, None)]), None)
    assert found["misread observations"].passed


def test_broken_bytes_before_a_character_ruin_no_reading(make_trajectory: MakeTrajectory) -> None:
    """Joined to half a character before it, a whole one cannot be told; alone it can."""

    class Grouping(ByteCodec):
        """Newlines and bytes beyond ASCII are spelled out, and a run of them is read as one."""

        def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
            runs = itertools.groupby(ids, lambda i: i == 10 or i > 127)
            return "".join(self._run(bytes(run)) for _, run in runs)

        def _run(self, text: bytes) -> str:
            try:
                return text.decode()
            except UnicodeDecodeError:
                return "\ufffd" * len(text)

    plain = make_trajectory([("\n", OK, "\u00e9\n>>>"), (" y\n", OK, None)])
    line = replace(plain.lines[0], source="\ufffd" * 2, stop=2)
    trajectory = replace(
        plain,
        completion_ids=(0xE4, *plain.completion_ids),
        loss_mask=(True, *plain.loss_mask),
        logprobs=(-1.0, *plain.logprobs),
        lines=(line, replace(plain.lines[1], start=8, stop=11)),
    )
    counts = Counts()
    counts.take(trajectory, Grouping(), PYTHON)
    assert (counts.misread_lines, counts.misread_observations) == (0, 0)
