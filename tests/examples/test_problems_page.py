"""The page on one's own problems: its programs run as printed; it names all that rows may hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from documents import ROOT, programs
from repl_rl.config.sections import GraderName
from repl_rl.tasks.data.columns import ALIASES, SOLUTION

PAGE = ROOT / "docs" / "problems.md"


def test_the_page_names_every_column_and_grader() -> None:
    text, names = PAGE.read_text(), [name for names in ALIASES.values() for name in names]
    assert [
        name for name in (*names, SOLUTION, *get_args(GraderName)) if f"`{name}`" not in text
    ] == []


@pytest.mark.slow
def test_the_class_runs_as_printed_in_an_empty_folder(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    (program,) = (one for one in programs(PAGE) if one.title == "multiplication.py")
    (tmp_path / "multiplication.py").write_text(program.text)
    code, out, err = call("tasks", "multiplication:Multiplication", "-n", "1")
    assert (code, err) == (0, "")
    assert "ok  grader      0 wrong" in out
