"""Laws of the page on deaths and stalls: its tests are there, and nothing asks the wall clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from documents import ROOT

PAGE = ROOT / "docs" / "design" / "deaths.md"
NAMED = re.findall(r"^\|.*\| `(\S+\.py)::(\w+)(?:\[(.+)\])?` \|$", PAGE.read_text(), re.MULTILINE)
"""File, function and parameter of each row, in order; no parameter is ""."""
WALL_CLOCK = {"time", "time_ns", "now", "utcnow", "today"}
"""Functions of `time`, `datetime` and `date` that somebody who sets the clock changes."""


def test_at_least_sixty_deaths_have_a_test_and_no_two_of_them_the_same() -> None:
    rows = re.findall(r"^\| (?!who |--)", PAGE.read_text().replace("|--", "| --"), re.MULTILINE)
    assert len(NAMED) == len(set(NAMED)) == len(rows) >= 60


@pytest.mark.parametrize("file", sorted({file for file, _, _ in NAMED}))
def test_every_test_that_the_page_names_is_there(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    named = [(function, parameter) for of, function, parameter in NAMED if of == file]
    assert [function for function, _ in named if function not in functions] == []
    values = set(parameters(tree))
    assert [parameter for _, parameter in named if parameter and parameter not in values] == []


def parameters(tree: ast.AST) -> Iterator[str]:
    """Texts and names in a file, of which pytest makes the names of parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            yield str(node.value)
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_nothing_asks_the_wall_clock_but_for_the_names_of_run_folders() -> None:
    asked = []
    for room in ("repl_rl", "sandbox/repl_sandbox"):
        for path in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(path.read_text())
            asked += [f"{path.relative_to(ROOT)}: {text}" for text in wall_clocks(tree)]
    assert asked == ["repl_rl/runs/folder.py: datetime.now"]


def wall_clocks(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in WALL_CLOCK:
            module = ast.unparse(node.value)
            if module in ("time", "datetime", "date", "datetime.datetime", "datetime.date"):
                yield f"{module}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"time.{one.name}" for one in node.names if one.name in WALL_CLOCK)
