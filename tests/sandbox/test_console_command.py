"""The command shown to a person who wants to attach to a kernel works in their shell."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import pytest

from repl_sandbox.jupyter import front_ends
from repl_sandbox.jupyter.front_ends import console_command, missing_console

FILE = Path("/dev/shm/a b/connection.json")


class MakePython(Protocol):
    def __call__(self, *, is_activated: bool) -> str: ...


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePython:
    """`python(is_activated)`: one whose folder, with a `jupyter` in it, is on PATH or is not."""

    def make(*, is_activated: bool) -> str:
        programs = tmp_path / "my env" / "bin"
        programs.mkdir(parents=True)
        put_jupyter(programs)
        monkeypatch.setattr(sys, "executable", str(programs / "python"))
        monkeypatch.setenv("PATH", str(programs) if is_activated else str(tmp_path / "none"))
        return f"'{programs}/python'"

    return make


def put_jupyter(folder: Path) -> None:
    (folder / "jupyter").touch(mode=0o755)


def test_in_an_activated_environment_the_command_is_the_short_one(python: MakePython) -> None:
    python(is_activated=True)
    assert console_command(FILE) == f"jupyter console --existing '{FILE}'"


def test_without_one_the_command_names_this_python(python: MakePython) -> None:
    this = python(is_activated=False)
    assert console_command(FILE) == f"{this} -m jupyter_console --existing '{FILE}'"


def test_a_jupyter_of_another_python_is_not_taken_for_ours(
    python: MakePython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = python(is_activated=False)
    put_jupyter(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert console_command(FILE) == f"{this} -m jupyter_console --existing '{FILE}'"


def test_a_console_beside_this_python_and_not_on_the_path_is_not_missing(
    python: MakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    python(is_activated=False)
    monkeypatch.setattr(front_ends, "find_spec", {"jupyter_console": "a spec"}.get)
    assert missing_console() is None


def test_a_missing_console_comes_with_the_command_that_installs_it(
    python: MakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = python(is_activated=False)
    monkeypatch.setattr(front_ends, "find_spec", {}.get)
    assert missing_console() == f"{this} -m pip install jupyter-console"


@pytest.mark.skipif(find_spec("jupyter_console") is None, reason="jupyter-console is not installed")
def test_the_command_starts_a_console_where_nothing_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    started = subprocess.run(
        [*shlex.split(console_command(tmp_path / "no kernel.json")), "--version"],
        cwd=tmp_path,
        env={"PATH": os.defpath, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert started.stdout.strip() == version("jupyter-console")
