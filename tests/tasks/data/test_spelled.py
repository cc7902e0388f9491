"""Submissions as data sets write answers: the plain text and the LaTeX."""

from __future__ import annotations

import asyncio

import pytest

from repl_rl.tasks.data import golds as spelled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("submission", "plain"),
    [
        *(("42", "42"), ("42.0", "42"), ("-3.00", "-3"), ("0.5", "0.5"), ("True", "True")),
        *(("'B'", "B"), ('"it\'s"', "it's")),
    ],
)
def test_a_number_and_a_word_are_the_same_twice_and_start_no_process(
    submission: str, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(spelled, "Grader")
    assert asyncio.run(spelled.spelled([submission, None])) == [(plain, plain), None]


def test_values_are_read_in_a_process_and_what_is_none_stays() -> None:
    latex = {
        "1/2": r"\frac{1}{2}",
        "sqrt(2)*x": r"\sqrt{2} x",
        "[-3, -1/2]": r"-3, - \frac{1}{2}",
        "(1, 2)": "(1, 2)",
        "{2, 1}": r"\{1, 2\}",
        "Interval.Ropen(2, 5)": r"\left[2, 5\right)",
        "__import__('os')": "__import__('os')",
        "[": "[",
    }
    found = asyncio.run(spelled.spelled(list(latex)))
    assert dict(filter(None, found)) == latex
