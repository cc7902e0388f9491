"""What the screens and the numbers of a run say of lemmas."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from repl_rl.credit.ledger import ledgers
from repl_rl.runs.rollout_metrics import lemma_metrics, rollout_metrics
from repl_rl.show.display import ledger_table
from repl_rl.show.marked import marked_trajectory
from repl_rl.show.rollout_view import result_rows
from repl_rl.types import (
    Claim,
    JudgedLemma,
    Lemma,
    OutcomeKind,
    Problem,
    Scored,
    Trajectory,
    Verdict,
    VerdictKind,
)

PROVED, WRONG = VerdictKind.PROVED, VerdictKind.WRONG
LEMMAS = ("a", "b", "c", "d")
PROBLEM = Problem(id="p", statement="s", lemmas=tuple(Lemma(name=name) for name in LEMMAS))
JUDGED = (
    JudgedLemma(name="a", line=0, kind=PROVED, is_used=True),
    JudgedLemma(name="b", line=1, kind=PROVED),
    JudgedLemma(name="c", line=2, kind=WRONG),
    JudgedLemma(name="d"),
)


@pytest.fixture
def scored(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> Scored:
    """Three claims, one paid, one not used, one wrong; the fourth lemma was not claimed."""
    parts = [(f' have("{name}", 1)\n', OutcomeKind.CLAIMED, ">>>") for name in LEMMAS[:3]]
    trajectory = make_trajectory(
        [*parts, (" submit_final_answer(1)\n", OutcomeKind.SUBMITTED, None)], submission="1"
    )
    claims = tuple(Claim(line=line, name=name, value="1") for line, name in enumerate("abc"))
    made = make_scored(
        replace(trajectory, claims=claims),
        0.0,
        (0.08, 0.0, -0.08, 0.0),
        Verdict(kind=WRONG, lemmas=JUDGED),
    )
    return replace(made, problem=PROBLEM)


def shown(renderable: object) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(renderable)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    return [row.rstrip() for row in text.splitlines()]


def test_a_ledger_says_of_each_claim_what_became_of_it_and_what_it_earned(scored: Scored) -> None:
    [ledger] = ledgers([scored], [[0.5] * len(scored.trajectory.completion_ids)])
    rows = [row.split()[2:5] for row in shown(ledger_table(ledger)) if row.startswith("have")]
    assert rows == [
        ["claimed", "right", "+0.080"],
        ["claimed", "unused", "+0.000"],
        ["claimed", "wrong", "-0.080"],
    ]


def test_a_transcript_says_it_beside_the_lines(scored: Scored) -> None:
    marked = marked_trajectory(scored, width=80).plain.splitlines()
    marks = [row.partition("+   ")[2].split() for row in marked if "have" in row]
    assert marks == [
        ["claimed", "+0.08", "right"],
        ["claimed", "+0.00", "unused"],
        ["claimed", "-0.08", "wrong"],
    ]
    assert max(map(len, marked)) <= 80


def test_a_result_names_the_lemma_of_each_line(scored: Scored) -> None:
    rows = [row.plain for row in result_rows(scored)]
    assert "  line 1     +0.080  claimed a right" in rows
    assert "  line 2     +0.000  claimed b unused" in rows
    assert "  line 3     -0.080  claimed c wrong" in rows


def test_a_name_from_elsewhere_moves_no_terminal(scored: Scored) -> None:
    verdict = Verdict(kind=WRONG, lemmas=(replace(JUDGED[0], name="\x1b[2J\u202e"),))
    rows = [row.plain for row in result_rows(replace(scored, verdict=verdict))]
    assert not any("\x1b" in row or "\u202e" in row for row in rows)


# Numbers


def test_lemmas_are_counted_a_trajectory(scored: Scored) -> None:
    """Two trajectories; the second one claims what the first did and submits nothing."""
    silent = replace(scored, verdict=None)
    assert lemma_metrics([scored, silent]) == {
        "lemma/claimed": 3.0,
        "lemma/proved": 1.0,
        "lemma/used": 0.5,
        "lemma/wrong": 0.5,
    }


def test_problems_without_lemmas_do_not_count(scored: Scored) -> None:
    bare = replace(scored, problem=Problem(id="q", statement="s"))
    assert lemma_metrics([scored, bare]) == lemma_metrics([scored])
    assert lemma_metrics([bare]) == {}
    assert not any(name.startswith("lemma/") for name in rollout_metrics([bare], seconds=1.0))
