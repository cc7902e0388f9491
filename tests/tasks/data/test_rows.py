"""Laws of files of rows: they are read as they stand, and what is no row is named by its line."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from repl_rl.errors import ConfigError
from repl_rl.tasks.data.columns import MAX_ROW_BYTES, DataRow, read_rows
from repl_rl.tasks.data.texts import answer_of

pytestmark = pytest.mark.slow


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        list(read_rows(path))
    return str(refused.value)


def test_each_line_is_a_row_with_its_number(tmp_path: Path) -> None:
    """Blank lines count, as they do in an editor; a mark of the byte order does not."""
    path = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"a": "1"}\r\n\n{"a": "\xc3\xa9"}')
    assert list(read_rows(path)) == [
        DataRow("a.jsonl:1", {"a": "1"}),
        DataRow("a.jsonl:3", {"a": "\u00e9"}),
    ]


def test_numbers_keep_all_their_digits(tmp_path: Path) -> None:
    digits = "123456789" * 5
    path = write(tmp_path / "a.jsonl", f'{{"a": {digits}, "b": 0.10, "c": [1e3], "d": true}}')
    (row,) = read_rows(path)
    assert row.values == {"a": digits, "b": "0.10", "c": ["1e3"], "d": True}


def test_a_list_in_one_file_is_read_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '[{"a": 1},\n {"a": 2}]')
    assert [(row.where, row.values) for row in read_rows(path)] == [
        ("a.json: row 1", {"a": "1"}),
        ("a.json: row 2", {"a": "2"}),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a": "\xff"}', "a.jsonl:2: not UTF-8: byte 8 of it; save the file as UTF-8"),
        (b'{"a": NaN}', "a.jsonl:2: not JSON: NaN is no number"),
        (b'{"a": -Infinity}', "a.jsonl:2: not JSON: -Infinity is no number"),
        (b'{"a": ', "a.jsonl:2: not JSON: Expecting value, column 7"),
        (b"what?", "a.jsonl:2: not JSON: Expecting value, column 1"),
        (b"[1, 2]", "a.jsonl:2: expected a row, an object with columns as its keys"),
        (b"7", "a.jsonl:2: expected a row, an object with columns as its keys"),
        (
            b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
            "a.jsonl:2: not a row: lists in lists too deep to be read",
        ),
        (
            b'{"a": "' + b"x" * (50 << 20) + b'"}',
            f"a.jsonl:2: a row of more than {MAX_ROW_BYTES >> 20} MiB",
        ),
    ],
    ids=["utf-8", "nan", "infinity", "cut", "words", "list", "number", "deep", "50 MB"],
)
def test_a_row_that_is_none_is_named_by_its_line(tmp_path: Path, line: bytes, message: str) -> None:
    assert refusal(write(tmp_path / "a.jsonl", b'{"a": 1}\n' + line + b"\n")) == message


def test_an_object_is_no_list_of_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '{"data": []}')
    assert refusal(path) == ("a.json: expected a list of rows, or one row a line in a .jsonl")


def test_a_value_of_parquet_that_python_cannot_hold_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    late = pyarrow.array([2**62], pyarrow.int64()).cast(pyarrow.timestamp("ms"))
    path = tmp_path / "late.parquet"
    parquet.write_table(pyarrow.table({"problem": ["p"], "when": late}), path)
    with pytest.raises(ConfigError, match=r"late\.parquet: no parquet that can be read: "):
        list(read_rows(path))


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    values = [{"q": "one", "m": {"truth": "1"}}, {"q": "two", "m": {"truth": "2"}}]
    parquet.write_table(pyarrow.Table.from_pylist(values), path)
    assert list(read_rows(path)) == [
        DataRow("a.parquet: row 1", values[0]),
        DataRow("a.parquet: row 2", values[1]),
    ]


def test_a_decimal_is_an_answer() -> None:
    assert answer_of(Decimal("3.50")) == "3.50"


def test_what_is_not_available_is_no_answer() -> None:
    """Read as mathematics it would be a quotient of two unknowns."""
    with pytest.raises(ValueError, match="no answer"):
        answer_of("N/A")


def test_what_only_is_called_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write(tmp_path / "a.parquet", json.dumps({"a": 1}))
    assert re.match(r"a\.parquet: no parquet that can be read: ", refusal(path))


def test_without_its_library_parquet_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.lib", "pyarrow.parquet"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    said = refusal(write(tmp_path / "a.parquet", b"PAR1"))
    assert "needs the package pyarrow" in said
    assert said.endswith("pip install --editable ./sandbox --editable '.[data]'")


# Tables


def test_a_table_is_rows_below_their_names(tmp_path: Path) -> None:
    """A number keeps its digits; a quoted cell may hold commas, quotes and several lines."""
    content = '\ufeffproblem,answer\r\n"1, 2 ""and""\n3?",0.10\r\n\r\n4?,\r\n'
    assert list(read_rows(write(tmp_path / "a.csv", content))) == [
        DataRow("a.csv:2", {"problem": '1, 2 "and"\n3?', "answer": "0.10"}),
        DataRow("a.csv:5", {"problem": "4?", "answer": ""}),
    ]
    assert list(read_rows(write(tmp_path / "a.tsv", "problem\tanswer\n1, 2\t3\n"))) == [
        DataRow("a.tsv:2", {"problem": "1, 2", "answer": "3"})
    ]


@pytest.mark.parametrize("between", [",", ";", "\t"])
@pytest.mark.parametrize("above", ["", "\r\n\r\n"])
def test_the_row_of_names_says_what_stands_between_cells(
    tmp_path: Path, between: str, above: str
) -> None:
    """Spreadsheets write semicolons where numbers have commas, and tables are pasted with tabs."""
    content = "\ufeff" + above + "problem,answer\n2?,4\n".replace(",", between)
    assert list(read_rows(write(tmp_path / "a.csv", content))) == [
        DataRow(f"a.csv:{2 + above.count(chr(10))}", {"problem": "2?", "answer": "4"})
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a,b\n1\n",
            "a.csv:2: 1 cells in a table of 2 columns; put a cell in quotes if it holds the "
            "separator",
        ),
        (b"a,b\n1,2\n1,2,3\n", "a.csv:3: 3 cells in a table of 2 columns; "),
        (b"a,a\n1,2\n", "a.csv:1: two columns are named 'a'; expected a name for each"),
        (b'a,b\n"1"2,3\n', "a.csv:2: no row of cells: "),
        (b'a,b\n1,2\n"3,4\n', "a.csv:3: no row of cells: "),
        (b"a,b\n1,\xff\n", "a.csv: not UTF-8 from line 1 on; save the file as UTF-8"),
    ],
)
def test_what_is_no_table_is_named_by_its_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    assert refusal(write(tmp_path / "a.csv", content)).startswith(message)
