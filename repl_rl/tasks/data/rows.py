"""Rows of a file, one by one, each with the place that an error names.

    rows.jsonl | rows.json | rows.parquet | rows.csv | rows.tsv -> Row, Row, ...

Numbers stay the text that the file has: a gold answer must not be rounded. Whatever cannot be read
is a ConfigError with file and line. Knows files. Does not know what a column means.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from repl_rl.errors import ConfigError, how_to_install

MAX_ROW_BYTES = 1 << 24
"""A row with a long solution has a thousandth of it."""
MAX_FILE_BYTES = 1 << 30
"""Of a .json file, which is read as a whole."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it stands in its source."""

    where: str
    """Such as `rows.jsonl:7`."""
    values: Mapping[str, Any]  # whatever JSON holds, numbers as text


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file, in its order. Raises ConfigError where it cannot be read."""
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        elif path.suffix == ".json":
            yield from _json(path)
        elif path.suffix in (".csv", ".tsv"):
            yield from _table(path, delimiter="," if path.suffix == ".csv" else "\t")
        else:
            yield from _json_lines(path)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror or error}") from None


def digest(path: Path) -> str:
    """sha256 of the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json_lines(path: Path) -> Iterator[Row]:
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


def _json(path: Path) -> Iterator[Row]:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ConfigError(
            f"{path.name}: more than {MAX_FILE_BYTES >> 30} GiB; expected a .jsonl file, which is "
            f"read row by row"
        )
    found = _decoded(path.name, path.read_bytes().removeprefix(_BOM))
    if not isinstance(found, list):
        raise ConfigError(f"{path.name}: expected a list of rows, or one row a line in a .jsonl")
    for number, values in enumerate(found, 1):
        yield _row(f"{path.name}: row {number}", values)


def _table(path: Path, *, delimiter: str) -> Iterator[Row]:
    """Rows below a row of names, as spreadsheets write them; quoted cells may have more lines."""
    csv.field_size_limit(MAX_ROW_BYTES)
    names: list[str] = []
    line = 1
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            for cells in reader:
                where, line = f"{path.name}:{line}", reader.line_num + 1
                if not names:
                    names = _names(where, cells)
                elif cells:
                    yield Row(where, dict(zip(names, _filling(where, names, cells), strict=True)))
        except UnicodeDecodeError:
            raise ConfigError(f"{path.name}: not UTF-8 from line {line} on") from None
        except csv.Error as error:
            raise ConfigError(f"{path.name}:{line}: no row of cells: {error}") from None


def _names(where: str, cells: list[str]) -> list[str]:
    twice = [name for name in cells if cells.count(name) > 1]
    if twice:
        raise ConfigError(f"{where}: two columns are named {twice[0]!r}; expected a name for each")
    return cells


def _filling(where: str, names: list[str], cells: list[str]) -> list[str]:
    if len(cells) != len(names):
        raise ConfigError(
            f"{where}: {len(cells)} cells in a table of {len(names)} columns; a cell that holds "
            f"what stands between cells is put in quotes"
        )
    return cells


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ConfigError(
            f"{path.name}: reading parquet takes the package pyarrow, which is not installed; "
            f"make it a .jsonl file, or {how_to_install('data')}"
        ) from None
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for values in batch.to_pylist():
                    number += 1
                    yield _row(f"{path.name}: row {number}", values)
    except pyarrow.lib.ArrowException as error:
        message = str(error).partition("\n")[0]
        raise ConfigError(f"{path.name}: no parquet that can be read: {message}") from None


def _decoded(where: str, text: bytes) -> Any:
    """JSON, or ConfigError; NaN, which JSON does not have, is none."""
    try:
        return json.loads(
            text.decode(), parse_constant=_refuse, parse_int=str, parse_float=str, strict=False
        )
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not UTF-8: byte {error.start + 1} of it") from None
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}"
        raise ConfigError(f"{where}: not JSON: {error.msg}, {place}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: not a row: lists in lists too deep to be read") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _row(where: str, values: Any) -> Row:
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected a row, an object with columns as its keys")
    return Row(where, values)
