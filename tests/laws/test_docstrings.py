"""A docstring opens with an imperative or with the noun that it is about.

A docstring of a constant or a field is the string under its assignment.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from documents import ROOT

PACKAGES = (ROOT / "repl_rl", ROOT / "sandbox" / "repl_sandbox")
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
ELLIPTIC = re.compile(
    r"(what|whether|how|as|those|of|who|why|which|whom|where|see|the same)\b", re.IGNORECASE
)
"""Openings of a sentence whose subject stands elsewhere."""
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def elliptic_openings(source: str) -> list[str]:
    """First lines of such docstrings: of a module, its classes, functions and attributes."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, Documented)]
    docstrings = [
        text for node in nodes for text in (ast.get_docstring(node) or "", *attribute_docs(node))
    ]
    return [text.splitlines()[0] for text in docstrings if ELLIPTIC.match(text)]


def attribute_docs(node: Documented) -> Iterator[str]:
    """Strings under assignments in the body of a module, a class or an `__init__`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
        return
    for above, below in pairwise(node.body):
        if not isinstance(above, ast.Assign | ast.AnnAssign):
            continue
        match below:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield inspect.cleandoc(text)


def test_an_elliptic_opening_is_found_wherever_a_docstring_stands() -> None:
    source = '''"""Of it."""
class Sum:
    """The same twice."""
    total: int = 0
    """Of all."""
    def __init__(self):
        self.parts = []
        """What is added."""
    async def add(self):
        """Where it ends.

        More.
        """
def total():
    """Seed of the sum, whether or not it is one."""
    value = 1
    "see above"
MOST = 9
"""How many, at most."""
'''
    assert set(elliptic_openings(source)) == {
        *("Of it.", "How many, at most.", "The same twice.", "Of all."),
        *("What is added.", "Where it ends."),
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_docstring_opens_with_an_imperative_or_a_noun(path: Path) -> None:
    assert elliptic_openings(path.read_text()) == []
