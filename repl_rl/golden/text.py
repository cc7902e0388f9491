r"""Read golden transcripts: a text format that looks like a REPL.

    === a syntax error costs, the retry does not
    verdict: proved
    outcome: 1.0

    >>> solve(x**2 - 4, x))
    <- syntax_error -0.3
    SyntaxError: unmatched ')'
    >>> submit_final_answer([-2, 2])
    <- submitted 0

Knows the format, which docs/files.md gives field by field. Does not know any rewards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repl_rl.base.plugins import nearest
from repl_rl.errors import ConfigError
from repl_rl.records import MAX_CHANCE, OutcomeKind, StopReason, VerdictKind

SUFFIX = ".repl"
NONE = "none"
"""Written where there is no verdict, or no outcome reward."""

_TITLE, _EXPECT, _ESCAPE = "===", "<-", "\\"
_PRIMARY, _SECONDARY = ">>>", "..."
_PREAMBLE_KEYS = ("config", "set")
_STATEMENT = "statement"
_HEAD_KEYS = ("verdict", "chance", "outcome", "stop", "submission", _STATEMENT)
_ENTRY = re.compile(r"([a-z_]+):\s*(.*?)\s*")
_NUMBER = re.compile(r"([-+]?[\d.]+(?:e[-+]?\d+)?)(?:/([\d.]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenValue:
    """A value that the author wrote, and where."""

    value: float | str | None
    """None is written `none`."""
    number: int
    """Number of its line in the file, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenLine:
    """A line that the model wrote, what the interpreter answered, what it should be worth."""

    number: int
    source: str
    """The line as it would be sampled: with the space after the prompt and the newline."""
    is_continued: bool
    """True where it stands at `...`."""
    output: str = ""
    """Ends in a newline unless empty."""
    output_rows: tuple[str, ...] = ()
    """The lines of the output as they stand in the file, backslashes included."""
    kind: OutcomeKind | None = None
    """None, here and below, where it is not checked."""
    reward: float | None = None
    expect_number: int = 0
    """Number of the line in the file where kind and reward are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One transcript of a file."""

    title: str
    number: int
    lines: tuple[GoldenLine, ...]
    head: Mapping[str, WrittenValue]
    statement: str = ""
    """Statement of the problem; empty: the title states it."""

    @property
    def chance(self) -> float:
        """Chance of a guess, as in `Problem.chance`."""
        written = self.head.get("chance")
        return written.value if written is not None and isinstance(written.value, float) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile:
    """The transcripts of a file. They count as siblings of one group."""

    path: Path
    goldens: tuple[Golden, ...]
    config_files: tuple[Path, ...] = ()
    overrides: tuple[str, ...] = ()


class _Fault(Exception):
    """Fault in a line of a file."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def find_files(paths: Iterable[Path]) -> list[Path]:
    """The paths themselves; of a folder, all `*.repl` below it. ConfigError where there is none."""
    files: list[Path] = []
    for path in paths:
        below = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not below:
            raise ConfigError(f"no *{SUFFIX} file in {str(path)!r}")
        files += below
    return files


def read_file(path: Path) -> GoldenFile:
    """ConfigError, with file and line, where it is not what the format says."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from None
    try:
        return parse(text, path)
    except _Fault as fault:
        raise ConfigError(f"{path}:{fault.number}: {fault}") from None


@dataclass(slots=True)
class _Section:
    """A title and the numbered lines below it; the preamble of a file has no title."""

    title: str
    number: int
    rows: list[tuple[int, str]] = field(default_factory=list)


def parse(text: str, path: Path) -> GoldenFile:
    """The transcripts in `text`; `path` names them in errors, and `config:` is relative to it."""
    preamble, *sections = _cut(text)
    entries = list(_entries(preamble.rows, _PREAMBLE_KEYS, after=f"`{_TITLE} TITLE`"))
    if not sections:
        raise _Fault(preamble.number, f"no transcript here; expected `{_TITLE} TITLE`")
    seen: dict[str, int] = {}
    for section in sections:
        if (first := seen.setdefault(section.title, section.number)) != section.number:
            raise _Fault(section.number, f"the title {section.title!r} is that of line {first} too")
    return GoldenFile(
        path=path,
        goldens=tuple(map(_golden, sections)),
        config_files=tuple(path.parent / value for _, key, value in entries if key == "config"),
        overrides=tuple(value for _, key, value in entries if key == "set"),
    )


def _cut(text: str) -> list[_Section]:
    sections = [_Section("", 1)]
    for number, row in enumerate(text.split("\n"), 1):
        if row.startswith(f"{_TITLE} ") or row == _TITLE:
            title = row.removeprefix(_TITLE).strip()
            if not title:
                raise _Fault(number, f"a title is missing; expected `{_TITLE} TITLE`")
            sections.append(_Section(title, number))
        else:
            sections[-1].rows.append((number, row))
    for section in sections:
        # Above a title and at the end of a file: the next one's comment, not the last one's output.
        while section.rows and _is_aside(section.rows[-1][1]):
            section.rows.pop()
    return sections


def _is_aside(row: str) -> bool:
    return not row.strip() or row.startswith("#")


def _entries(
    rows: Iterable[tuple[int, str]], keys: tuple[str, ...], *, after: str
) -> Iterator[tuple[int, str, str]]:
    """(line number, key, value) of rows that are `key: value`, comments and blanks left out."""
    for number, row in rows:
        if _is_aside(row):
            continue
        entry = _ENTRY.fullmatch(row)
        if entry is None:
            expected = ", ".join(f"`{key}: ...`" for key in keys)
            raise _Fault(number, f"{row!r}; expected {expected}, a comment or {after}")
        if entry[1] not in keys:
            raise _Fault(number, f"unknown key {entry[1]!r}; {_hint(entry[1], keys)}")
        yield number, entry[1], entry[2]


def _golden(section: _Section) -> Golden:
    prompts = (i for i, (_, row) in enumerate(section.rows) if row.startswith(_PRIMARY))
    start = next(prompts, len(section.rows))
    head, statement = _head(section.rows[:start])
    if start == len(section.rows):
        raise _Fault(section.number, f"{section.title!r} has no line; expected `{_PRIMARY} SOURCE`")
    return Golden(
        title=section.title,
        number=section.number,
        lines=tuple(_lines(section.rows[start:])),
        head=head,
        statement=statement,
    )


def _head(rows: Iterable[tuple[int, str]]) -> tuple[dict[str, WrittenValue], str]:
    head: dict[str, WrittenValue] = {}
    statement: list[str] = []
    for number, key, text in _entries(rows, _HEAD_KEYS, after=f"`{_PRIMARY} SOURCE`"):
        if key == _STATEMENT:
            statement.append(text)
            continue
        if key in head:
            raise _Fault(number, f"a second {key!r}; the first is in line {head[key].number}")
        head[key] = WrittenValue(value=_head_value(key, text, number), number=number)
    return head, "\n".join(statement)


def _head_value(key: str, text: str, number: int) -> float | str | None:
    if key == "submission" or (text == NONE and key not in ("stop", "chance")):
        return None if text == NONE else text
    if key == "chance":
        return _chance(text, number)
    if key == "outcome":
        return _number(text, number)
    return _word(text, VerdictKind if key == "verdict" else StopReason, number)


def _lines(rows: list[tuple[int, str]]) -> Iterator[GoldenLine]:
    """Each source with what stands below it, down to the next."""
    i = 0
    while i < len(rows):
        number, row = rows[i]
        i += 1
        kind = reward = None
        expect_number = number
        if i < len(rows) and rows[i][1].startswith(_EXPECT):
            expect_number, text = rows[i]
            kind, reward = _expectation(text, expect_number)
            i += 1
        output_rows: list[str] = []
        # Directly below a source `...` asks for more; below an output it is output.
        while i < len(rows) and not _is_source(rows[i][1], is_first=not output_rows):
            output_rows.append(rows[i][1])
            i += 1
        yield GoldenLine(
            number=number,
            source=row[len(_PRIMARY) :] + "\n",
            is_continued=row.startswith(_SECONDARY),
            output="".join(f"{line.removeprefix(_ESCAPE)}\n" for line in output_rows),
            output_rows=tuple(output_rows),
            kind=kind,
            reward=reward,
            expect_number=expect_number,
        )


def _is_source(row: str, *, is_first: bool) -> bool:
    return row.startswith(_PRIMARY) or (
        is_first and (row == _SECONDARY or row.startswith(f"{_SECONDARY} "))
    )


def _expectation(row: str, number: int) -> tuple[OutcomeKind | None, float | None]:
    """`<- KIND REWARD # comment`; kind or reward may be missing."""
    words = row.removeprefix(_EXPECT).partition("#")[0].split()
    if not 1 <= len(words) <= 2:
        raise _Fault(number, f"{row!r}; expected `{_EXPECT} OUTCOME REWARD` or one of the two")
    kind = None
    if len(words) == 2 or not _NUMBER.fullmatch(words[0]):
        kind = OutcomeKind(_word(words.pop(0), OutcomeKind, number))
    return kind, _number(words[0], number) if words else None


def _word(text: str, choices: type[OutcomeKind | VerdictKind | StopReason], number: int) -> str:
    known = [str(choice) for choice in choices]
    if text in known:
        return text
    raise _Fault(number, f"unknown word {text!r}; {_hint(text, known)}")


def _number(text: str, number: int) -> float:
    """`-0.3`, or `-0.12/0.7` for what has no short decimals."""
    match = _NUMBER.fullmatch(text)
    try:
        value = float(match[1]) / float(match[2] or 1) if match else math.nan
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise _Fault(number, f"{text!r}; expected a number such as -0.3 or -0.4/3")
    return value


def _chance(text: str, number: int) -> float:
    value = _number(text, number)
    if not 0 <= value <= MAX_CHANCE:
        raise _Fault(number, f"{text!r}; expected a chance from 0 to {MAX_CHANCE}, such as 1/2")
    return value


def _hint(word: str, known: Iterable[str]) -> str:
    return nearest(word, known, otherwise=f"expected one of {', '.join(known)}")
