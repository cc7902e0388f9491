"""Documents speak of what is there: links, settings, metrics, commands, names, rows of a screen."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import repl_rl
from documents import (
    DESIGN,
    DOCUMENTS,
    GENERATED,
    PAGES,
    ROOT,
    Shown,
    commands,
    files_named,
    headings,
    indented,
    is_there,
    num_words,
    programs,
    project,
    sentences,
)
from metric_table import METRICS, SECTIONS
from repl_rl.commands.cli import cli
from repl_rl.config.describe import settings
from repl_rl.config.resolve import resolve
from repl_rl.viewer.show.display import ROWS

SHOWN = [shown for document in DOCUMENTS for shown in commands(document)]


def by_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(document: Path) -> None:
    text = re.sub(r"^    .*$|`[^`]*`", "", document.read_text(), flags=re.MULTILINE)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        name, _, anchor = target.partition("#")
        found = (document.parent / name).resolve() if name else document
        assert found.is_file(), target
        assert not anchor or anchor in headings(found), target


@pytest.mark.parametrize("document", [*PAGES, ROOT / "README.md"], ids=by_name)
def test_every_setting_that_is_named_exists(document: Path) -> None:
    """A name in backticks whose first part is a section is a setting, or a key of a table."""
    sections = {one.key for one in settings() if one.is_section}
    keys = {one.key for one in settings()}
    tables = {one.key for one in settings() if one.kind.startswith("table")}
    named = re.findall(r"`([a-z_]+\.[a-z_.]+)[^`]*`", document.read_text())
    assert [
        name
        for name in named
        if name.partition(".")[0] in sections
        and name not in keys
        and name.rpartition(".")[0] not in tables
    ] == []


@pytest.mark.parametrize("document", [*PAGES, ROOT / "README.md"], ids=by_name)
def test_every_metric_that_is_named_exists(document: Path) -> None:
    patterns = {one.name for rows in SECTIONS.values() for one in rows}
    kinds = {name.partition("/")[0] for name in patterns if "/" in name}
    named = re.findall(r"`([a-z_]+/[a-z_/<>]*[a-z_>])`", document.read_text())
    assert [
        name
        for name in named
        if name.partition("/")[0] in kinds and name not in METRICS.keys() | patterns
    ] == []


def test_every_row_of_the_screen_is_explained() -> None:
    page = (ROOT / "docs" / "run.md").read_text()
    explained = "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    assert [row.label for row in ROWS if f"`{row.label.strip()}`" not in explained] == []


def test_every_public_name_is_in_the_page_on_python() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    names = [name for name in repl_rl.__all__ if name != "__version__"]
    assert [name for name in names if page.count(f"\n::: repl_rl.{name}\n") != 1] == []


def test_the_site_has_every_page_and_no_other() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]
    assert sorted(pages_of(site["nav"])) == sorted(pages)
    assert len(PAGES) - len(DESIGN) <= 20
    assert len(DESIGN) == 9


def pages_of(nav: list[dict[str, Any]]) -> Iterator[str]:
    """Paths of a site's pages; those of a section stand in a list."""
    for path in (path for one in nav for path in one.values()):
        yield from [path] if isinstance(path, str) else pages_of(path)


def test_the_architecture_is_read_in_one_go() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200


def test_the_lists_of_the_architecture_are_as_long_as_they_say() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    first, way = (text.partition(f"## {title}")[2].partition("\n## ")[0] for title in LISTS)
    assert len(set(re.findall(r"^\| `([\w/]+\.py)` \|", first, re.MULTILINE))) == 16
    (said,) = re.findall(r": (\d+), and the task's", way)
    assert len(set(re.findall(r"`([\w/]+\.py)`", way))) == int(said)


LISTS = ("Read these sixteen files first", "The way of one line")
HOLDS_FILES = (ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *DESIGN)
OF_RUNS = ("checkpoints/", "trajectories/", "config.toml")
"""What a run's folder holds."""


@pytest.mark.parametrize("document", HOLDS_FILES, ids=by_name)
def test_every_file_that_is_named_exists(document: Path) -> None:
    metrics = METRICS.keys() | {one.name for rows in SECTIONS.values() for one in rows}
    named = [
        name
        for name in files_named(document.read_text())
        if name not in metrics and not name.startswith(OF_RUNS)
    ]
    assert [name for name in named if not is_there(name)] == []
    assert named


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert pictures
    assert [one.name for one in pictures if one.stat().st_size > 150_000] == []


# Commands that no test runs; tests/e2e/test_documents.py runs the others


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.ours is not None], ids=str)
def test_every_command_of_ours_is_one(shown: Shown) -> None:
    """Its options exist, and so do the settings that it gives."""
    words = shown.ours
    assert words is not None
    # Click keeps a command's first help option: it is to be the one that a person gets.
    parent = click.Context(cli, **cli.context_settings)
    command: click.Command | None = cli
    name = "repl-rl"
    while isinstance(command, click.Group):
        name = words.pop(0)
        command = command.get_command(parent, name)
    assert command is not None
    given = command.make_context(name, words, parent=parent).params
    resolve(overrides=given.get("overrides", ()))


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.words[0] == "make"], ids=str)
def test_every_target_of_make_exists(shown: Shown) -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{re.escape(shown.words[1])}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.words[0] == "pip"], ids=str)
def test_every_extra_exists(shown: Shown) -> None:
    of_sandbox = "repl-sandbox" in shown.words[-1]
    extras = project(ROOT / "sandbox" if of_sandbox else ROOT)["optional-dependencies"]
    assert isinstance(extras, dict)
    for names in re.findall(r"\[(.*)\]", shown.words[-1]):
        assert set(names.split(",")) <= extras.keys()


SAID = [*DOCUMENTS, *ROOT.glob("examples/*"), *ROOT.glob("repl_rl/**/*.py"), ROOT / "Makefile"]
INSTALLS = (*SAID, ROOT / ".ci/check-install", ROOT / "repl_rl/integrations/openenv/Dockerfile")
INDEX = ("README.md", "docs/index.md", "repl_rl/errors.py", "sandbox/README.md")
"""Where a name of ours may be asked of an index: there a release is told from a checkout."""


def test_an_index_is_named_where_a_release_is_told_from_a_checkout() -> None:
    told = re.compile(r"repl-(?:rl|sandbox)\[|pip install (?:-\S+ )*'?repl[-_](?:rl|sandbox)")
    texts = {by_name(one): one.read_text() for one in SAID if one.is_file()}
    assert [name for name in texts if told.search(texts[name]) and name not in INDEX] == []


def test_whoever_installs_a_checkout_installs_both_distributions_in_one_call() -> None:
    """Else pip asks an index for the kernels, and anybody may have taken their name there."""
    texts = {by_name(one): one.read_text() for one in INSTALLS if one.is_file()}
    checkout = re.compile(
        r"^.*(?:(?:--editable|-e) '?\.[\[ `\n]|[ /]'?(?:\.|/src)\[\w).*$", re.MULTILINE
    )
    calls = [(name, row) for name in texts for row in checkout.findall(texts[name])]
    assert len(calls) >= 15
    both = re.compile(r"\$\(SANDBOX\) |(?:--editable |-e |dry .*)\./sandbox|/src/sandbox ")
    assert [one for one in calls if not both.search(one[1])] == []


# Programs: tests/e2e/test_documents.py runs them


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if one != GENERATED], ids=by_name)
def test_python_stands_in_fences_where_it_is_run(document: Path) -> None:
    """Indented text is a command, a transcript, a file: no program that no test runs."""
    hidden = [
        block
        for block in indented(document)
        if re.search(r"^(?:import|from|class|async def|def|with|for) .*[\w:]$", block, re.MULTILINE)
        and is_python(block)
    ]
    assert hidden == []


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_every_program_is_python(document: Path) -> None:
    for program in programs(document):
        ast.parse(program.text)
        rows = program.text.splitlines()
        assert max(map(len, rows)) <= 110, "a page has room for so many"


# Sentences

MOST_WORDS = 35
AWKWARD = ("what it came to", "in the manner of", "of one's own")
"""Phrases that stop whoever reads a page aloud."""
PROSE = (*DOCUMENTS, ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("document", PROSE, ids=by_name)
def test_every_sentence_is_read_in_one_breath(document: Path) -> None:
    found = sentences(document.read_text())
    assert [one for one in found if num_words(one) > MOST_WORDS] == []
    assert found


@pytest.mark.parametrize("document", PROSE, ids=by_name)
def test_no_page_has_an_awkward_phrase(document: Path) -> None:
    said = " ".join(" ".join(sentences(document.read_text())).lower().split())
    assert [phrase for phrase in AWKWARD if phrase in said] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Is two\nsplit? Yes!\n\nAnd four", ["One.", "Is two split?", "Yes!", "And four"]),
        ("At 0.5 M, says Chen et al. 2021, e.g. 1 ... 3. pip ends", [
            "At 0.5 M, says Chen et al. 2021, e.g. 1 ... 3.", "pip ends"
        ]),
        ("Run `a.b`, `c. d\ne`, ``f ` g``. See [the page](a.md#b. c).", [
            "Run code, code, code.", "See the page."
        ]),
        ("**Bold.** (In brackets.) Then", ["**Bold.", "(In brackets.", "Then"]),
        ("# A title\nText\n## Next", ["# A title", "Text", "## Next"]),
        ("Rows:\n\n| a | b c |\n|--|--|\n| `x \\| y` z | |\n", ["Rows:", "a", "b c", "code z"]),
        ("Text:\n- one\n  more\n1. two. Three\n", ["Text:", "one more", "two.", "Three"]),
        ("Before:\n\n    code. Code\n\n    code\n\nafter", ["Before:", "after"]),
        ("- a\n\n  b\n\n      code\n\n    c\n\nd\n\n    code", ["a", "b", "c", "d"]),
        ("A\n    hanging row\n\n    code", ["A hanging row"]),
        ("A\n```python\ncode. Code\n```\nB\n\n::: a.b\n\nC", ["A", "B", "C"]),
    ],
)  # fmt: skip
def test_a_text_is_split_into_its_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [("", 0), ("--|-- * :", 0), ("One - two's 3 % (four).", 4), ("a_b/c.d-e, f", 2)],
)
def test_words_are_what_blanks_divide(sentence: str, expected: int) -> None:
    assert num_words(sentence) == expected


# The site


@pytest.mark.slow
def test_the_site_builds_and_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("repl_rl", "sandbox"):
        (tmp_path / name).symlink_to(ROOT / name)
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "site"
    built_from = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES}
    pages = {
        path.relative_to(site).with_suffix("").as_posix(): path.read_text()
        for path in site.rglob("*.html")
    }
    assert built_from <= pages.keys()
    assert re.findall(r'(?:src|href)="((?:https?:)?//[^"]*)"', "".join(pages.values())) == []
    assert 'id="repl_rl.Episode.take"' in pages["python"]
    assert 'id="repl_sandbox.KernelPool.acquire"' in pages["python"]
