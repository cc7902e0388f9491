"""A docstring opens with an imperative or with the noun that it is about."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from documents import ROOT

PACKAGES = (ROOT / "repl_rl", ROOT / "sandbox" / "repl_sandbox")
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
ELLIPTIC = re.compile(
    r"(what|whether|how|as|those|of|who|why|which|whom|where|see|the same)\b", re.IGNORECASE
)
"""Openings of a sentence whose subject stands elsewhere."""


def elliptic_openings(source: str) -> list[str]:
    """First lines of such docstrings, of a module, its classes and its functions."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, documented)
    ]
    return [text.splitlines()[0] for text in docstrings if ELLIPTIC.match(text)]


def test_an_elliptic_opening_is_found_wherever_a_docstring_stands() -> None:
    source = '''"""Of it."""
class Sum:
    """The same twice."""
    async def add(self):
        """Where it ends.

        More.
        """
def total():
    """Seed of the sum, whether or not it is one."""
'''
    assert elliptic_openings(source) == ["Of it.", "The same twice.", "Where it ends."]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_docstring_opens_with_an_imperative_or_a_noun(path: Path) -> None:
    assert elliptic_openings(path.read_text()) == []
