"""Workflows call targets that exist, and may do no more than they need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from documents import ROOT, project
from repl_sandbox import __version__

yaml: Any = pytest.importorskip("yaml")

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
PUBLISHES = "pypa/gh-action-pypi-publish@release/v1"


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text())
    return found


def steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job["steps"]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_command_of_a_workflow_is_ours(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for job in read(path)["jobs"].values():
        for step in steps(job):
            program, *words = step.get("run", "make").split()
            assert program in ("make", "sudo", ".ci/run")
            if program == "make":
                targets = [word for word in words if "=" not in word]
                there = [re.search(rf"^{re.escape(one)}:", makefile, re.M) for one in targets]
                assert all(there), targets


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_reads_and_a_publisher_alone_may_name_itself(path: Path) -> None:
    """Text of a person, such as the name of a tag, never becomes a part of a command."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        publishes = name.startswith("publish")
        assert job.get("permissions") == ({"id-token": "write"} if publishes else None)
        assert [step for step in steps(job) if "${{" in step.get("run", "")] == []


def test_the_kernels_are_published_before_what_asks_for_them_and_both_after_their_tests() -> None:
    jobs = read(FOLDER / "release.yml")["jobs"]
    assert [jobs[name].get("needs") for name in ("test", "publish-sandbox", "publish")] == [
        *("build", "test", "publish-sandbox"),
    ]
    for name, folder in (("publish-sandbox", "repl-sandbox"), ("publish", "repl-rl")):
        download, send = steps(jobs[name])
        assert download["with"] == {"name": "dist", "path": "dist"}
        assert send["uses"] == PUBLISHES
        assert send["with"] == {"packages-dir": f"dist/{folder}", "attestations": True}
        assert jobs[name]["if"] == "github.ref_type == 'tag' && !inputs.dry_run"
        assert jobs[name]["environment"] == "release"


def test_a_release_begins_by_its_tag_and_by_hand_it_publishes_nothing_unless_told() -> None:
    begins = read(FOLDER / "release.yml")[True]  # YAML 1.1 reads the word `on` so
    assert begins["push"] == {"tags": ["v*"]}
    assert begins["workflow_dispatch"]["inputs"]["dry_run"]["default"] is True


def test_a_release_is_tried_on_every_python_that_it_names() -> None:
    classifiers = project()["classifiers"]
    assert isinstance(classifiers, list)
    named = [one.rpartition(" :: ")[2] for one in classifiers if "Python :: 3." in one]
    matrix = read(FOLDER / "release.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert (matrix["python"], matrix["extra"]) == (named, ["", "--train"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tag", "code"), [(f"v{__version__}", 0), (f"v{__version__}1", 2), (__version__, 2), ("", 2)]
)
def test_a_tag_that_is_not_the_version_stops_a_release(tag: str, code: int) -> None:
    called = ["make", "--silent", "check-tag", f"TAG={tag}"]
    done = subprocess.run(called, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
