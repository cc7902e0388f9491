"""Kernels need nothing of Jupyter, unless who opens the pool brings a front end of it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import packaging
import pytest

import repl_sandbox
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.front_ends import LINES
from repl_sandbox.jupyter.serve import read_request
from repl_sandbox.types import Isolation, Limits, SandboxError

HOME = Path(repl_sandbox.__path__[0])
JUPYTER = ("IPython", "ipykernel", "jupyter_client", "zmq", "tornado", "traitlets")
LOADED = "import sys; sorted({JUPYTER} & {{name.partition('.')[0] for name in sys.modules}})"
IMPORT_ALL = """
import importlib, pathlib, sys
home = pathlib.Path(sys.argv[1])
for path in sorted(home.rglob("*.py")):
    parts = path.relative_to(home.parent).with_suffix("").parts
    if "jupyter" not in parts:
        importlib.import_module(".".join(parts).removesuffix(".__init__"))
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
RUN_A_LINE = """
import asyncio, importlib.util, sys
from repl_sandbox import Isolation, KernelPool
from repl_sandbox.walls import bubblewrap

if sys.argv[1] == "basic":
    bubblewrap.find = lambda: None
for name in sys.argv[2:]:
    assert importlib.util.find_spec(name) is None, name

async def main():
    isolation = Isolation.NONE if sys.argv[1] == "none" else Isolation.AUTO
    async with KernelPool(preload=(), isolation=isolation) as pool:
        kernel = await pool.acquire()
        print(pool.walls.level, (await kernel.run("6 * 7")).output, end="")

asyncio.run(main())
"""


def test_all_outside_the_front_end_is_imported_without_jupyter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(HOME)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(JUPYTER) & set(done.stdout.split()) == set()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has our package, what it must have, and no Jupyter."""
    home = tmp_path_factory.mktemp("bare")
    home.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    for found in Path(packaging.__path__[0]).parent.glob("packaging*"):
        (site / found.name).symlink_to(found)
    (site / "ours.pth").write_text(f"{HOME.parent}\n")
    return home / "bin" / "python"


@pytest.mark.kernel
def test_a_pool_works_where_nothing_of_jupyter_can_be_imported(
    bare_python: Path, level: str
) -> None:
    done = subprocess.run(
        [str(bare_python), "-c", RUN_A_LINE, level, *JUPYTER],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == f"{level} 42\n", done.stderr[-2000:]


def in_a_pool(use: Callable[[SupervisedKernel], Awaitable[str]], isolation: Isolation) -> str:
    async def run() -> str:
        async with KernelPool(Limits(), preload=(), isolation=isolation) as pool:
            return await use(await pool.acquire(seed=0))

    return asyncio.run(run())


@pytest.mark.kernel
def test_a_kernel_without_a_front_end_holds_nothing_of_jupyter(isolation: Isolation) -> None:
    async def use(kernel: SupervisedKernel) -> str:
        return (await kernel.run(LOADED.format(JUPYTER=set(JUPYTER)))).output

    assert in_a_pool(use, isolation) == "[]\n"


@pytest.mark.kernel
@pytest.mark.parametrize("name", JUPYTER)
def test_a_sealed_kernel_without_a_front_end_finds_nothing_of_jupyter(
    unfronted: Callable[[str], str], name: str
) -> None:
    assert f"No module named '{name}'" in unfronted(f"import {name}")


@pytest.fixture(scope="module")
def unfronted(loop_runner: asyncio.Runner) -> Iterator[Callable[[str], str]]:
    """Output of a line in a sealed kernel without a front end."""
    pool = loop_runner.run(KernelPool(Limits(), preload=()).__aenter__())
    kernel = loop_runner.run(pool.acquire(seed=0))
    yield lambda line: loop_runner.run(kernel.run(line)).output
    loop_runner.run(pool.aclose())


@pytest.mark.kernel
def test_a_pool_without_a_front_end_has_no_consoles_and_says_what_gives_it_one() -> None:
    async def run() -> None:
        async with KernelPool(Limits(), preload=(), isolation=Isolation.NONE) as pool:
            await pool.acquire_console(seed=0)

    with pytest.raises(ValueError, match=r"no front end.*front_end=repl_sandbox\.jupyter\."):
        asyncio.run(run())


@pytest.mark.kernel
@pytest.mark.parametrize("endpoint", ["repl_sandbox.nothing:make", "json:nothing", "nothing"])
def test_an_endpoint_that_is_not_there_is_named(endpoint: str) -> None:
    async def run() -> None:
        front_end = replace(LINES, endpoint=endpoint)
        async with KernelPool(Limits(), preload=(), front_end=front_end):
            pass

    with pytest.raises(SandboxError, match=r"(?s)did not start: .*nothing"):
        asyncio.run(run())


def test_a_client_of_a_resident_server_cannot_name_code_for_it() -> None:
    """Only who starts a fork server says what is imported there."""
    settings = {"lines": True, "endpoint": "os:abort", "front_end": "os:abort"}
    request = json.dumps({"configuration": settings, "key": "k"}).encode()
    assert read_request(request).configuration == Configuration(lines=True)
