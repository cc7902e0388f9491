"""Access to a kernel for a person's Jupyter client: the part of it that the trusted side has.

LINES, CELLS -> fork server: their endpoint, and a folder in which matplotlib finds its fonts
StartedKernel -> connection file -> jupyter console --existing FILE

Whoever can read the file can run code in the kernel. Code in the kernel may know the key too, since
it lies in memory. So each kernel has a key of its own, which signs nothing but the messages to and
from that kernel. Knows Jupyter's names and matplotlib's habits, and imports nothing of either. Does
not know who attaches, nor what a kernel does with a message.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from repl_sandbox.host.started_kernel import FrontEnd, Provision, StartedKernel
from repl_sandbox.types import PORTS

VARIABLE = "MPLCONFIGDIR"
FOLDER = "matplotlib"
SYSTEM_FONTS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
LIST = "fontlist-*.json"
READ = ("matplotlibrc", "stylelib")
"""Names that matplotlib reads there if they exist: a file, and a folder."""
TIMEOUT_S = 60.0


def provide_fonts(runtime: Path, environment: Mapping[str, str]) -> Provision:
    """Return what IPython's kernels need for figures."""
    own = offer_fonts(runtime, environment)
    fonts = [path for path in SYSTEM_FONTS if path.is_dir()]
    return Provision(readable=fonts, own=own, environment={VARIABLE: str(runtime / FOLDER)})


def offer_fonts(runtime: Path, environment: Mapping[str, str]) -> list[Path]:
    """Make the folder in `runtime`, and return it for kernels to read. Without matplotlib, nothing.

    No sealed kernel can write the list of fonts. matplotlib takes the folder if the user may write
    there, which is asked of permissions: Landlock refuses to write all the same.

    environment: that of a process which knows nothing of the user.
    """
    if find_spec("matplotlib") is None:
        return []
    cache = user_cache_path("repl-rl") / FOLDER
    folder = runtime / FOLDER
    folder.mkdir()
    if os.geteuid() == 0:
        _open_to_all(folder)
        runtime.chmod(0o711)
    if not any(cache.glob(LIST)):
        _make_list(cache, environment)
    for path in cache.glob(LIST):
        shutil.copyfile(path, folder / path.name)
        (folder / path.name).chmod(0o644)
    return [folder]


def _open_to_all(folder: Path) -> None:
    """Root's kernels may be other users, and so may others of this machine: nobody but root may
    change what matplotlib reads, of which a fork server may be the first reader.
    """
    file, styles = (folder / name for name in READ)
    file.touch(mode=0o644)
    styles.mkdir(mode=0o755)
    folder.chmod(0o1777)


def _make_list(folder: Path, environment: Mapping[str, str]) -> None:
    """Without a list, each kernel makes its own and says so."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", "import matplotlib.font_manager"],
            env={**environment, VARIABLE: str(folder)},
            timeout=TIMEOUT_S,
            check=False,
            capture_output=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass


def address(folder: Path) -> dict[str, object]:
    """Return the address of the kernel of this folder, as the fields of a connection file."""
    return {"transport": "ipc", "ip": str(folder / "s"), **PORTS}


def console_command(connection: Path) -> str:
    """The shell command by which a person attaches to the kernel of this file."""
    executable = shutil.which("jupyter")
    is_ours = executable is not None and Path(executable).parent == Path(sys.executable).parent
    # If no environment is activated, the console may lie beside this Python and not on PATH.
    client = "jupyter console" if is_ours else f"{_this_python()} -m jupyter_console"
    return f"{client} --existing {shlex.quote(str(connection))}"


def missing_console() -> str | None:
    """Return the command that installs Jupyter's console for this Python; None if it is there."""
    if find_spec("jupyter_console") is not None:
        return None
    return f"{_this_python()} -m pip install jupyter-console"


def _this_python() -> str:
    return shlex.quote(sys.executable)


def write_connection_file(started: StartedKernel) -> Path:
    """The file, in the kernel's folder and removed with it. Nobody but its owner may read it.

    Write it before the kernel runs foreign code: without walls, that could put a file there.
    """
    assert started.is_console, "it has no heartbeat: a client would take it for dead"
    path = started.folder / "connection.json"
    signing = {"signature_scheme": "hmac-sha256", "key": started.key.decode()}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(address(started.folder) | signing, file)
    return path


LINES = FrontEnd(
    endpoint="repl_sandbox.jupyter.lines:make_lines_kernel",
    distributions=("ipykernel", "jupyter-client", "pyzmq", "tornado", "traitlets"),
    write_connection=write_connection_file,
)
"""The REPL line by line, behind Jupyter's messages."""
CELLS = replace(
    LINES, endpoint="repl_sandbox.jupyter.cells:make_notebook_kernel", provide=provide_fonts
)
"""IPython's cells, with fonts for figures."""
