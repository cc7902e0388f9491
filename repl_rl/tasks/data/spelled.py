r"""Answers of a policy as data sets write them: a plain text, and LaTeX.

    '1/2' -> 1/2, \frac{1}{2};   '[1, 2]' -> [1, 2], 1, 2;   '42.0' -> 42, 42;   "'B'" -> B, B

The way back from `latex`. A submission is untrusted text and is read in a grader's process alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sympy

from repl_rl.grading.grader import Grader
from repl_rl.grading.parse import Malformed, Value, parse
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.data.golds import names_in

SPELLED = "repl_rl.tasks.data.spelled:Speller"
_NUMBER = re.compile(r"(-?\d+)(?:\.0*)?|-?\d+\.\d+|True|False")
_WORD = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"")


class Speller:
    """The task that a grader's process runs: its verdict carries the LaTeX."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """PROVED with the LaTeX as evidence; MALFORMED for what is no value."""
        try:
            value = parse(submission, symbols=names_in(submission))
        except Malformed as error:
            return Verdict(kind=VerdictKind.MALFORMED, evidence=str(error))
        return Verdict(kind=VerdictKind.PROVED, evidence=latex_of(value))


def latex_of(value: Value) -> str:
    """A list without brackets, as data sets write several answers; the rest as sympy has it."""
    if not isinstance(value, list | tuple | frozenset):
        return str(sympy.latex(value))
    if isinstance(value, frozenset):
        return rf"\{{{', '.join(sorted(map(latex_of, value)))}\}}"
    parts = ", ".join(map(latex_of, value))
    return parts if isinstance(value, list) else f"({parts})"


async def spelled(submissions: Sequence[str | None]) -> list[tuple[str, str] | None]:
    """(plain text, LaTeX) of each; what is no value is the same text twice. None stays None.

    Starts a process where there is anything to read. Raises GraderError if it does not start.
    """
    found = {one: _plain(one) for one in submissions if one is not None}
    left = [one for one, pair in found.items() if pair is None]
    if left:
        async with Grader() as grader:
            for one in left:
                verdict = await grader.grade(SPELLED, Problem(id="", statement=""), one)
                is_value = verdict.kind is VerdictKind.PROVED
                found[one] = (one, verdict.evidence if is_value else one)
    return [None if one is None else found[one] for one in submissions]


def _plain(submission: str) -> tuple[str, str] | None:
    """Read a number or word that LaTeX spells no other way; None for the rest."""
    if number := _NUMBER.fullmatch(submission):
        return (number[1] or submission,) * 2
    return (submission[1:-1],) * 2 if _WORD.fullmatch(submission) else None
