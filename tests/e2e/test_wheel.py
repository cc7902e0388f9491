"""The wheel carries all that a run needs and nothing else: built, installed elsewhere, used."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, pathlib, sys
import repl_rl, repl_sandbox
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.base.plugins import load_spec, resolve_spec
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.transcript.format import PYTHON
from repl_rl.records import Attempt, Problem
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

home = pathlib.Path(sys.argv[1])
assert pathlib.Path(repl_rl.__file__).is_relative_to(home), repl_rl.__file__
assert pathlib.Path(repl_sandbox.__file__).is_relative_to(home), repl_sandbox.__file__
task = load_spec(resolve_spec("sympy-proofs", group="repl_rl.tasks"))()
prompt = PYTHON.prompt(task.prompt, "What is 1 + 1?", python_version="3.11")
kernel = FakeKernel({"1+1": Execution(status=ExecStatus.OK, value="2")})
engine = ScriptedEngine(ByteCodec(), script(" submit_final_answer(1+1)\\n"))
sampler = LineSampler(engine, ByteCodec(), PYTHON, SamplingConfig(), context_tokens=4096)
attempt = Attempt(problem=Problem(id="p", statement=""), group_index=0, sibling_index=0, seed=0)
print(asyncio.run(sampler.sample(attempt, prompt, kernel)).submission)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    called = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*called, str(ROOT)], check=True, capture_output=True, timeout=100)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel was installed into."""
    target = tmp_path_factory.mktemp("installed")
    called = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run(
        [*called, "--target", str(target), str(wheel)], check=True, timeout=100, env=environment
    )
    return target


def call(installed: Path, folder: Path, *arguments: str) -> str:
    """Output of a fresh interpreter in `folder`, which finds the installed copy first."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_packages_the_prompts_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {
        "repl_rl",
        "repl_sandbox",
    }
    assert {name.partition(".data/")[2] for name in names if ".data/" in name} == {
        f"data/share/jupyter/kernels/{name}/kernel.json" for name in ("repl-rl", "repl-rl-lines")
    }
    assert "repl_rl/prompts/sympy-proofs.txt" in names
    assert [name for name in names if name.endswith((".pyc", ".jsonl"))] == []


def test_templates_stand_in_the_wheel_beside_the_code_that_fills_them(wheel: Path) -> None:
    templates = [path.relative_to(ROOT) for path in (ROOT / "repl_rl").rglob("*.jinja")]
    assert templates
    assert set(map(str, templates)) <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_says_that_it_is_typed(wheel: Path) -> None:
    """Without the marker file no type checker reads the annotations."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {"repl_rl/py.typed", "repl_sandbox/py.typed"} <= set(names)


def test_the_installed_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    from repl_rl import __version__

    code = "import sys; sys.argv[1:] = ['--version']\nfrom repl_rl.commands.cli import main; main()"
    assert call(installed, tmp_path, "-c", code) == f"repl-rl, version {__version__}\n"


def test_the_installed_package_rolls_out_its_own_task(installed: Path, tmp_path: Path) -> None:
    assert call(installed, tmp_path, "-c", PROGRAM, str(installed)) == "2\n"


def test_the_installed_prompts_are_those_of_the_checkout(installed: Path) -> None:
    for prompt in (ROOT / "prompts").iterdir():
        assert (installed / "repl_rl" / "prompts" / prompt.name).read_bytes() == prompt.read_bytes()
