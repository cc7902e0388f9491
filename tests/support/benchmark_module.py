"""Modules of `benchmarks/`, which are scripts and no package."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def benchmark_module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import one as its own command would: beside the others."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(name)
