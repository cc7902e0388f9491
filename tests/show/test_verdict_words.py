"""Laws of a verdict in words: right or wrong, on one row, in no words of the problem's."""

from __future__ import annotations

import pytest

from repl_rl.records import Verdict, VerdictKind
from repl_rl.viewer.show.marked import kind_words, verdict_words

WORDS = [
    ("proved", "right", "right (exact)"),
    ("supported", "right", "right (by numbers)"),
    ("undecided", "undecided", "undecided"),
    ("refuted", "wrong", "wrong (counterexample)"),
    ("wrong", "wrong", "wrong"),
    ("malformed", "wrong", "wrong (malformed)"),
]


def test_every_kind_of_verdict_has_its_words_here() -> None:
    assert [kind for kind, *_ in WORDS] == [*VerdictKind]


@pytest.mark.parametrize(("kind", "word", "words"), WORDS)
def test_a_verdict_says_right_or_wrong_and_how_that_is_known(
    kind: str, word: str, words: str
) -> None:
    assert (VerdictKind(kind).word, kind_words(VerdictKind(kind))) == (word, words)
    assert verdict_words(Verdict(kind=VerdictKind(kind))) == words


def test_nothing_submitted_is_no_verdict() -> None:
    assert verdict_words(None) == kind_words(None) == "nothing submitted"


@pytest.mark.parametrize(
    ("kind", "evidence", "words"),
    [
        ("refuted", "it holds for all x", "wrong (it holds for all x)"),
        ("wrong", "not 5", "wrong (not 5)"),
        ("malformed", "not a whole number", "wrong (malformed: not a whole number)"),
        ("proved", "12 calls", "right (exact)"),
        ("undecided", "too slow", "undecided"),
        ("wrong", "\x1b[2Ja\nb", "wrong (a\\nb)"),
        ("wrong", "n" * 99, f"wrong ({'n' * 37}...)"),
    ],
)
def test_evidence_stands_against_a_wrong_answer_alone(kind: str, evidence: str, words: str) -> None:
    assert verdict_words(Verdict(kind=VerdictKind(kind), evidence=evidence)) == words
