"""A line does, shows and costs the same at each level of walls, and for each user."""

import json
import re
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any

import pytest

from labs import ROOT, USERS, run_lab
from level_corpus import CORPUS, OUTSIDE
from repl_rl.records import OutcomeKind
from repl_rl.transcript.outcomes import executed_kind
from repl_sandbox.statements import Compiler
from repl_sandbox.types import ExecStatus, Execution
from repl_sandbox.walls import bubblewrap, confine
from repl_sandbox.walls.view import readable_paths
from shared_work import once, shared_folder

LAB = ROOT / "tests" / "support" / "level_lab.py"
PATH = re.compile(r"(?<![\w./:])/[a-z][\w.+-]*(?:/[\w.+-]+)*")
USUAL_PLACES = {"/tmp", "/var/tmp", "/usr/tmp", "/usr/bin", "/bin", "/dev/tty", "/.local"}
"""What CPython names wherever it runs."""
Found = list[list[dict[str, Any]]]  # Any: JSON


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Found]:
    """Results of the corpus, for each level and user that there is here."""
    if (lacking := confine.missing()) is not None:
        pytest.skip(f"this machine lacks {lacking}")
    levels = ["basic"] if bubblewrap.find() is None else ["strict", "basic"]
    folder = shared_folder(tmp_path_factory)

    def ran(level: str, uid: int) -> Found:
        path = folder / f"levels-{level}-{uid}.json"
        once(path, lambda aside: aside.write_text(run_lab(LAB, level, str(uid))))
        made = json.loads(path.read_text())
        assert (made["level"], made["uid"]) == (level, uid)
        return list(made["found"])

    return {(level, uid): ran(level, uid) for level in levels for uid in USERS}


def kinds(lines: tuple[str, ...], answers: list[dict[str, Any]]) -> list[OutcomeKind]:
    """Kinds of lines, which decide about the price of each."""
    compiler = Compiler()
    executions = [
        Execution(**answer | {"status": ExecStatus(answer["status"])}) for answer in answers
    ]
    return [
        executed_kind(line, execution, set(), syntax=compiler.syntax(line))
        for line, execution in zip(lines, executions, strict=True)
    ]


def paired(found: dict[tuple[str, int], Found]) -> Iterator[tuple[str, str, Any, Any]]:
    """(where, line, its answer there, its answer where it ran first)."""
    (_, first), *others = found.items()
    for where, other in others:
        for lines, answers, expected in zip(CORPUS, other, first, strict=False):
            for line, answer, wanted in zip(lines, answers, expected, strict=True):
                yield f"{where}", line, answer, wanted


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_a_line_shows_the_same_at_each_level_and_for_each_user(
    found: dict[tuple[str, int], Found],
) -> None:
    assert sum(map(len, CORPUS)) > 60
    differing = [each for each in paired(found) if each[2] != each[3]]
    assert differing[:3] == []


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_a_line_costs_the_same_at_each_level_and_for_each_user(
    found: dict[tuple[str, int], Found],
) -> None:
    priced = [list(map(kinds, CORPUS + OUTSIDE, each)) for each in found.values()]
    assert all(each == priced[0] for each in priced)
    assert set(priced[0][-1]) == {OutcomeKind.RUNTIME_ERROR, OutcomeKind.OK_SILENT}


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_no_text_names_a_place_of_the_machine_that_a_kernel_may_not_read(
    found: dict[tuple[str, int], Found],
) -> None:
    readable = [*map(str, readable_paths(["sympy"])), sysconfig.get_path("purelib")]
    known = [*readable, *(entry for entry in sys.path if entry.endswith(".zip")), *USUAL_PLACES]

    def is_known(path: str, line: str) -> bool:
        is_named = path.rpartition("/")[2] in line
        return is_named or any(path.startswith(each) or each.startswith(path) for each in known)

    named = [
        (where, line, path)
        for where, each in found.items()
        for lines, answers in zip(CORPUS, each, strict=False)
        for line, answer in zip(lines, answers, strict=True)
        for path in PATH.findall(answer["output"])
        if not is_known(path, line)
    ]
    assert named == []
