"""Packages that a `.pth` file brings from another folder are as good as those beside it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from repl_sandbox.types import SandboxError
from repl_sandbox.walls import view

pytestmark = pytest.mark.kernel

HOME = Path(view.__file__).resolve().parents[2]
ASK = """
import asyncio, sys
from jupyter_client import BlockingKernelClient
from repl_sandbox.walls import bubblewrap
from repl_sandbox.jupyter.front_ends import LINES
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Isolation, Limits

if sys.argv[1] == "basic":
    bubblewrap.find = lambda: None

def ask(path):
    client = BlockingKernelClient(connection_file=str(path))
    client.load_connection_file()
    client.start_channels(hb=False, stdin=False)
    reply = client.kernel_info(reply=True, timeout=40)["content"]
    client.stop_channels()
    return reply

async def main():
    async with KernelPool(Limits(), isolation=Isolation.AUTO, front_end=LINES) as pool:
        kernel, path = await pool.acquire_console(seed=0)
        reply = await asyncio.to_thread(ask, path)
        shown = await kernel.run("import sympy, sys; 'debugpy' in sys.modules")
        print(pool.walls.level, reply["supported_features"], reply["language_info"]["version"])
        print(shown.output, end="")

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has nothing but a `.pth` to ours."""
    home = tmp_path_factory.mktemp("overlay")
    home.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


def test_a_console_answers_where_packages_lie_in_another_folder(
    overlay: Path, level: str, tmp_path: Path
) -> None:
    if level == "none":
        pytest.skip("nothing is hidden there")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(HOME)}
    done = subprocess.run(
        [str(overlay), "-c", ASK, level],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    version = sys.version.split()[0]
    assert done.stdout == f"{level} [] {version}\nFalse\n", done.stderr[-2000:]


def test_what_the_fork_server_needs_and_nobody_has_is_named() -> None:
    with pytest.raises(SandboxError, match=r"no-such-thing, .* install it for .*python"):
        view.readable_paths([], ["ipykernel", "no-such-thing"])
