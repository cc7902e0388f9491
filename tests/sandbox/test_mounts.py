"""Paths that a kernel may read are enough: Python runs where nothing else exists."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from repl_sandbox.walls.view import as_mounts

pytestmark = pytest.mark.slow

NOBODY = 65534
BECOME = Path(__file__).parents[1] / "support" / "nobody.py"
SERVER_IMPORTS = "import zmq, tornado, ipykernel.kernelbase, jupyter_client.session, sympy"
LIBRARY_IMPORTS = "import lzma, bz2, ssl, hashlib, sqlite3, ctypes, decimal"
ZONE = "import zoneinfo; zoneinfo.ZoneInfo('UTC')"
LOCALE = "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')"


def _bwrap(mounts: Sequence[str]) -> list[str]:
    found = shutil.which("bwrap")
    if found is None:
        pytest.skip("bubblewrap is not installed")
    command = [found, "--unshare-all", *mounts, "--proc", "/proc", "--dev", "/dev"]
    probe = [found, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("bubblewrap is not allowed to make namespaces here")
    return [*command, "--chdir", "/", sys.executable, "-s", "-P", "-c"]


@pytest.fixture(params=["as we are", "as nobody"])
def user(request: pytest.FixtureRequest) -> list[str]:
    """Words that run a command as that user."""
    if request.param == "as we are":
        return []
    if os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    return [sys.executable, str(BECOME), str(NOBODY)]


@pytest.fixture(params=["one mount per path", "fewest mounts"])
def command(request: pytest.FixtureRequest, paths: tuple[Path, ...]) -> list[str]:
    """Words that run a source in a file system of nothing but `paths`."""
    shown, covered = as_mounts(paths) if request.param == "fewest mounts" else (paths, ())
    mounts = []
    for path in sorted({*shown, *covered}):
        mounts += ["--tmpfs", path] if path in covered else ["--ro-bind", path, path]
    return _bwrap([str(option) for option in mounts])


def _run(user: list[str], command: list[str], source: str) -> tuple[int, str]:
    done = subprocess.run(
        [*user, *command, source], env={"LANG": "C.UTF-8"}, capture_output=True, text=True
    )
    return done.returncode, done.stderr


def test_python_runs_where_nothing_else_exists(command: list[str], user: list[str]) -> None:
    source = "\n".join([SERVER_IMPORTS, LIBRARY_IMPORTS, ZONE, LOCALE])
    assert _run(user, command, source) == (0, "")


def test_nothing_else_exists_where_python_runs(command: list[str], user: list[str]) -> None:
    source = f"""
import importlib.util, os
for name in ("torch", "transformers", "repl_rl", "repl_sandbox", "pip"):
    assert importlib.util.find_spec(name) is None, name
for path in ("/etc/passwd", "/bin/sh", {__file__!r}):
    assert not os.path.exists(path), path
"""
    assert _run(user, command, source) == (0, "")
