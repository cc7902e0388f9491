"""How a person's Jupyter client finds a living kernel: an address, a key, a file, a command.

Newborn -> connection file -> jupyter console --existing FILE

Whoever can read the file can run code in the kernel. Code in the kernel may know the key too, since
it lies in memory. So each kernel has a key of its own, which signs nothing but the messages to and
from that kernel. Knows Jupyter's names, and imports nothing of Jupyter. Does not know who attaches.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from repl_sandbox.host.started_kernel import Newborn
from repl_sandbox.sockets import PORTS


def address(folder: Path) -> dict[str, object]:
    """Where the kernel of this folder listens, as the fields of a connection file."""
    return {"transport": "ipc", "ip": str(folder / "s"), **PORTS}


def console_command(connection: Path) -> str:
    """The shell command by which a person attaches to the kernel of this file."""
    found = shutil.which("jupyter")
    is_ours = found is not None and Path(found).parent == Path(sys.executable).parent
    # If no environment is activated, the console may lie beside this Python and not on PATH.
    client = "jupyter console" if is_ours else f"{_this_python()} -m jupyter_console"
    return f"{client} --existing {shlex.quote(str(connection))}"


def missing_console() -> str | None:
    """How to install Jupyter's console for this Python; None if it is there."""
    if find_spec("jupyter_console") is not None:
        return None
    return f"{_this_python()} -m pip install jupyter-console"


def _this_python() -> str:
    return shlex.quote(sys.executable)


def write_connection_file(newborn: Newborn) -> Path:
    """The file, in the kernel's folder and removed with it. Nobody but its owner may read it.

    Write it before the kernel runs foreign code: without walls, that could put a file there.
    """
    assert newborn.is_console, "it has no heartbeat: a client would take it for dead"
    path = newborn.folder / "connection.json"
    signing = {"signature_scheme": "hmac-sha256", "key": newborn.key.decode()}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(address(newborn.folder) | signing, file)
    return path
