"""The programs that documents show run as they stand there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import documents

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).parents[2]


def programs(name: str) -> list[str]:
    """The indented blocks of a document that are whole programs."""
    blocks: list[list[str]] = [[]]
    for row in (ROOT / name).read_text().split("\n"):
        if row.startswith("    ") or (not row and blocks[-1]):
            blocks[-1].append(row)
        elif blocks[-1]:
            blocks.append([])
    texts = [textwrap.dedent("\n".join(block)) for block in blocks]
    return [text for text in texts if "asyncio.run(main())" in text]


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_program_of_the_page_on_python_runs() -> None:
    shown = run(documents.programs(ROOT / "docs" / "python.md")[0].text)
    assert ">>> # Work in steps" in shown
    assert "(x - 2)*(x + 2)\n>>> ok_output 0.0\n" in shown
    assert "Verdict(" in shown


def test_the_program_on_kernels_runs() -> None:
    (program,) = programs("sandbox/README.md")
    walls, *rows = filter(None, run(program).split("\n"))
    assert walls.startswith(("strict: ", "basic: "))
    assert rows == ["120", "timeout", "2"]
