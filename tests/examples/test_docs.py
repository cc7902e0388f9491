"""The programs that documents show run as they stand there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import documents

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).parents[2]


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
    (program,) = documents.programs(ROOT / "sandbox" / "README.md")
    walls, *rows = filter(None, run(program.text).split("\n"))
    assert walls.startswith(("strict: ", "basic: "))
    assert rows == ["{2: 3, 3: 1, 5: 1}", "timeout", "2"]
