"""Laws of the page of reference: it is what the code says, and nothing is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    names = [name for name, _ in commands()]
    assert {"repl-rl train", "repl-rl replay", "repl-rl reward explain"} <= set(names)
    assert "repl-rl reward" not in names
    assert [name for name in names if text.count(f"\n### {name}\n") != 1] == []


def test_a_bar_within_a_cell_does_not_end_it(text: str) -> None:
    for row in text.splitlines():
        if row.startswith("| `"):
            assert row.replace("\\|", "").count("|") == 5, row
