"""Lines that name a clock or a draw: behind one, no run is sure to be what it was.

    sources -> ["names a clock: time", "runs behind line 1, which names a clock: time"]

A list of words, asked of every name and text of a source. `t = time.time()` prints nothing and
changes the state, so what a line shows is no sign. Reads syntax, runs nothing, and follows no
value: a variable called `time` counts as well, and a word put together at run time is not seen. A
kernel's generators start from the trajectory's seed, and addresses are shown as ordinals: neither
is listed. Knows Python's words. Does not know outcomes: `replay.compare` finds out whether a line
did differ.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from repl_rl.records import LineOutcome, OutcomeKind
from repl_rl.transcript.format import strip_line

# Modules stand for all that they hold: whoever imports it names them first. `random` and `sys` are
# missing, as most of what they hold is the same each time.
_LISTED: Mapping[str, str] = {
    "a clock": "time timed timethis timeit timeutils datetime sched asyncio profile cProfile",
    "a draw without a seed": "secrets uuid urandom SystemRandom Random seed tempfile randMatrix "
    "default_rng RandomState SeedSequence MT19937 PCG64 PCG64DXSM Philox SFC64",
    "a place in memory": "id hash",
    "what a process uses": "gc resource tracemalloc psutil getrefcount getallocatedblocks",
    "the system": "os posix platform socket",
    "threads": "threading _thread concurrent multiprocessing signal",
    "a module by its text": "__import__ importlib import_module",
}
_KINDS = {word: kind for kind, words in _LISTED.items() for word in words.split()}
_FILES = re.compile(r"/proc\b|/sys/|/dev/u?random")
"""Paths under which the system describes itself, or draws."""
_WORD = re.compile(r"[^\W\d]\w*")

_MAX_OPEN_CHARS = 1 << 15
_MAX_SOURCE_CHARS = 1 << 14
"""A longer source is searched for words, and not parsed."""


class TooLongError(Exception):
    """A source that is not parsed."""


class _RanLine(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def outcome(self) -> LineOutcome: ...


def kernel_sources(lines: Sequence[_RanLine]) -> list[str]:
    """Sources that a kernel got, [L]: the end of the open lines before each line, then the line."""
    sources: list[str] = []
    pending = ""
    for line in lines:
        sources.append(pending + strip_line(line.source))
        is_open = line.outcome.kind is OutcomeKind.INCOMPLETE
        # Uncut, each of thousands of open lines would hold all before it: gigabytes.
        pending = f"{sources[-1]}\n"[-_MAX_OPEN_CHARS:] if is_open else ""
    return sources


def volatile_lines(sources: Sequence[str], *, setup: Iterable[str] = ()) -> list[str | None]:
    """Reasons for which each line may do something else next time, [L]; None where none is found.

    `sources` are what the kernel got, `setup` is what it had run before. Lines count from 1.
    """
    found = next(filter(None, map(_named, setup)), None)
    behind = None if found is None else f"runs behind a setup that {found}"
    reasons: list[str | None] = []
    for number, own in enumerate(naming_lines(sources), 1):
        reasons.append(own or behind)
        if own is not None and behind is None:
            behind = f"runs behind line {number}, which {own}"
    return reasons


def naming_lines(sources: Sequence[str]) -> list[str | None]:
    """The first listed word of each line, as `names a clock: time`; None where there is none, [L].

    A line of an open statement comes with the open lines before it, so the last line stands for
    the whole statement and the others ran nothing.
    """
    following = [*sources[1:], ""]
    return [
        None if source and after.startswith(f"{source}\n") else _named(source)
        for source, after in zip(sources, following, strict=False)
    ]


def _named(source: str) -> str | None:
    try:
        texts = [text for one in statements(source) for text in _texts(one)]
    except (TooLongError, RecursionError):
        texts = [source]
    for text in texts:
        for word in _WORD.findall(unicodedata.normalize("NFKC", text)):  # as the parser reads names
            # `random` holds `_urandom` and `_os`.
            if kind := _KINDS.get(word) or _KINDS.get(word.lstrip("_")):
                return f"names {kind}: {word}"
        if path := _FILES.search(text):
            return f"names the system: {path[0]}"
    return None


def _texts(statement: ast.stmt) -> Iterator[str]:
    """All names and texts in a statement."""
    for node in ast.walk(statement):
        yield from (value for value in vars(node).values() if isinstance(value, str))


def statements(source: str) -> list[ast.stmt]:
    """The statements of a source. Where it does not parse, those of its lines, without blocks.

    Raises TooLongError, and RecursionError, for a source that cannot be read.
    """
    if len(source) > _MAX_SOURCE_CHARS:
        raise TooLongError
    with warnings.catch_warnings():
        # `"\d"` or `1 is 1` in a policy's line is not worth a warning here.
        warnings.simplefilter("ignore")
        whole = _parsed(source)
        if whole is not None:
            return whole
        parts = [part for line in source.split("\n") for part in _parsed(line) or []]
        return [part for part in parts if not _has_block(part)]


def _parsed(source: str) -> list[ast.stmt] | None:
    try:
        return ast.parse(source).body
    # A NUL byte is a ValueError, deep nesting a MemoryError: a kernel runs neither.
    except (SyntaxError, ValueError, MemoryError):
        return None


def _has_block(node: ast.stmt) -> bool:
    inner = (ast.stmt, ast.ExceptHandler, ast.match_case)
    return any(isinstance(part, inner) for part in ast.iter_child_nodes(node))
