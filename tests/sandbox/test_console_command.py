"""The command shown to a person who wants to attach to a kernel works in their shell."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from repl_sandbox import console
from repl_sandbox.console import console_command, missing_console

FILE = Path("/dev/shm/a b/connection.json")


@pytest.fixture
def python(tmp_path, monkeypatch):
    """`python(is_activated)`: one whose folder, with a `jupyter` in it, is on PATH or is not."""

    def make(*, is_activated):
        programs = tmp_path / "my env" / "bin"
        programs.mkdir(parents=True)
        put_jupyter(programs)
        monkeypatch.setattr(sys, "executable", str(programs / "python"))
        monkeypatch.setenv("PATH", str(programs) if is_activated else str(tmp_path / "none"))
        return f"'{programs}/python'"

    return make


def put_jupyter(folder):
    (folder / "jupyter").touch(mode=0o755)


def test_in_an_activated_environment_the_command_is_the_short_one(python):
    python(is_activated=True)
    assert console_command(FILE) == f"jupyter console --existing '{FILE}'"


def test_without_one_the_command_names_this_python(python):
    this = python(is_activated=False)
    assert console_command(FILE) == f"{this} -m jupyter_console --existing '{FILE}'"


def test_a_jupyter_of_another_python_is_not_taken_for_ours(python, tmp_path, monkeypatch):
    this = python(is_activated=False)
    put_jupyter(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert console_command(FILE) == f"{this} -m jupyter_console --existing '{FILE}'"


def test_a_console_beside_this_python_and_not_on_the_path_is_not_missing(python, monkeypatch):
    python(is_activated=False)
    monkeypatch.setattr(console, "find_spec", {"jupyter_console": "a spec"}.get)
    assert missing_console() is None


def test_a_missing_console_comes_with_the_command_that_installs_it(python, monkeypatch):
    this = python(is_activated=False)
    monkeypatch.setattr(console, "find_spec", {}.get)
    assert missing_console() == f"{this} -m pip install jupyter-console"


@pytest.mark.skipif(find_spec("jupyter_console") is None, reason="jupyter-console is not installed")
def test_the_command_starts_a_console_where_nothing_is_on_the_path(tmp_path, monkeypatch):
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
