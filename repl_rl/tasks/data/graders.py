r"""Graders by name, for problems that carry all that grading takes in their `meta`.

    meta["grader"]  math | integer | exact | tests
    meta["value"]   the known answer as `grading.parse` reads it, one meaning a line

`ByName` needs no file and no argument, so a grader's process makes one wherever it runs. LaTeX was
read when the rows were (`golds`); a submission is a Python value, or a text, and never LaTeX.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence

import sympy

from repl_rl.grading.equality import compare
from repl_rl.grading.parse import Malformed, Value, parse
from repl_rl.types import Problem, Verdict, VerdictKind

_DECIMAL = re.compile(r"-?\d+\.\d+")
_LONGEST_DECIMAL = 400
_ANY_CASE = ("true", "false", "yes", "no")
_BEST_FIRST = (
    *(VerdictKind.PROVED, VerdictKind.SUPPORTED, VerdictKind.UNDECIDED),
    *(VerdictKind.REFUTED, VerdictKind.WRONG, VerdictKind.MALFORMED),
)


class ByName:
    """Judges by the grader that a problem names."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """By `meta` alone; text that is not an answer of the kind asked for is MALFORMED."""
        try:
            return _GRADERS[problem.meta["grader"]](problem.meta, submission)
        except Malformed as error:
            return Verdict(kind=VerdictKind.MALFORMED, method="parse", evidence=str(error))

    def reference(self, problem: Problem) -> str | None:
        """The known answer, as a kernel would hand it over."""
        value = problem.meta["value"]
        if problem.meta["grader"] == "tests":
            return None  # nobody has written the function
        return repr(value) if problem.meta["grader"] == "exact" else value.split("\n")[0]


def grade_math(meta: Mapping[str, str], submission: str) -> Verdict:
    """The best verdict over all meanings of the known answer."""
    symbols = tuple(meta.get("symbols", "").split())
    if is_same_decimal(submission, meta["answer"]):
        return Verdict(kind=VerdictKind.PROVED, method="decimal")
    got = parse(submission, symbols=symbols)
    meanings = [parse(one, symbols=symbols) for one in meta["value"].split("\n")]
    verdicts = [matched(got, meaning, seed=meta["points"]) for meaning in meanings]
    return min(verdicts, key=lambda verdict: _BEST_FIRST.index(verdict.kind))


def grade_integer(meta: Mapping[str, str], submission: str) -> Verdict:
    """An exact integer, and the right one."""
    got = parse(submission)
    if not isinstance(got, sympy.Integer):
        return Verdict(kind=VerdictKind.WRONG, method="form", evidence="an integer is expected")
    kind = VerdictKind.PROVED if got == int(meta["value"]) else VerdictKind.WRONG
    return Verdict(kind=kind, method="integer")


def grade_exact(meta: Mapping[str, str], submission: str) -> Verdict:
    """The same text, but for blanks, the form of its characters and brackets around a letter."""
    is_same = normal_text(unquoted(submission)) == normal_text(meta["value"])
    return Verdict(kind=VerdictKind.PROVED if is_same else VerdictKind.WRONG, method="text")


_GRADERS: Mapping[str, Callable[[Mapping[str, str], str], Verdict]] = {
    "math": grade_math,
    "integer": grade_integer,
    "exact": grade_exact,
}


def matched(got: Value, expected: Value, *, seed: str) -> Verdict:
    """The ladder's verdict. Where a set is expected, a list without repetitions is one."""
    if type(got) is type(expected) and bool(got == expected) and not _has_floats(got):
        return Verdict(kind=VerdictKind.PROVED, method="structural")
    if isinstance(expected, frozenset) and isinstance(got, list | tuple):
        elements = frozenset(map(_hashable, got))
        if len(elements) == len(got):
            got = elements
    return compare(got, expected, seed=seed)


def is_same_decimal(submission: str, answer: str) -> bool:
    """Whether both spell one decimal number, as 2.875 does 23/8: no digit of it is rounded."""
    answer = answer.strip("$ ")
    if not (_DECIMAL.fullmatch(submission) and _DECIMAL.fullmatch(answer)):
        return False
    if max(len(submission), len(answer)) > _LONGEST_DECIMAL:
        return False
    return bool(sympy.Rational(submission) == sympy.Rational(answer))


def unquoted(submission: str) -> str:
    """What a submitted string says; any other submission as it stands."""
    try:
        tree = ast.parse(submission.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return submission
    is_text = isinstance(tree, ast.Constant) and isinstance(tree.value, str)
    return str(tree.value) if is_text and isinstance(tree, ast.Constant) else submission


def normal_text(text: str) -> str:
    """One form for texts that a reader would call the same."""
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    if letter := re.fullmatch(r"\\text\s*\{(.*)\}|\$(.*)\$", text):
        text = (letter[1] or letter[2] or "").strip()
    if choice := re.fullmatch(r"\(?\s*([A-Za-z])\s*\)?\.?", text):
        return choice[1].upper()
    return text.casefold() if text.casefold() in _ANY_CASE else text


def _hashable(value: Value) -> Value:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _has_floats(value: Value) -> bool:
    if isinstance(value, Sequence | frozenset):
        return any(map(_has_floats, value))
    return isinstance(value, sympy.Basic) and value.has(sympy.Float)
