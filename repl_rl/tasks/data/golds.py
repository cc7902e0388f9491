r"""Known answers, read once in a grader's process before anything is trained on them.

    answer, grader -> Gold: the grader that fits and what it compares with, or why there is none

LaTeX is never read in the trainer: a line of it can take for ever. Integers and words need no
process, so a file of them starts none. `Speller` writes a value as text in such a process.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import sympy

from repl_rl.base.concurrency import run_all
from repl_rl.errors import ConfigError, how_to_install
from repl_rl.grading.bounded import CONSTANTS
from repl_rl.grading.grader import Grader
from repl_rl.grading.parse import Malformed, Value, parse
from repl_rl.grading.points import Unsolved, differ, is_condition
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.data.graders import matched, read_tests
from repl_rl.tasks.data.texts import is_choice, undressed

SPEC = "repl_rl.tasks.data.golds:GoldReader"
DEADLINE_S = 30.0
"""For one answer. Most are read in 5 ms; a busy machine must not refuse a row."""
_PARSER = "pylatexenc"
_MOST_WORKERS = 8
_FOR_A_WORKER = 100
"""Answers that are worth starting another process for."""
_MAX_DIGITS = 2000

_INTEGER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)")
_PYTHON = re.compile(r"\*|\w\(")
"""Marks of Python that LaTeX has no use for."""


@dataclass(frozen=True, slots=True)
class Gold:
    """A known answer, ready to be compared with."""

    grader: str
    value: str
    symbols: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer that nothing can be compared with."""

    why: str


def read_golds(requests: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Gold | Refused]:
    """Read each (answer, name of a grader or `auto`) once. Raises ConfigError, GraderError."""
    pairs = list(dict.fromkeys(requests))
    golds = {pair: plain(*pair) for pair in pairs}
    left = [pair for pair, gold in golds.items() if gold is None]
    if left:
        golds |= dict(zip(left, _outside(left), strict=True))
    return {pair: gold for pair, gold in golds.items() if gold is not None}


def plain(answer: str, grader: str) -> Gold | Refused | None:
    """Read an answer that needs no parser; None for one that does."""
    text = answer.strip().strip("$").strip().removesuffix(".")
    if grader == "tests":
        return _tests(answer)
    if grader == "exact" or (grader == "auto" and is_choice(undressed(answer))):
        return Gold("exact", answer)
    if not _INTEGER.fullmatch(text) or len(text) > _MAX_DIGITS:
        return Refused("no integer") if grader == "integer" else None
    whole = str(int(text.replace(",", "")))
    if grader == "integer" or (grader == "auto" and "," not in text):
        return Gold("integer", whole)
    return Gold("math", "\n".join([whole, *_listed(text)]))


def _listed(integer: str) -> list[str]:
    """Spell 98,118,122 as a list, where no part of it begins with a 0."""
    parts = integer.split(",")
    if len(parts) == 1 or any(part.startswith("0") for part in parts):
        return []
    is_set = len(set(parts)) == len(parts)
    return [f"[{', '.join(parts)}]", *([f"{{{', '.join(parts)}}}"] if is_set else [])]


def _tests(source: str) -> Gold | Refused:
    try:
        return Gold("tests", read_tests(source))
    except ValueError as error:
        return Refused(str(error))


class GoldReader:
    """The task that a grader's process runs: its verdict carries what an answer means."""

    def __init__(self) -> None:
        """Load all that reading takes, which is in no answer's time."""
        meanings(r"\frac12")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """PROVED with the meanings as evidence, one a line; WRONG with the reason."""
        try:
            return Verdict(kind=VerdictKind.PROVED, evidence="\n".join(meanings(submission)))
        except ValueError as error:
            return Verdict(kind=VerdictKind.WRONG, evidence=str(error) or type(error).__name__)


def meanings(answer: str) -> list[str]:
    """Texts that `grading.parse` reads, each solved by itself. Raises ValueError where none is."""
    from repl_rl.tasks.data.latex import readings

    texts = [answer.strip()] if is_python(answer.strip()) else readings(answer)
    accepted, why = [], ""
    for text in texts:
        if text.startswith("'"):  # a choice
            accepted.append(text)
            continue
        try:
            value = parse(text, symbols=names_in(text))
        except Malformed as error:
            why = why or str(error)
            continue
        if (nothing := _is_nothing(text, value)) or matched(value, value, seed="0").is_solved:
            why = why or nothing
            accepted += [] if nothing else [text]
    if not accepted:
        raise ValueError(why or "it does not equal itself")
    return accepted


def _is_nothing(text: str, value: Any) -> str:
    """Say why a reading is no answer: an interval whose ends fall, 1/0, or what is never true."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    intervals = [ast.unparse(call) for call in calls if ast.unparse(call.func) == "Interval"]
    values = [parse(one, symbols=names_in(text)) for one in intervals]
    if not all(isinstance(one, sympy.Interval) for one in values):
        return "an interval of which the ends do not rise"
    if any(part.has(sympy.nan, sympy.zoo) for part in _parts(value)):
        return "a value that is none"
    if isinstance(value, bool):
        return "a relation of numbers"
    try:
        is_empty = is_condition(value) and not differ(value, frozenset()).position
    except Unsolved:
        is_empty = False
    return "a condition that nothing meets" if is_empty else ""


def _parts(value: Any) -> Iterator[Any]:
    """All sympy objects of a value."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | frozenset):
        for one in value:
            yield from _parts(one)
    elif isinstance(value, sympy.Basic | sympy.MatrixBase):
        yield value


def is_python(text: str) -> bool:
    """Say whether it is an expression of Python that LaTeX could not be."""
    if not _PYTHON.search(text) or re.search(r"[\\$^]|\d\.|\.\d", text):
        return False  # decimals of Python are rounded
    names = names_in(text)
    if {"e", "i"} & set(names):  # constants in LaTeX, names in Python
        return False
    try:
        parse(text, symbols=names)
    except Malformed:
        return False
    return True


def names_in(text: str) -> tuple[str, ...]:
    """The unknowns of an expression: what it names, calls and constants apart."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    }
    return tuple(sorted(names - set(CONSTANTS)))


def _outside(pairs: list[tuple[str, str]]) -> list[Gold | Refused]:
    """Read the pairs in a grader's processes."""
    if importlib.util.find_spec(_PARSER) is None:
        raise ConfigError(
            f"reading the answer {pairs[0][0][:40]!r} needs the package pylatexenc, which is not "
            f"installed; compare texts with --set data.grader=exact, or {how_to_install('data')}"
        )

    async def ask() -> list[Verdict]:
        num_workers = min(_MOST_WORKERS, os.cpu_count() or 1, 1 + len(pairs) // _FOR_A_WORKER)
        async with Grader(num_workers=num_workers, deadline_s=DEADLINE_S) as grader:

            async def one(pair: tuple[str, str]) -> Verdict:
                problem = Problem(id="", statement="")
                return await grader.grade(SPEC, problem, pair[0])

            return await run_all(one, pairs, at_once=num_workers)

    return [_gold(verdict) for verdict in _run(ask)]


def _gold(verdict: Verdict) -> Gold | Refused:
    if verdict.kind is not VerdictKind.PROVED:
        return Refused(verdict.grader_error or verdict.evidence)
    names = {name for text in verdict.evidence.split("\n") for name in names_in(text)}
    return Gold("math", verdict.evidence, " ".join(sorted(names)))


def _run(ask: Callable[[], Coroutine[Any, Any, list[Verdict]]]) -> list[Verdict]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ask())
    with ThreadPoolExecutor(1) as thread:  # this thread's loop is at work
        return thread.submit(asyncio.run, ask()).result()


SPELLED = "repl_rl.tasks.data.golds:Speller"
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
    spellings = {one: _plain(one) for one in submissions if one is not None}
    left = [one for one, pair in spellings.items() if pair is None]
    if left:
        async with Grader() as grader:
            for one in left:
                verdict = await grader.grade(SPELLED, Problem(id="", statement=""), one)
                is_value = verdict.kind is VerdictKind.PROVED
                spellings[one] = (one, verdict.evidence if is_value else one)
    return [None if one is None else spellings[one] for one in submissions]


def _plain(submission: str) -> tuple[str, str] | None:
    """Read a number or word that LaTeX spells no other way; None for the rest."""
    if number := _NUMBER.fullmatch(submission):
        return (number[1] or submission,) * 2
    return (submission[1:-1],) * 2 if _WORD.fullmatch(submission) else None
