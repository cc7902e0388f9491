"""The process that parses a stranger's text can read packages and compute, and nothing else."""

import asyncio
import socket
from pathlib import Path

import pytest

from repl_rl.grading.grader import Grader
from repl_rl.grading.worker import seal
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_sandbox.walls import confine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(confine.missing() is not None, reason=f"{confine.missing()}"),
]


def graded(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *submissions: str,
    port: int = 0,
    task: str = "Burglar",
) -> list[Verdict]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    problem = Problem(id="p", statement="", meta={"folder": str(folder), "port": str(port)})

    async def grade_all() -> list[Verdict]:
        async with Grader() as grader:
            return [await grader.grade(f"judges:{task}", problem, text) for text in submissions]

    return asyncio.run(grade_all())


@pytest.mark.parametrize(
    "attempt",
    [
        *("create", "append", "remove", "rename", "read", "bind", "run", "become", "fork"),
        *("thread", "kill", "trace"),
    ],
)
def test_a_grader_cannot_reach_beyond_its_walls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, attempt: str
) -> None:
    (tmp_path / "kept").write_text("kept")
    tried, served = graded(monkeypatch, tmp_path, attempt, "nothing")
    assert tried.kind is VerdictKind.UNDECIDED
    assert tried.grader_error is not None
    assert tried.grader_error.startswith(
        ("PermissionError", "RuntimeError: can't start new thread")
    )
    assert served.kind is VerdictKind.PROVED
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_grader_reaches_no_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        (tried,) = graded(monkeypatch, tmp_path, "connect", port=server.getsockname()[1])
        assert (tried.grader_error or "").startswith("PermissionError")
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_task_may_import_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (verdict,) = graded(monkeypatch, tmp_path, "import")
    assert (verdict.kind, verdict.evidence) == (VerdictKind.PROVED, "colorsys")


def test_a_task_that_starts_processes_may(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (verdict,) = graded(monkeypatch, tmp_path, "run", task="Kernels")
    assert (verdict.kind, verdict.grader_error) == (VerdictKind.PROVED, None)


def test_a_machine_without_walls_grades_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "missing", lambda: "Landlock")
    monkeypatch.setattr(confine, "confine_here", lambda _: pytest.fail("there are no walls"))
    seal()
