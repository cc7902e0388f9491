"""Columns and their roles: named by the config, or found by the names that data sets use.

    all rows, DataConfig -> Columns;  Row -> the values of these columns

Knows names alone. Does not know what makes a good statement or a good answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.tasks.data.rows import Row

ALIASES: Mapping[str, tuple[str, ...]] = {
    "statement": ("statement", "prompt", "question", "problem", "Question", "Problem", "input"),
    "answer": (
        *("answer", "ground_truth", "expected_answer", "final_answer"),
        *("reward_model.ground_truth", "label", "Answer", "answerKey"),
    ),
    "id": ("id", "unique_id", "extra_info.index"),
    "family": ("subject", "type", "data_source", "dataset", "source"),
    "tier": ("level", "difficulty"),
    "split": ("split", "extra_info.split"),
    "grader": ("grader",),
    "symbols": ("symbols",),
    "choices": ("choices", "options"),
}
SOLUTION = "solution"
"""Where a row has no answer of its own, it ends in one."""
TESTS = ("tests", "test", "test_list")
"""Before answers, for the grader `tests`."""
_MUST_AGREE = ("statement", "answer")
_NUM_NAMED = 12
"""Columns that an error lists."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The column of each role; a role without one is left out."""

    taken: Mapping[str, str]
    rivals: Mapping[str, tuple[str, ...]]
    """Further columns that go by names of the same role. They must hold the same."""

    @property
    def answers_are_solutions(self) -> bool:
        """Say whether an answer stands at the end of a text."""
        return self.taken["answer"] == SOLUTION

    def __str__(self) -> str:
        return ", ".join(f"{role} {column!r}" for role, column in self.taken.items())

    def value(self, row: Row, role: str) -> Any:
        """Cell of the row for `role`, None where the role has no column, or an answer is empty.

        Raises ConfigError where the row lacks the column, or another of the same meaning differs.
        """
        column = self.taken.get(role)
        if column is None:
            return None
        found = row.values.get(column)
        for other in self.rivals.get(role, ()):
            rival = row.values.get(other)
            if not is_empty(rival) and not is_empty(found) and found != rival:
                raise ConfigError(
                    f"{row.where}: {column!r} and {other!r} may both be the {role}, and differ; "
                    f"name one with --set data.{role}={column}"
                )
        if found is None and role in _MUST_AGREE and (role != "answer" or column not in row.values):
            raise ConfigError(f"{row.where}: no {role}: column {column!r} is missing or empty")
        return found


class ColumnFinder:
    """Counts what rows hold, one by one, and says which columns to take of them all."""

    def __init__(self, data: DataConfig) -> None:
        self._named = {"statement": data.statement, "answer": data.answer, "id": data.id}
        self._aliases: dict[str, tuple[str, ...]] = {}
        for role, aliases in ALIASES.items():
            if role == "answer":
                aliases = (*(TESTS if data.grader == "tests" else ()), *aliases, SOLUTION)
            column = self._named.get(role)
            self._aliases[role] = (column,) if column else aliases
        self._holding = Counter[str]()
        self._first: Row | None = None

    def kept(self, row: Row) -> Row:
        """The row with what may be taken of it alone; `a.b` stands for `b` inside of `a`."""
        self._first = self._first or row
        names = [name for aliases in self._aliases.values() for name in aliases]
        found = {name: lookup(row.values, name) for name in names if has(row.values, name)}
        self._holding.update(name for name, value in found.items() if not is_empty(value))
        return Row(row.where, found)

    def columns(self) -> Columns:
        """Column of each role: the one that most rows fill, and of several the first.

        Raises ConfigError where one is missing.
        """
        taken, rivals = {}, {}
        for role, aliases in self._aliases.items():
            there = [name for name in self._holding if name in aliases]
            if role == "answer" and len(there) > 1:  # solutions are read where nothing else is
                there = [name for name in there if name != SOLUTION]
            if not there and role in _MUST_AGREE:
                raise self._missing(role, aliases)
            if there:
                taken[role] = max(there, key=lambda name: self._holding[name])
                rivals[role] = tuple(
                    name for name in there if role in _MUST_AGREE and name != taken[role]
                )
        return Columns(taken, rivals)

    def _missing(self, role: str, aliases: Sequence[str]) -> ConfigError:
        row = self._first
        assert row is not None, "asked after the first row"
        there = [name for name in aliases if has(row.values, name)]
        if there:
            why = f"column {there[0]!r} is empty in every row"
        elif self._named.get(role):
            why = f"there is no column {aliases[0]!r}"
        else:
            why = f"expected one of {', '.join(name for name in aliases if name != SOLUTION)}"
        names = ", ".join(map(repr, list(row.values)[:_NUM_NAMED])) or "no columns"
        return ConfigError(
            f"{row.where}: no {role}: {why}; it has {names}; name one with --set data.{role}=COLUMN"
        )


def lookup(values: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of `a.b` inside of column `a`; None where it is not there."""
    if column in values:
        return values[column]
    found: Any = values
    for part in column.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def has(values: Mapping[str, Any], column: str) -> bool:
    """Say whether there is such a column, empty or not."""
    return column in values or lookup(values, column) is not None


def is_empty(value: Any) -> bool:
    """Say whether a cell holds nothing. Some data sets have a column that is always empty."""
    return value is None or value in ("", [])
