"""A task under development: a file in the current folder, found by the command and the grader."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from repl_rl.errors import ConfigError
from repl_rl.grading.grader import Grader
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.base import load_task

TASK = """
from repl_rl.records import Problem, Verdict, VerdictKind

class MyTask:
    name = "mine"
    prompt = "{{problem}}"

    def problems(self, split, *, seed):
        yield Problem(id="one", statement="What is 1 + 1?", meta={"answer": "2"})

    def grade(self, problem, submission):
        is_right = submission == problem.meta["answer"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)

class Bare:
    name = "bare"

class Listing(MyTask):
    def problems(self, split, *, seed):
        return [Problem(id="one", statement="")]

class Rows(MyTask):
    def problems(self, split, *, seed):
        yield {"id": "one", "statement": ""}

class Unseeded(MyTask):
    def problems(self, split):
        yield Problem(id="one", statement="")

class Asking(MyTask):
    def __init__(self, folder):
        pass

class Numbered(MyTask):
    prompt = 5

class Yes(MyTask):
    def grade(self, problem, submission):
        return True
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the task in it; no search path names it."""
    (tmp_path / "mymodule.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    return tmp_path


@pytest.mark.slow
def test_the_command_shows_the_problems_of_an_own_task(here: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-c", "from repl_rl.commands.cli import main; main()"),
            *("tasks", "mymodule:MyTask"),
        ],
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(
        "one  What is 1 + 1?\n\nthe prompt of one, as a policy sees it:\n\n    Python 3."
    )
    assert "\n    >>> # What is 1 + 1?\n    >>>\n" in done.stdout


def test_the_grader_judges_an_own_task(here: Path) -> None:
    async def grade(*submissions: str) -> list[VerdictKind]:
        problem = Problem(id="one", statement="", meta={"answer": "2"})
        async with Grader() as grader:
            return [
                (await grader.grade("mymodule:MyTask", problem, text)).kind for text in submissions
            ]

    assert asyncio.run(grade("2", "3")) == [VerdictKind.PROVED, VerdictKind.WRONG]


@pytest.mark.usefixtures("here")
def test_a_verdict_that_is_none_says_what_was_expected() -> None:
    async def graded() -> Verdict:
        async with Grader() as grader:
            return await grader.grade("mymodule:Yes", Problem(id="one", statement=""), "2")

    verdict = asyncio.run(graded())
    assert verdict.kind is VerdictKind.UNDECIDED
    assert "`grade` returned True; expected a Verdict" in str(verdict.grader_error)


def test_a_problem_with_a_list_as_its_setup_is_the_one_that_a_file_holds() -> None:
    setup: Any = ["n = 5", "m = 6"]
    problem = Problem(id="one", statement="?", setup=setup)
    assert problem == Problem(id="one", statement="?", setup=("n = 5", "m = 6"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"id": 5}, "problem 5 holds 5; expected texts alone"),
        ({"meta": {"answer": 6}}, "problem 'one' holds 6; expected texts alone"),
        ({"setup": "n = 5"}, "problem 'one' has one text as its setup; expected a tuple"),
    ],
)
def test_a_problem_holds_texts(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Problem(**{"id": "one", "statement": "?", **wrong})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mymodule:Bare", "'mymodule:Bare' is no task: it lacks prompt, problems, grade"),
        ("mymodule:TASK", "module 'mymodule' has no 'TASK'"),
        ("mymodule:__doc__", "is not a class that makes a task"),
        ("mymodule:Listing", r"^mymodule:Listing\.problems returns list; expected an iterator of "),
        ("mymodule:Rows", r"^mymodule:Rows\.problems yields dict; expected Problems$"),
        ("mymodule:Unseeded", r"^mymodule:Unseeded\.problems\(split, seed=0\): TypeError: "),
        ("mymodule:Asking", r"^mymodule:Asking\(\): TypeError: .*argument: 'folder'"),
        ("mymodule:Numbered", r"^mymodule:Numbered\.prompt is 5; expected a text"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_no_task_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_task(name)
