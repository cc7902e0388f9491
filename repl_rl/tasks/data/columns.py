"""Rows of data, and the columns whose roles a config names or usual names tell.

    file -> rows;  all rows, DataConfig -> Columns;  a row -> the values of these columns

Knows files and names. Does not know what makes a good statement or a good answer.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError, how_to_install

MAX_ROW_BYTES = 1 << 24
"""A row with a long solution has a thousandth of it."""
MAX_FILE_BYTES = 1 << 30
"""Most bytes of a .json file, which is read as a whole."""

_BOM = b"\xef\xbb\xbf"
_SAVE = "save the file as UTF-8"


@dataclass(frozen=True, slots=True)
class DataRow:
    """One row as it stands in its source."""

    where: str
    """Such as `rows.jsonl:7`."""
    values: Mapping[str, Any]  # whatever JSON holds, numbers as text


def read_rows(path: Path) -> Iterator[DataRow]:
    """The rows of a file, in its order. Raises ConfigError where it cannot be read."""
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        elif path.suffix == ".json":
            yield from _json(path)
        elif path.suffix in (".csv", ".tsv"):
            yield from _table(path, delimiters=",;\t" if path.suffix == ".csv" else "\t")
        else:
            yield from _json_lines(path)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror or error}") from None


def digest(path: Path) -> str:
    """sha256 of the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json_lines(path: Path) -> Iterator[DataRow]:
    number = 0
    with path.open("rb") as file:
        while line := file.readline(MAX_ROW_BYTES + 1):
            number += 1
            where = f"{path.name}:{number}"
            if len(line) > MAX_ROW_BYTES:
                raise ConfigError(f"{where}: a row of more than {MAX_ROW_BYTES >> 20} MiB")
            if number == 1:
                line = line.removeprefix(_BOM)
            if not line.isspace():
                yield _row(where, _decoded(where, line.rstrip(b"\r\n")))


def _json(path: Path) -> Iterator[DataRow]:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ConfigError(
            f"{path.name}: more than {MAX_FILE_BYTES >> 30} GiB; expected a .jsonl file, which is "
            f"read row by row"
        )
    rows = _decoded(path.name, path.read_bytes().removeprefix(_BOM))
    if not isinstance(rows, list):
        raise ConfigError(f"{path.name}: expected a list of rows, or one row a line in a .jsonl")
    for number, values in enumerate(rows, 1):
        yield _row(f"{path.name}: row {number}", values)


def _table(path: Path, *, delimiters: str) -> Iterator[DataRow]:
    """Rows below a row of names, as spreadsheets write them; quoted cells may have more lines.

    The first of `delimiters` that stands in the row of names parts the cells.
    """
    csv.field_size_limit(MAX_ROW_BYTES)
    names: list[str] = []
    line = 1
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            while (head := file.readline(MAX_ROW_BYTES)).isspace():
                pass  # `csv` leaves out blank lines as well
            file.seek(0)
            delimiter = next((one for one in delimiters if one in head), delimiters[0])
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for cells in reader:
                where, line = f"{path.name}:{line}", reader.line_num + 1
                if not names:
                    names = _names(where, cells)
                elif len(cells) == len(names):
                    yield DataRow(where, dict(zip(names, cells, strict=True)))
                elif cells:
                    raise ConfigError(
                        f"{where}: {len(cells)} cells in a table of {len(names)} columns; put a "
                        f"cell in quotes if it holds the separator"
                    )
        except UnicodeDecodeError:
            raise ConfigError(f"{path.name}: not UTF-8 from line {line} on; {_SAVE}") from None
        except csv.Error as error:
            raise ConfigError(f"{path.name}:{line}: no row of cells: {error}") from None


def _names(where: str, cells: list[str]) -> list[str]:
    twice = [name for name in cells if cells.count(name) > 1]
    if twice:
        raise ConfigError(f"{where}: two columns are named {twice[0]!r}; expected a name for each")
    return cells


def _parquet(path: Path) -> Iterator[DataRow]:
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ConfigError(
            f"{path.name}: reading parquet needs the package pyarrow, which is not installed; make "
            f"it a .jsonl file, or {how_to_install('data')}"
        ) from None
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for values in batch.to_pylist():
                    number += 1
                    yield _row(f"{path.name}: row {number}", values)
    except ConfigError:
        raise
    except (pyarrow.lib.ArrowException, ValueError, ArithmeticError, LookupError) as error:
        message = str(error).partition("\n")[0]
        raise ConfigError(f"{path.name}: no parquet that can be read: {message}") from None


def _decoded(where: str, text: bytes) -> Any:
    """JSON, or ConfigError; NaN, which JSON does not have, is none."""
    try:
        return json.loads(
            text.decode(), parse_constant=_refuse, parse_int=str, parse_float=str, strict=False
        )
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not UTF-8: byte {error.start + 1} of it; {_SAVE}") from None
    except json.JSONDecodeError as error:
        position = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}"
        raise ConfigError(f"{where}: not JSON: {error.msg}, {position}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: not a row: lists in lists too deep to be read") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _row(where: str, values: Any) -> DataRow:
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected a row, an object with columns as its keys")
    return DataRow(where, values)


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
"""Column that ends in the answer, for a row without one of its own."""
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

    def value(self, row: DataRow, role: str) -> Any:
        """Cell of the row for `role`, None where the role has no column, or an answer is empty.

        Raises ConfigError where the row lacks the column, or another of the same meaning differs.
        """
        column = self.taken.get(role)
        if column is None:
            return None
        value = row.values.get(column)
        for other in self.rivals.get(role, ()):
            rival = row.values.get(other)
            if not is_empty(rival) and not is_empty(value) and value != rival:
                raise ConfigError(
                    f"{row.where}: {column!r} and {other!r} may both be the {role}, and differ; "
                    f"name one with --set data.{role}={column}"
                )
        if value is None and role in _MUST_AGREE and (role != "answer" or column not in row.values):
            raise ConfigError(f"{row.where}: no {role}: column {column!r} is missing or empty")
        return value


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
        self._first: DataRow | None = None

    def selected(self, row: DataRow) -> DataRow:
        """The row with what may be taken of it alone; `a.b` stands for `b` inside of `a`."""
        self._first = self._first or row
        names = [name for aliases in self._aliases.values() for name in aliases]
        values = {name: lookup(row.values, name) for name in names if has(row.values, name)}
        self._holding.update(name for name, value in values.items() if not is_empty(value))
        return DataRow(row.where, values)

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
        if row.where.partition(":")[0].endswith((".csv", ".tsv")):
            names += " in its first line, which names the columns"
        return ConfigError(
            f"{row.where}: no {role}: {why}; it has {names}; name one with --set data.{role}=COLUMN"
        )


def lookup(values: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of `a.b` inside of column `a`; None where it is not there."""
    if column in values:
        return values[column]
    value: Any = values
    for part in column.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def has(values: Mapping[str, Any], column: str) -> bool:
    """Say whether there is such a column, empty or not."""
    return column in values or lookup(values, column) is not None


def is_empty(value: Any) -> bool:
    """Say whether a cell holds nothing. Some data sets have a column that is always empty.

    A structure of empty cells is one: `{"text": [], "label": []}` is how tables say "no choices".
    """
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value is None or value in ("", [])
