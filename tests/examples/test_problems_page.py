"""The page on one's own problems names all that rows may hold."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from repl_rl.config import GraderName
from repl_rl.tasks.data.columns import ALIASES, SOLUTION

PAGE = (Path(__file__).parents[2] / "docs" / "problems.md").read_text()


def test_the_page_names_every_column_and_grader() -> None:
    names = [name for names in ALIASES.values() for name in names]
    assert [
        name for name in (*names, SOLUTION, *get_args(GraderName)) if f"`{name}`" not in PAGE
    ] == []
