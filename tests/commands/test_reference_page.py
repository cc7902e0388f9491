"""Laws of the page of reference: it is what the code says, nothing is left out, in short words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from repl_rl.commands.cli import cli
from repl_rl.commands.reference_page import commands, page
from repl_rl.config.describe import settings

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


@pytest.fixture(scope="module")
def text() -> str:
    """The page, which takes a tenth of a second to make."""
    return page()


def test_the_document_is_what_the_code_says(text: str) -> None:
    assert DOCUMENT.read_text() == text, "make reference writes it"


def test_every_setting_has_a_row_or_a_heading(text: str) -> None:
    chapter = text.partition("## Commands")[0]
    places = {
        one.key: chapter.count(f"\n| `{one.key}` |") + chapter.count(f"\n### `[{one.key}]`\n")
        for one in settings()
    }
    assert {key: number for key, number in places.items() if number != 1} == {}


def test_every_command_has_its_help_those_within_a_group_included(text: str) -> None:
    names = [name for name, _ in commands("repl-rl", cli)]
    assert {"repl-rl train", "repl-rl replay", "repl-rl reward explain"} <= set(names)
    assert "repl-rl reward" not in names
    assert [name for name in names if text.count(f"\n### {name}\n") != 1] == []


def test_a_bar_within_a_cell_does_not_end_it(text: str) -> None:
    for row in text.splitlines():
        if row.startswith("| `"):
            assert row.replace("\\|", "").count("|") == 5, row


MOST_WORDS = 35


def long_sentences(text: str) -> list[str]:
    """Sentences of more words than a reader takes in at once; an expression in backticks is one."""
    whole = re.sub(r"`[^`]*`", "CODE", text)
    paragraphs = (" ".join(one.split()) for one in re.split(r"\n\s*\n", whole))
    sentences = [one for text in paragraphs for one in re.split(r"(?<=[.?!])\s+", text)]
    return [one for one in sentences if len(re.findall(r"\S*\w\S*", one)) > MOST_WORDS]


def command_texts(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """(command and option, help) of a command, its options, and all commands within it."""
    yield name, command.help or ""
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{name} {option.opts[0]}", option.help or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            one = command.get_command(context, inner)
            assert one is not None
            yield from command_texts(f"{name} {inner}", one)


def test_a_sentence_is_long_from_the_36th_word_on() -> None:
    just = " ".join(["word"] * 33) + " `two words` end."
    assert long_sentences(f"Short. {just} Short.") == []
    assert long_sentences(f"Short. One {just}\n\nShort.") == [
        "One " + just.replace("`two words`", "CODE")
    ]


def test_no_help_of_a_command_or_an_option_has_a_long_sentence() -> None:
    texts = dict(command_texts("repl-rl", cli))
    assert {"repl-rl train --resume", "repl-rl reward explain"} <= set(texts)
    assert {name: found for name, text in texts.items() if (found := long_sentences(text))} == {}


def test_no_doc_of_a_setting_has_a_long_sentence() -> None:
    found = {one.key: long_sentences(one.doc) for one in settings()}
    assert {key: sentences for key, sentences in found.items() if sentences} == {}


def test_every_option_has_a_help() -> None:
    assert [name for name, text in command_texts("repl-rl", cli) if not text] == []
