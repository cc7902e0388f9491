"""The two wheels carry all that a run needs and nothing else: built, installed elsewhere, used."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import repl_rl
import repl_sandbox
from documents import programs

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


@dataclass(frozen=True, slots=True)
class Built:
    """Files of a release, and the wheels that the checkout itself makes."""

    sandbox: Path
    rl: Path
    sandbox_sdist: Path
    rl_sdist: Path
    from_tree: tuple[Path, Path]


def build(source: Path, folder: Path, *kinds: str) -> None:
    """Build what is asked for; without a kind an sdist, and a wheel from what that holds."""
    called = [sys.executable, "-m", "build", *kinds, "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*called, str(source)], check=True, capture_output=True, timeout=100)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    dist, tree = (tmp_path_factory.mktemp(name) for name in ("dist", "tree"))
    for source in (ROOT / "sandbox", ROOT):
        build(source, dist)
        build(source, tree, "--wheel")
    names = sorted(dist.iterdir())
    rl, rl_sdist, sandbox, sandbox_sdist = names
    first, second = (tree / one.name for one in (sandbox, rl))
    return Built(sandbox, rl, sandbox_sdist, rl_sdist, (first, second))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheels were installed into."""
    target = tmp_path_factory.mktemp("installed")
    called = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    wheels = [str(built.sandbox), str(built.rl)]
    subprocess.run(
        [*called, "--target", str(target), *wheels], check=True, timeout=100, env=environment
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


def tops(wheel: Path) -> set[str]:
    """Folders of a wheel that hold code."""
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith((".dist-info", ".data"))}


def requirements(wheel: Path) -> list[Requirement]:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


def test_each_wheel_holds_its_package_and_no_tests(built: Built) -> None:
    assert (tops(built.sandbox), tops(built.rl)) == ({"repl_sandbox"}, {"repl_rl"})
    sandbox, rl = (zipfile.ZipFile(one).namelist() for one in (built.sandbox, built.rl))
    assert {name.partition(".data/")[2] for name in (*sandbox, *rl) if ".data/" in name} == {
        f"data/share/jupyter/kernels/{name}/kernel.json" for name in ("repl-rl", "repl-rl-lines")
    }
    assert "repl_rl/prompts/sympy-proofs.txt" in rl
    assert [name for name in (*sandbox, *rl) if name.endswith((".pyc", ".jsonl"))] == []
    assert [name for name in (*sandbox, *rl) if name.endswith("licenses/LICENSE")] == [
        f"{name}-{repl_rl.__version__}.dist-info/licenses/LICENSE"
        for name in ("repl_sandbox", "repl_rl")
    ]


@pytest.mark.parametrize("which", [0, 1], ids=["repl-sandbox", "repl-rl"])
def test_the_sdist_makes_the_wheel_of_the_checkout_byte_for_byte(built: Built, which: int) -> None:
    wheel = (built.sandbox, built.rl)[which]
    assert wheel.read_bytes() == built.from_tree[which].read_bytes()


def test_an_sdist_holds_what_its_tests_take(built: Built) -> None:
    with tarfile.open(built.rl_sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "tests/e2e/test_wheel.py", "sandbox/pyproject.toml", "LICENSE"} <= names
    with tarfile.open(built.sandbox_sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "kernelspecs/repl-rl/kernel.json"} <= names


def test_the_kernels_ask_for_no_torch_no_trainer_and_no_jupyter(built: Built) -> None:
    core = [one for one in requirements(built.sandbox) if one.marker is None]
    assert sorted(map(str, core)) == ["packaging>=24", "sympy<1.15,>=1.14"]


def test_the_trainer_asks_for_the_kernels_of_its_version_and_for_all_that_notebooks_take(
    built: Built,
) -> None:
    base = {one.name: str(one) for one in requirements(built.rl) if one.marker is None}
    assert base["repl-sandbox"] == f"repl-sandbox=={repl_sandbox.__version__}"
    of_kernels = [re.sub(" *;.*", "", str(one)) for one in requirements(built.sandbox)]
    assert len(of_kernels) == 8
    assert [one for one in of_kernels if one not in base.values()] == []


def test_the_version_stands_in_one_place() -> None:
    """A number more is what one release needs of itself: its own kernels, and how to cite it."""
    version = repl_sandbox.__version__
    assert repl_rl.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()
    projects = [ROOT / "pyproject.toml", ROOT / "sandbox" / "pyproject.toml"]
    assert ["version" in tomllib.loads(one.read_text())["project"] for one in projects] == [
        False
    ] * 2


def test_both_carry_the_licence() -> None:
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "sandbox" / "LICENSE").read_bytes()


def test_templates_stand_in_the_wheel_beside_the_code_that_fills_them(built: Built) -> None:
    templates = [path.relative_to(ROOT) for path in (ROOT / "repl_rl").rglob("*.jinja")]
    assert templates
    assert set(map(str, templates)) <= set(zipfile.ZipFile(built.rl).namelist())


def test_the_wheels_say_that_they_are_typed(built: Built) -> None:
    """Without the marker file no type checker reads the annotations."""
    assert "repl_rl/py.typed" in zipfile.ZipFile(built.rl).namelist()
    assert "repl_sandbox/py.typed" in zipfile.ZipFile(built.sandbox).namelist()


def test_the_installed_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    code = "import sys; sys.argv[1:] = ['--version']\nfrom repl_rl.commands.cli import main; main()"
    assert call(installed, tmp_path, "-c", code) == f"repl-rl, version {repl_rl.__version__}\n"


def test_the_installed_package_rolls_out_its_own_task(installed: Path, tmp_path: Path) -> None:
    assert call(installed, tmp_path, "-c", PROGRAM, str(installed)) == "2\n"


ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        known = {*sys.stdlib_module_names, "repl_sandbox", "packaging", "sympy", "mpmath"}
        if top not in known and not top.startswith("_"):
            raise ModuleNotFoundError(f"the kernels alone do without {name}")

sys.meta_path.insert(0, Refuse())
"""


@pytest.mark.kernel
def test_the_kernels_alone_run_the_program_of_their_page(installed: Path, tmp_path: Path) -> None:
    """The process imports nothing but what the distribution asks for."""
    (program, *_) = programs(ROOT / "sandbox" / "README.md")
    shown = call(installed, tmp_path, "-c", ALONE + program.text)
    walls, factors, status, value = filter(None, shown.splitlines())
    assert walls.startswith(("strict", "basic"))
    assert (factors, status, value) == ("{2: 3, 3: 1, 5: 1}", "timeout", "2")


def test_an_installed_copy_names_the_index_and_a_checkout_does_not(
    installed: Path, tmp_path: Path
) -> None:
    code = "from repl_rl.errors import how_to_install, how_to_get_vllm as vllm\n"
    code += "print(how_to_install('gym'), vllm(), sep='; ')"
    assert call(installed, tmp_path, "-c", code) == (
        "pip install 'repl-rl[gym]'; run pip install 'repl-rl[vllm]'\n"
    )


def test_the_installed_prompts_are_those_of_the_checkout(installed: Path) -> None:
    for prompt in (ROOT / "prompts").iterdir():
        assert (installed / "repl_rl" / "prompts" / prompt.name).read_bytes() == prompt.read_bytes()
