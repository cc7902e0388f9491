"""Installing a checkout, by the Makefile's own lines: no index is asked for a name of ours.

Until it is taken by a release, and wherever a mirror lacks it, a name of ours on an index may be
anybody's. The index here is on loopback. It has what a checkout depends on, as shells without code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from documents import ROOT, project
from installed_wheels import closure, pack
from loopback_index import LoopbackIndex, normalised, serve

pytestmark = pytest.mark.slow

OURS = {"repl-rl", "repl-sandbox"}
CHECKOUT = ("Makefile", "LICENSE", "README.md", "constraints.txt", "pyproject.toml")
BUILDS = ("hatchling", "editables")


def expanded(requirements: Iterable[str]) -> Iterator[str]:
    """Requirements of a checkout, with those of the extras that they name among our own."""
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    for text in requirements:
        one = Requirement(text)
        if normalised(one.name) not in OURS:
            yield text
        for extra in one.extras if normalised(one.name) in OURS else ():
            yield from expanded(extras[extra])


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of all that `make train` installs beside us; tools that build us are whole."""
    folder = tmp_path_factory.mktemp("dependencies")
    base = project()["dependencies"]
    assert isinstance(base, list)
    whole = closure(BUILDS)
    for name, one in {**closure(expanded([*base, "repl-rl[train,replay]"])), **whole}.items():
        pack(one, folder, whole=name in whole)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As a clone has it: without environments and what was built."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in CHECKOUT:
        shutil.copy(ROOT / name, folder)
    for name in ("repl_rl", "sandbox", "prompts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(index: LoopbackIndex, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env={**index.environment, "PIP_NO_CACHE_DIR": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_make_asks_no_index_for_a_name_of_ours(checkout: Path, dependencies: Path) -> None:
    pytest.importorskip("editables")
    with serve([dependencies]) as index:
        done = run(index, checkout, "make", ".venv/.installed", f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"torch", "hatchling", "sympy", "trl", "textual"} <= set(index.requested)
    assert OURS.isdisjoint(index.requested)
    python = checkout / ".venv" / "bin" / "python"
    code = "import repl_rl, repl_sandbox; print(repl_rl.__file__, repl_sandbox.__file__)"
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=os.sep)
    assert shown.stdout.split() == [
        str(checkout / "repl_rl" / "__init__.py"),
        str(checkout / "sandbox" / "repl_sandbox" / "__init__.py"),
    ]


def test_the_trainer_alone_would_ask_for_the_kernels(checkout: Path, dependencies: Path) -> None:
    """The law above can fail: this is the call that it forbids."""
    pytest.importorskip("editables")
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    with serve([dependencies]) as index:
        done = run(index, checkout, *pip, "--editable", ".")
    assert "No matching distribution found for repl-sandbox==" in done.stderr
    assert OURS.intersection(index.requested) == {"repl-sandbox"}
