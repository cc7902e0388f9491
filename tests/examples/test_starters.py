"""`benchmarks/starters.py` makes and measures starters, and leaves the scripts as they were."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.kernel
@pytest.mark.train
@pytest.mark.slow
def test_a_recipe_is_measured_on_held_out_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("starters")
    usual = script.scripts.SKILL
    sizes = ("--demonstrations", "16", "--steps", "2", "--hidden-size", "48", "--skill", "0.25")
    given = ("--problems", "4", "--attempts", "2", "--output", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["starters.py", *sizes, *given])
    script.main()
    (row,) = map(json.loads, (tmp_path / "starters.jsonl").read_text().splitlines())
    assert (row["demonstrations"], row["steps"], row["skill"]) == (16, 2, 0.25)
    assert {"all", "identity", "equation", "modular", "calculus"} <= set(row)
    assert usual == script.scripts.SKILL
