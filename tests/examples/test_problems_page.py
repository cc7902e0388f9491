"""The commands of the page on one's own problems run as they stand there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from repl_rl.config import GraderName
from repl_rl.tasks.data.columns import ALIASES, SOLUTION
from small_run import small
from tiny_model import save_tiny_model

RUN = "from repl_rl.commands.cli import main; main()"
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "problems.md").read_text()
COMMANDS = [row.split()[1:] for row in PAGE.splitlines() if row.startswith("    repl-rl ")]


def test_the_page_names_every_column_and_grader() -> None:
    names = [name for names in ALIASES.values() for name in names]
    assert [
        name for name in (*names, SOLUTION, *get_args(GraderName)) if f"`{name}`" not in PAGE
    ] == []


@pytest.mark.train
@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_every_command_runs(tmp_path: Path) -> None:
    pytest.importorskip("latex2sympy2_extended")
    examples = shutil.copytree(ROOT / "examples", tmp_path / "examples")
    save_tiny_model(tmp_path / "model")
    assert len(COMMANDS) == 7
    for words in COMMANDS:
        given = [str(tmp_path / "model") if word == "MODEL" else word for word in words]
        settings = small(eval__problems=2) if words[0] in ("train", "eval") else []
        ended = subprocess.run(
            [*(sys.executable, "-P", "-c", RUN), *given, *settings],
            cwd=examples,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert ended.returncode == 0, (words, ended.stderr)
