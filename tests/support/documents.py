"""The documents, and the commands that stand in their blocks of code."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DESIGN = tuple(sorted((ROOT / "docs" / "design").glob("*.md")))
PAGES = (*sorted((ROOT / "docs").glob("*.md")), *DESIGN)
DOCUMENTS = (
    *PAGES,
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "sandbox" / "README.md",
)
GENERATED = ROOT / "docs" / "reference.md"
PROGRAMS = ("repl-rl", "make", "torchrun", "accelerate", "vllm", "jupyter", "pip", "python")


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as it stands in a document."""

    document: str
    words: tuple[str, ...]
    """Without variables of the environment before the program, and without a comment behind."""
    environment: tuple[tuple[str, str], ...] = ()
    """Those variables."""

    @property
    def ours(self) -> list[str] | None:
        """The arguments of `repl-rl`, which another program may start; None where there is none."""
        if self.words[0] not in ("repl-rl", "torchrun", "accelerate"):
            return None
        return list(self.words[self.words.index("repl-rl") + 1 :])

    def __str__(self) -> str:
        return f"{self.document}: {shlex.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Program:
    """A block of Python as it stands in a document."""

    document: str
    line: int
    """Of the document, from 1."""
    title: str | None
    """The name of the file that a reader puts it into, where the page gives one."""
    text: str

    @property
    def is_fragment(self) -> bool:
        """Return whether its first line says that something of another project is missing."""
        return self.text.startswith("# A fragment: ")

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def programs(document: Path) -> list[Program]:
    """The fenced blocks of Python, in order."""
    text = document.read_text()
    found = re.finditer(
        r'^```python(?: title="([^"]+)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL
    )
    name = document.relative_to(ROOT).as_posix()
    return [Program(name, text.count("\n", 0, one.start()) + 1, one[1], one[2]) for one in found]


def _without_programs(document: Path) -> str:
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def indented(document: Path) -> list[str]:
    """The blocks that are set off by four spaces."""
    blocks = re.findall(r"^(?:    .*\n|\n)+", _without_programs(document), re.MULTILINE)
    return [text for block in blocks if (text := textwrap.dedent(block).strip())]


@cache
def commands(document: Path) -> list[Shown]:
    """In the order of the document, each once. A row that ends in a backslash goes on below."""
    if document == GENERATED:
        return []  # what it has indented is the help of commands
    text = re.sub(r"\\\n\s*", "", _without_programs(document))
    name = document.relative_to(ROOT).as_posix()
    found = [_shown(name, row) for row in re.findall(r"^    (\S.*)$", text, re.MULTILINE)]
    return [shown for shown in dict.fromkeys(found) if shown is not None]


def _shown(document: str, row: str) -> Shown | None:
    """None where the row is no command."""
    bare = re.sub(r"^(?:[A-Z_]+=\S* +)+", "", row)
    if bare.partition(" ")[0] not in PROGRAMS:
        return None
    variables = re.findall(r"([A-Z_]+)=(\S*)", row.removesuffix(bare))
    return Shown(document, tuple(shlex.split(bare, comments=True)), tuple(variables))


def files_named(text: str) -> list[str]:
    """Files and folders that a text names in backticks, by a path or by an ending of ours."""
    named = re.findall(r"`([a-zA-Z.][\w.-]*(?:/[\w.-]+)*/?)`", text)
    return [name for name in named if "/" in name or name.endswith((".py", ".md", ".toml"))]


def is_there(name: str) -> bool:
    """Say whether a file or folder of this name lies in the repository or in a package of it."""
    homes = (ROOT, ROOT / "repl_rl", ROOT / "sandbox")
    return any((home / name).exists() for home in homes)


def sentences(text: str) -> list[str]:
    """Every sentence of a Markdown text; headings, cells of tables and items of lists end one.

    Code in backticks is a word, a link is its words, and blocks of code are left out.
    """
    prose = re.sub(r"^ *```.*?^ *```$|^::: .*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = [re.split(_END, _spoken(block)) for block in _blocks(prose)]
    return [one for split in found for one in split if num_words(one)]


def num_words(sentence: str) -> int:
    """Words of a sentence, as blanks divide them; a dash alone is none."""
    return sum(any(map(str.isalnum, word)) for word in sentence.split())


_ABBREVIATED = r"(?<!e\.g\.)(?<!i\.e\.)(?<!al\.)(?<!vs\.)(?<! \.\.\.)"
_END = rf"(?<=[.!?]){_ABBREVIATED}[)\"*_]*\s+"
_MARKER = re.compile(r"([-*+]|\d+\.) +")


def _spoken(block: str) -> str:
    code_as_a_word = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "code", block)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", code_as_a_word)


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, headings, cells and items, each in one row, without those set off by spaces."""
    rows: list[str] = []  # of the block that is open
    indent = 0  # of what belongs to the item of a list above
    for row in text.splitlines():
        bare = row.strip()
        depth = len(row) - len(row.lstrip())
        if bare and not rows and depth < indent:
            indent = 0
        marker = _MARKER.match(bare)
        if not bare or marker or bare.startswith(("|", "#")):
            yield " ".join(rows)
            rows = []
        if not rows and depth >= indent + 4:
            continue  # code
        if bare.startswith("|"):
            yield from map(str.strip, re.split(r"(?<!\\)\|", bare))
        elif bare.startswith("#"):
            yield bare
        elif marker:
            indent = depth + marker.end()
            rows = [bare[marker.end() :]]
        elif bare:
            rows.append(bare)
    yield " ".join(rows)


def headings(document: Path) -> set[str]:
    """Anchors of a document."""
    titles = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles}


def project(folder: Path = ROOT) -> dict[str, object]:
    """`[project]` of the distribution whose folder this is."""
    found: dict[str, object] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found
