"""Matplotlib's folder beside kernels: nobody but its owner may change what is read there."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from repl_sandbox.host.fork_server_client import make_runtime_folder
from repl_sandbox.host.started_kernel import remove_folder
from repl_sandbox.jupyter.front_ends import FOLDER, LIST, offer_fonts

pytest.importorskip("matplotlib")
NOBODY = 65534
CHANGES = f"""
import os, sys
from pathlib import Path
os.setgid({NOBODY}); os.setuid({NOBODY})
folder = Path(sys.argv[1])
ways = {{
    "settings": lambda: (folder / "matplotlibrc").write_text("backend: module://theirs"),
    "other settings": lambda: os.replace(theirs, folder / "matplotlibrc"),
    "a style": lambda: (folder / "stylelib" / "x.mplstyle").write_text("axes.grid: True"),
    "other styles": lambda: os.rename(folder / "stylelib", folder / "gone"),
    "the list": lambda: next(folder.glob("{LIST}")).write_text("{{}}"),
    "no list": lambda: next(folder.glob("{LIST}")).unlink(),
}}
theirs = folder / "theirs"
theirs.touch()
for name, change in ways.items():
    try:
        change()
    except OSError:
        continue
    print(name)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's folder is open to other users")
def test_another_user_changes_nothing_that_matplotlib_reads() -> None:
    runtime = make_runtime_folder()
    try:
        (folder,) = offer_fonts(runtime, {"PATH": "/usr/bin:/bin", "HOME": str(runtime)})
        program = [sys.executable, "-S", "-c", CHANGES, str(folder)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    finally:
        remove_folder(runtime)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_folder_of_an_ordinary_user_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "runtime").mkdir(mode=0o700)
    offer_fonts(tmp_path / "runtime", {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    runtime, folder = (
        stat.S_IMODE((tmp_path / "runtime" / name).stat().st_mode) for name in ("", FOLDER)
    )
    assert runtime == 0o700
    assert folder & 0o022 == 0
