r"""Texts that a submitted Python value may stand for, where answers are compared as texts.

    "'7 8'" -> 7 8;   "['a', 'b']" -> ['a', 'b']  ["a", "b"]  a, b  a b  ...;   'True' -> True  Yes

A submission is untrusted text: it is read as a literal, and never evaluated.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_BETWEEN = (", ", ",", " ", "\n", " \u00d7 ", "")
"""What may stand between the elements of a list that is written without brackets."""
_FRACTION = re.compile(r"Fraction\((-?\d+), (\d+)\)")
_DECIMAL = re.compile(r"Decimal\('([-+.\w]+)'\)")
_MATRIX = re.compile(r"\w*Matrix\((\[.*\])\)", re.DOTALL)
_IMAGINARY = re.compile(r"\*?\bI\b")
_WORDS = {True: ("true", "Yes", "yes"), False: ("false", "No", "no"), None: ("null",)}


def spellings(submission: str) -> list[str]:
    """Each text once, its own spelling first; a submitted string is one text, and no other."""
    try:
        value = ast.literal_eval(submission.strip())
        texts = [value] if isinstance(value, str) else [submission, *_spelled(value)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        texts = [submission, *_of_classes(submission.strip())]
    return list(dict.fromkeys(texts))


def _of_classes(text: str) -> Iterator[str]:
    """Value behind the `repr` of fractions, decimals, sympy's matrices and complex numbers."""
    if found := _FRACTION.fullmatch(text):
        yield f"{found[1]}/{found[2]}"
    elif found := _DECIMAL.fullmatch(text):
        yield found[1]
    elif found := _MATRIX.fullmatch(text):
        yield from spellings(found[1])
    elif _IMAGINARY.search(text):
        yield _IMAGINARY.sub("i", text)


def is_same_value(submission: str, answer: str) -> bool:
    """Say whether an answer spells, as Python or JSON, the submitted value; `0.50` is 0.5."""
    try:
        value = ast.literal_eval(submission.strip())
        return not isinstance(value, str) and _plain(value) in map(_plain, _values(answer))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False


def _values(text: str) -> Iterator[Any]:
    for read in (ast.literal_eval, json.loads):
        with contextlib.suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            yield read(text.strip())


def _plain(value: Any) -> Any:
    """Return it with lists for tuples, and truth apart from 1: `True == 1` in Python."""
    if isinstance(value, dict):
        return {_key(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return _key(value)


def _key(value: Any) -> Any:
    return (bool, value) if isinstance(value, bool) else value


def _spelled(value: Any) -> Iterator[str]:
    if isinstance(value, set):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple | dict):
        for separators in ((", ", ": "), (",", ":")):
            yield json.dumps(value, ensure_ascii=False, separators=separators)
        yield json.dumps(value)
    if isinstance(value, list | tuple):
        yield from _joined(value)
    elif isinstance(value, dict):
        yield from _joined([f"{key}={one}" for key, one in value.items()])
    elif isinstance(value, bool | None):
        yield from _WORDS[value]
    elif isinstance(value, complex):
        sign = "-" if value.imag < 0 else "+"
        yield f"{value.real} {sign} {abs(value.imag)}i"


def _joined(elements: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    """The elements without brackets; rows of a matrix one below the other.

    Nothing stands between letters alone: `[1, 2]` is not 12.
    """
    if elements and all(isinstance(row, list | tuple) for row in elements):
        for between in _between(one for row in elements for one in row):
            yield "\n".join(between.join(map(str, row)) for row in elements)
    else:
        for between in _between(elements):
            yield between.join(map(str, elements))


def _between(elements: Iterable[Any]) -> Sequence[str]:
    return _BETWEEN if all(isinstance(one, str) for one in elements) else _BETWEEN[:-1]
