"""Which columns hold what: named by the config, or by the names that data sets use.

    columns of the first row, DataConfig -> Columns;  Row -> the values of these columns

Knows names alone. Does not know what makes a good statement or a good answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repl_rl.config import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.tasks.data.rows import Row

ALIASES: Mapping[str, tuple[str, ...]] = {
    "statement": ("statement", "prompt", "question", "problem", "Question", "Problem", "input"),
    "answer": (
        *("answer", "ground_truth", "expected_answer", "final_answer"),
        *("reward_model.ground_truth", "label", "Answer"),
    ),
    "id": ("id", "unique_id", "extra_info.index"),
    "family": ("subject", "type", "data_source", "dataset", "source"),
    "tier": ("level", "difficulty"),
    "split": ("split", "extra_info.split"),
    "grader": ("grader",),
    "symbols": ("symbols",),
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
        """Whether an answer stands at the end of a text."""
        return self.taken["answer"] == SOLUTION

    def __str__(self) -> str:
        return ", ".join(f"{role} {column!r}" for role, column in self.taken.items())

    def value(self, row: Row, role: str) -> Any:
        """What the row has for `role`, None where the role has no column.

        Raises ConfigError where the row lacks the column, or another of the same meaning differs.
        """
        column = self.taken.get(role)
        if column is None:
            return None
        found = lookup(row.values, column)
        for other in self.rivals.get(role, ()):
            if found != (rival := lookup(row.values, other)) and rival is not None:
                raise ConfigError(
                    f"{row.where}: {column!r} and {other!r} may both be the {role}, and differ; "
                    f"name one with --set data.{role}={column}"
                )
        if found is None and role in _MUST_AGREE:
            raise ConfigError(f"{row.where}: no {role}: column {column!r} is missing or empty")
        return found


def find_columns(row: Row, data: DataConfig) -> Columns:
    """The columns of a source whose first row is `row`. Raises ConfigError where one is missing."""
    named = {"statement": data.statement, "answer": data.answer, "id": data.id}
    taken, rivals = {}, {}
    for role, aliases in ALIASES.items():
        if role == "answer" and data.grader == "tests":
            aliases = (*TESTS, *aliases)
        column = named.get(role)
        there = [column] if column else _present(row, aliases)
        if role == "answer" and not there:
            there = _present(row, (SOLUTION,))
        if not there and role in _MUST_AGREE:
            raise _missing(row, role, f"expected one of {', '.join(aliases)}")
        if column and lookup(row.values, column) is None:
            raise _missing(row, role, f"there is no column {column!r}")
        if there:
            taken[role], rivals[role] = there[0], tuple(there[1:] if role in _MUST_AGREE else ())
    return Columns(taken, rivals)


def lookup(values: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of `a.b` inside of column `a`; None where it is not there."""
    if column in values:
        return values[column]
    found: Any = values
    for part in column.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _present(row: Row, aliases: Sequence[str]) -> list[str]:
    """Those that hold something. Some data sets have a column that is always empty."""
    return [name for name in aliases if lookup(row.values, name) not in (None, "", [])]


def _missing(row: Row, role: str, why: str) -> ConfigError:
    names = ", ".join(map(repr, list(row.values)[:_NUM_NAMED])) or "no columns"
    return ConfigError(
        f"{row.where}: no {role}: {why}; it has {names}; name one with --set data.{role}=COLUMN"
    )
