"""The page of a GPU: what it shows of the rows that were measured, and which are measured again."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


@pytest.fixture
def rows(gpu: ModuleType) -> ModuleType:
    """The rows as a module."""
    return importlib.import_module("gpu_rows")


def test_the_page_shows_what_was_measured_and_nothing_else(gpu: ModuleType) -> None:
    found = {
        "a card, a model": {
            "laws": {"machine": "a card, May", "passed": 31, "said": ["..."], "is whole": True},
            "warm": {"machine": "a card, June", "trees s a step": 0.191, "is whole": False},
        },
        "another, a model": {"replay": {"machine": "another", "traceback": "Error"}},
        "a third, a model": {},
    }
    assert gpu.page(found) == (
        "### Measured by `make gpu`\n\na card, May:\n\n| what | measured |\n|--|--|\n"
        "| tests passed, of the engine `hf` and of the update | 31 |\n"
        "\na card, June:\n\n| what | measured |\n|--|--|\n"
        "| a step of a warm start, 8 transcripts of 174 tokens, seconds | 0.191 |\n"
    )


def test_rows_that_are_whole_are_kept(gpu: ModuleType) -> None:
    rows = {name: {"is whole": name in ("laws", "grpo")} for name in gpu.ROWS}
    there = gpu.measurable()
    assert gpu.missing(rows) == [name for name in there if name not in ("laws", "grpo")]
    assert gpu.missing({}) == there


def test_a_row_whose_package_is_not_installed_is_not_missing(
    gpu: ModuleType, rows: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = rows.ROWS["warm"]._replace(package="no_such_package")
    monkeypatch.setattr(rows, "ROWS", {"laws": rows.ROWS["laws"], "warm": elsewhere})
    assert gpu.missing({}) == ["laws"]


WHOLE = {"tree tokens/s": 7, "tree GiB": 1, "is whole": True}
PART = {"tree tokens/s": 8, "is whole": False}
NOTHING = {"traceback": "Error", "is whole": False}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (WHOLE, PART, WHOLE),
        (PART, WHOLE, WHOLE),
        (PART, NOTHING, PART),
        (NOTHING, PART, PART),
        (WHOLE, {**WHOLE, "tree GiB": 2}, {**WHOLE, "tree GiB": 2}),
        ({}, NOTHING, NOTHING),
    ],
)
def test_a_try_that_tells_less_takes_the_place_of_none(
    gpu: ModuleType, before: dict[str, Any], after: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert gpu.better("update", before, after) == kept


def measure_laws(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, *, card: str, model: str
) -> list[str]:
    """Rows that a run of `make gpu` in this folder measures, each of which is whole at once."""
    tried: list[str] = []

    async def row(name: str, *_: object) -> dict[str, Any]:
        tried.append(name)
        return {"passed": 1, "is whole": True}

    monkeypatch.setattr(gpu, "row", row)
    monkeypatch.setattr(gpu, "measurable", lambda: ["laws"])
    monkeypatch.setattr(gpu, "sees_gpu", lambda: True)
    monkeypatch.setattr(gpu, "driver", lambda: None)
    monkeypatch.setattr(gpu, "card", lambda device: card)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--model", model, "--output", "page.md"])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 0
    return tried


def test_each_card_and_each_model_is_measured_once(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [("H100", "a.gguf"), ("H100", "a.gguf"), ("H200", "a.gguf"), ("H200", "folder/b")]
    tried = [measure_laws(gpu, monkeypatch, card=card, model=model) for card, model in runs]
    assert tried == [["laws"], [], ["laws"], ["laws"]]
    heads = re.findall(r"^(\w+, \w+), torch", (tmp_path / "page.md").read_text(), re.MULTILINE)
    assert heads == ["H100, a", "H200, a", "H200, b"]


@pytest.mark.parametrize(
    ("script", "driver"),
    [
        (None, None),
        ("exit 9", None),
        ("echo 580.159.04; echo 580.159.04", "580.159.04"),
        ("true", None),
    ],
    ids=["none", "fails", "two cards", "silent"],
)
def test_a_driver_is_named_where_nvidia_smi_names_one(
    gpu: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str | None,
    driver: str | None,
) -> None:
    if script is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.driver() == driver


def test_a_machine_without_a_gpu_is_told_so_in_a_line(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "sees_gpu", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--model", "a.gguf"])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "gpu.py: error: torch sees no GPU; --device cpu --sizes tiny tries all of it without one"
    )


def test_the_page_is_that_of_its_rows(gpu: ModuleType) -> None:
    found = json.loads((ROOT / "docs" / "gpu.json").read_text())
    assert (ROOT / "docs" / "engines.md").read_text().endswith(gpu.page(found))


def test_figures_are_of_rows_that_there_are(gpu: ModuleType) -> None:
    assert set(gpu.FIGURES) == set(gpu.ROWS)


LAWS = (
    *("e2e/test_device.py", "laws/test_device.py"),
    *("conftest.py", "e2e/conftest.py", "laws/conftest.py"),
)
"""Files of tests that the row `laws` loads."""


def imported(path: Path, seen: set[Path]) -> Iterator[str]:
    """Packages that a file imports, and the files beside it and those of `tests/support`."""
    seen.add(path)
    for node in ast.walk(ast.parse(path.read_text())):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            first = name.partition(".")[0]
            homes = (path.parent, ROOT / "benchmarks", ROOT / "tests" / "support")
            ours = [file for home in homes if (file := home / f"{first}.py").exists()]
            if not ours:
                yield first
            elif ours[0] not in seen:
                yield from imported(ours[0], seen)


def asked_for(project: dict[str, Any], requirements: list[str]) -> Iterator[str]:
    """Names of requirements, and those of our own extras among them."""
    for requirement in requirements:
        name, extras = re.match(r"([\w-]+)(?:\[([\w,-]+)\])?", requirement).groups()  # type: ignore[union-attr]
        if name != project["name"]:
            yield name.replace("_", "-").lower()
        for extra in filter(None, (extras or "").split(",")):
            yield from asked_for(project, project["optional-dependencies"][extra])


def test_make_gpu_installs_what_its_rows_import() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (extras,) = re.findall(r"--editable '\.(\[\S+\])' \$\(GPU_TOOLS\)", makefile)
    (tools,) = re.findall(r"^GPU_TOOLS = (.*)$", makefile, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = [*project["dependencies"], project["name"] + extras, *tools.split()]
    installed = set(asked_for(project, given))
    assert "gguf" in installed  # transformers imports it for the model that is measured by default
    seen: set[Path] = set()
    files = [ROOT / "benchmarks" / "gpu.py", *(ROOT / "tests" / name for name in LAWS)]
    names = {name for file in files for name in imported(file, seen)}
    there = packages_distributions()
    packages = names - sys.stdlib_module_names - {"repl_rl", "repl_sandbox", "vllm"}
    assert {name for name in packages if not installed & {
        one.lower().replace("_", "-") for one in there.get(name, [name])
    }} == set()  # fmt: skip


def test_the_section_takes_the_place_of_the_one_before(gpu: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Engines\n\n## On a GPU\n\n### Measured\nold\n")
    gpu.put(page, "### Measured\nnew\n")
    assert page.read_text() == "# Engines\n\n## On a GPU\n\n### Measured\nnew\n"


@pytest.mark.slow
def test_the_laws_of_a_gpu_are_found_by_a_pytest_with_our_plugins_alone(
    rows: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (rows.LAWS_ENV | {"REPL_RL_TEST_DEVICE": "cpu"}).items():
        monkeypatch.setenv(name, value)
    command = rows.laws_command("--collect-only", "-q")
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert " tests collected" in found.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_row_is_measured_into_the_page_and_into_the_file_beside_it(tmp_path: Path) -> None:
    given = ["--device", "cpu", "--sizes", "tiny", "--rows", "warm", "--output", "page.md"]
    program = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *given]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    ((place, rows),) = found.items()
    assert place.endswith(", a random model and tiny sizes")
    assert list(rows) == ["warm"]
    seconds = rows["warm"]["trees s a step"]
    assert f"seconds | {seconds} |\n" in (tmp_path / "page.md").read_text()
