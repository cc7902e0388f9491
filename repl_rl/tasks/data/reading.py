"""Problems out of rows: what is asked, what is known, who grades, and what is held out.

    Source, DataConfig -> Reading

An answer that cannot be compared with refuses its row, which is counted and shown. Whatever else
is wrong with a row is a ConfigError that names it. Knows neither files nor processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import get_args

from repl_rl.base.terminal import one_row, shorten
from repl_rl.config.sections import DataConfig, GraderName
from repl_rl.errors import ConfigError
from repl_rl.grading.parse import declared
from repl_rl.records import Problem, Split
from repl_rl.tasks.data.columns import ColumnFinder, Columns, DataRow, is_empty
from repl_rl.tasks.data.domains import constant_of, settled
from repl_rl.tasks.data.golds import Gold, Refused, read_golds
from repl_rl.tasks.data.texts import (
    answer_of,
    are_from_one,
    are_indices,
    choices_of,
    only,
    statement_of,
    tests_of,
)

_TRAIN = ("train", "training")
_HELD_OUT = (
    *("test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation"),
    *("held_out", "held-out", "heldout"),
)
_TESTS_FORM = "\nSubmit the source of the function, as a string."
_MAX_LABEL = 200
"""Characters of an id, a family, a tier."""
_NUM_LISTED = 10
"""Refused rows that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Reading of somebody's data."""

    sides: Mapping[Split, tuple[Problem, ...]]
    summary: str
    """One line: what was taken, as what, and what was refused."""
    record: str
    """Record that a run writes down: where the data was, its digest, how many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows, and what they are called."""

    name: str
    location: str
    """Full place of the rows."""
    rows: Iterable[DataRow]
    digest: str | None = None
    """sha256 of the file; None: that of all statements and answers."""
    has_splits: bool = False
    """True where its splits are parts of their own, each with its own ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A row of which the answer has not been looked at."""

    where: str
    id: str
    statement: str
    answer: str
    grader: str
    labels: Mapping[str, str]
    split: str
    symbols: str
    """Declared by a column of the row."""
    num_choices: int = 0
    why: str = ""
    """Reason why there is no answer; empty where there is one."""


def read(source: Source, data: DataConfig) -> Reading:
    """All problems of a source. Raises ConfigError, with file and line, for what is wrong."""
    finder = ColumnFinder(data)
    rows = [finder.selected(row) for row in islice(source.rows, data.limit or None)]
    if not rows:
        raise ConfigError(f"{source.name} holds no rows")
    columns = finder.columns()
    by_index = _are_indices(rows, columns, source.name)
    items = [_item(row, columns, data, by_index=by_index) for row in rows]
    if data.split is not None:
        items = _of_split(items, data.split, columns, source)
    elif source.has_splits:
        items = [replace(one, id=f"{one.split}/{one.id}") if one.id else one for one in items]
    unanswered = [(one, one.why) for one in items if one.why]
    distinct, otherwise = _distinct([one for one in items if not one.why])
    golds = read_golds((item.answer, item.grader) for item in distinct)
    graded = [(item, golds[item.answer, item.grader]) for item in distinct]
    problems = [(item, _problem(item, gold)) for item, gold in graded if isinstance(gold, Gold)]
    refused = [(item, gold.why) for item, gold in graded if isinstance(gold, Refused)]
    order = {item.where: number for number, item in enumerate(items)}
    unread = sorted([*unanswered, *refused], key=lambda one: order[one[0].where])
    if not problems:
        item, why = unread[0]
        raise ConfigError(
            f"{item.where}: the answer {shorten(item.answer, 40)!r} cannot be read ({why}), nor "
            f"can any other of {source.name}; --set data.answer=COLUMN names another column, and "
            f"data.grader=exact compares texts"
        )
    sides, refused = _sides(problems, data), [*unread, *otherwise]
    num_repeated = len(items) - len(distinct) - len(otherwise) - len(unanswered)
    counts = f"{len(problems)} of {len(items)} rows taken, {len(refused)} refused"
    return Reading(
        sides=sides,
        summary=_summary(source.name, columns, sides, refused, num_repeated=num_repeated),
        record=f"{source.location}: sha256 {source.digest or _digest_of(items)}, {counts}",
    )


def _are_indices(rows: Sequence[DataRow], columns: Columns, name: str) -> bool:
    """Say whether a number that answers a row with choices counts them from 0.

    ConfigError where all of them count from 1.
    """
    if "choices" not in columns.taken:
        return False
    answers = []
    for row in rows:
        choices, answer = (row.values.get(columns.taken[one]) for one in ("choices", "answer"))
        with contextlib.suppress(ValueError):  # which is said where the row is read
            if not is_empty(choices) and not is_empty(answer):
                answers.append((choices_of(choices), answer_of(answer)))
    if are_from_one(answers):
        raise ConfigError(
            f"{name}: answers number the choices from 1; expected numbers from 0, letters or texts"
        )
    return are_indices(answers)


def _item(row: DataRow, columns: Columns, data: DataConfig, *, by_index: bool) -> _Item:
    role = "statement"
    try:
        statement = statement_of(columns.value(row, role))
        role, grader = "grader", _label(columns.value(row, "grader")) or data.grader
        if grader not in get_args(GraderName):
            raise ValueError(f"{grader!r} is none of {', '.join(get_args(GraderName))}")
        if (grader == "tests") is not (data.grader == "tests"):
            raise ValueError("tests are for all rows or for none; see data.grader=tests")
        role, choices = "choices", None
        if grader in ("auto", "exact") and not is_empty(cell := columns.value(row, role)):
            choices, grader = choices_of(cell), "exact"
            statement = statement_of(choices.below(statement))
        role = "answer"
        is_solution = columns.answers_are_solutions
        letter = partial(choices.letter, are_indices=by_index) if choices else None
        answer, why = _answer(
            columns.value(row, role), grader, is_solution=is_solution, letter=letter
        )
        labels = {}
        for role in ("id", "family", "tier", "split", "symbols"):
            value = columns.value(row, role)
            # Only rates are grouped by these two, and not by a list of sources or tags.
            is_unread = role in ("family", "tier") and isinstance(only(value), list | dict)
            labels[role] = "" if is_unread else _label(value)
        declared(labels["symbols"])
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{row.where}: {role} {columns.taken[role]!r}: {error}") from None
    return _Item(
        where=row.where,
        id=labels.pop("id"),
        split=labels.pop("split"),
        symbols=labels.pop("symbols"),
        grader=grader,
        labels={name: label for name, label in labels.items() if label},
        statement=statement,
        answer=answer,
        num_choices=len(choices.texts) if choices else 0,
        why=why,
    )


def _answer(
    cell: object, grader: str, *, is_solution: bool, letter: Callable[[str], str] | None
) -> tuple[str, str]:
    """(answer, ""), or (what is shown of a cell without one, why there is none)."""
    if is_empty(cell):
        return "", "no answer"
    try:
        if grader == "tests":
            return tests_of(cell), ""
        answer = answer_of(cell, is_solution=is_solution)
        return letter(answer) if letter else answer, ""
    except ValueError as error:
        return (cell if isinstance(cell, str) else json.dumps(cell, default=str)), str(error)


def _label(value: object) -> str:
    """A short word in one row, empty where there is none."""
    value = only(value)
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise ValueError("a list or an object where a word is expected")
    return one_row(str(value)).strip()[:_MAX_LABEL]


def _of_split(items: Sequence[_Item], split: str, columns: Columns, source: Source) -> list[_Item]:
    if "split" not in columns.taken:
        raise ConfigError(
            f"data.split = {split!r}: {source.name} has no column 'split'; leave it out, and "
            f"data.held_out holds out a share"
        )
    selected = [item for item in items if item.split == split]
    if not selected:
        there = ", ".join(map(repr, sorted({item.split for item in items})))
        raise ConfigError(f"data.split = {split!r}: no row of {source.name}; it has {there}")
    return selected


def _distinct(items: Sequence[_Item]) -> tuple[list[_Item], list[tuple[_Item, str]]]:
    """(the first of each text, those that answer the same text otherwise and why they are refused).

    An id that is used twice is wrong.
    """
    ids: dict[str, _Item] = {}
    texts: dict[str, _Item] = {}
    otherwise = []
    for item in items:
        if item.id and (other := ids.setdefault(item.id, item)) is not item:
            raise ConfigError(f"{item.where}: id {item.id!r} is that of {other.where}, too")
        first = texts.setdefault(item.statement, item)
        if item.answer != first.answer:
            otherwise.append((item, f"{first.where} gives another answer to the same text"))
    return list(texts.values()), otherwise


def _problem(item: _Item, gold: Gold) -> Problem:
    meta = {
        **item.labels,
        "grader": gold.grader,
        "answer": item.answer,
        "value": gold.value,
        "points": _digest(f"{item.statement}\n{item.answer}")[:16],
        "row": item.where,
    }
    known, setup = _symbols(item, gold)
    form = _TESTS_FORM if gold.grader == "tests" else ""
    return Problem(
        id=item.id or _digest(item.statement)[:12],
        statement=item.statement + form,
        meta=meta | known,
        setup=setup,
        chance=1 / item.num_choices if item.num_choices else 0.0,
    )


def _symbols(item: _Item, gold: Gold) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what grading has to know of the symbols, and the lines that bind them."""
    names, meanings = gold.symbols.split(), gold.value.split("\n") if gold.symbols else []
    symbols, setup = settled(
        names, column=item.symbols, statement=item.statement, meanings=meanings
    )
    return {"symbols": symbols, **constant_of(item.statement, names, meanings)}, setup


def _sides(
    problems: Sequence[tuple[_Item, Problem]], data: DataConfig
) -> Mapping[Split, tuple[Problem, ...]]:
    """Split problems as the data does where it holds something out, else by a hash of the text."""
    if data.split is None and any(item.split for item, _ in problems):
        by_name = [(_side(item), problem) for item, problem in problems]
        if any(side is Split.HELD_OUT for side, _ in by_name):
            return {
                split: tuple(problem for side, problem in by_name if side is split)
                for split in Split
            }
    ordered = sorted((problem for _, problem in problems), key=lambda one: share(one.statement))
    num_held = sum(share(problem.statement) < data.held_out for problem in ordered)
    if 0 < data.held_out < 1 and len(ordered) > 1:  # a few rows have both sides, too
        num_held = min(max(num_held, 1), len(ordered) - 1)
    return {Split.HELD_OUT: tuple(ordered[:num_held]), Split.TRAIN: tuple(ordered[num_held:])}


def _side(item: _Item) -> Split:
    name = item.split.lower()
    if name not in (*_TRAIN, *_HELD_OUT):
        raise ConfigError(
            f"{item.where}: split {item.split!r}; expected one of {', '.join(_TRAIN + _HELD_OUT)}, "
            f"or --set data.split={item.split} to take these rows alone"
        )
    return Split.TRAIN if name in _TRAIN else Split.HELD_OUT


def share(statement: str) -> float:
    """Number in [0, 1) by a text alone, whatever else there is; small ones are held out."""
    hashed = hashlib.blake2b(statement.encode(), digest_size=8, person=b"split").digest()
    return int.from_bytes(hashed) / (1 << 64)


def _summary(
    name: str,
    columns: Columns,
    sides: Mapping[Split, Sequence[Problem]],
    refused: Sequence[tuple[_Item, str]],
    *,
    num_repeated: int,
) -> str:
    graders = Counter(problem.meta["grader"] for side in sides.values() for problem in side)
    parts = [
        f"problems {sum(map(len, sides.values()))}, held out {len(sides[Split.HELD_OUT])}",
        str(columns),
        "graded by " + ", ".join(f"{grader} {count}" for grader, count in graders.items()),
    ]
    if num_repeated:
        parts.append(f"repeated texts left out {num_repeated}")
    if refused:
        listed = [f"{one.where} {shorten(one.answer, 40)!r} ({why})" for one, why in refused]
        more = ", ..." if len(listed) > _NUM_LISTED else ""
        named = ", ".join(listed[:_NUM_LISTED])
        parts.append(f"refused answers {len(refused)}: {named}{more}")
    return f"{name}: {'; '.join(parts)}"


def _digest_of(items: Iterable[_Item]) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item.statement}\n{item.answer}\n".encode())
    return digest.hexdigest()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
