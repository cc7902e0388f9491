"""The page of a GPU: what its cells add up to, and that a training fills them."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


def test_cells_are_rates_and_shares_of_all_steps(gpu: ModuleType) -> None:
    """1,000 tokens in 2 + 1 + 1 s of rollouts and 5 s of updates, of 10 s in all."""
    step = {"time/rollout": 1.0, "time/kernel": 0.5, "time/grading": 0.5, "time/sync": 0.25}
    step |= {"time/update": 2.5, "time/other": 0.25, "active_tokens": 500}
    found = gpu.cells([step, step], 3.25)
    assert list(found) == list(gpu.HEAD[2:])
    assert list(found.values()) == ["250", "200", "20%", "10%", "10%", "5%", "50%", "5%", "3.2"]


def test_what_was_not_measured_has_no_row(gpu: ModuleType) -> None:
    assert gpu.measured("0.6B", "no_such_engine", "cuda", math.inf) is None
    assert gpu.measured("0.6B", "hf", "cuda", -math.inf) is None
    assert gpu.page([], "a machine", "not run").endswith("in GiB.\n\n")


def test_the_section_takes_the_place_of_the_one_before(gpu: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Engines\n\n## On a GPU\n\n### Measured\nold\n")
    gpu.put(page, "### Measured\nnew\n")
    assert page.read_text() == "# Engines\n\n## On a GPU\n\n### Measured\nnew\n"


@pytest.mark.train
@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_training_fills_the_page(gpu: ModuleType, tmp_path: Path) -> None:
    given = ["--device", "cpu", "--sizes", "tiny", "--engines", "hf", "--no-tests"]
    program = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *given, "--output", "page.md"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in (tmp_path / "page.md").read_text().split("\n") if "| tiny" in line]
    _, size, engine, *numbers, peak, _ = (cell.strip() for cell in row.split("|"))
    assert (size, engine, peak) == ("tiny", "hf", gpu.NO_PEAK)
    assert all(float(number.strip("%").replace(",", "")) >= 0 for number in numbers)
    assert sum(float(number.strip("%")) for number in numbers[2:]) == pytest.approx(100, abs=3)
