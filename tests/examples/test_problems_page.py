"""The page on one's own problems: its programs run as printed; it names all that rows may hold."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from repl_rl.config import GraderName
from repl_rl.tasks.data.columns import ALIASES, SOLUTION

PAGE = (Path(__file__).parents[2] / "docs" / "problems.md").read_text()


def test_the_page_names_every_column_and_grader() -> None:
    names = [name for names in ALIASES.values() for name in names]
    assert [
        name for name in (*names, SOLUTION, *get_args(GraderName)) if f"`{name}`" not in PAGE
    ] == []


def printed(beginning: str) -> str:
    """The indented block that begins with these words."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=\n?    ))+", PAGE, re.MULTILINE)
    (found,) = (one for one in map(textwrap.dedent, blocks) if one.strip().startswith(beginning))
    return str(found).strip("\n") + "\n"


@pytest.mark.slow
def test_the_class_runs_as_printed_in_an_empty_folder(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "multiplication.py").write_text(printed("import random"))
    code, out, err = call("tasks", "multiplication:Multiplication", "-n", "1")
    assert (code, err) == (0, "")
    assert "ok  grader      0 wrong" in out


def test_the_problem_with_lemmas_is_one_as_printed(tmp_path: Path) -> None:
    program = printed("import repl_rl as rr") + "print(problem.id, len(problem.lemmas))\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "chain-85 2\n"
