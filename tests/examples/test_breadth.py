"""`benchmarks/breadth.py`: no row is measured twice; HumanEval's tests judge in a sealed kernel."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attempt_kit import an_attempt
from benchmark_module import benchmark_module
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.grading.grader import Grader
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.base import DemonstrableTask
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution


@pytest.fixture
def breadth(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark_module("breadth", monkeypatch)


@pytest.fixture
def human_eval(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark_module("human_eval_task", monkeypatch)


def a_stage(family: str, stage: str) -> dict[str, Any]:
    return {"family": family, "stage": stage, "problems": 4}


def test_a_row_that_is_there_is_not_measured_again(breadth: ModuleType, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []
    limit = 3

    def make(family: str, stage: str) -> dict[str, Any]:
        if len(asked) == limit:
            raise KeyboardInterrupt
        asked.append((family, stage))
        return a_stage(family, stage)

    def run() -> list[Any]:
        stages = ["before", "warm"]
        return list(breadth.missing(["lcm", "chain_sum"], stages, tmp_path / "rows", 4, make))

    with pytest.raises(KeyboardInterrupt):
        run()
    limit = 9
    assert len(run()) == 1
    assert run() == []
    assert asked == [
        *(("lcm", "before"), ("lcm", "warm")),
        *(("chain_sum", "before"), ("chain_sum", "warm")),
    ]
    assert len(breadth.read(tmp_path / "rows")) == 4


def test_rows_of_fewer_problems_do_not_take_the_place_of_others(
    breadth: ModuleType, tmp_path: Path
) -> None:
    made = breadth.missing(["lcm"], ["warm"], tmp_path / "rows", 8, a_stage)
    assert [row["problems"] for row in made] == [4]
    again = breadth.missing(
        ["lcm"], ["warm"], tmp_path / "rows", 4, lambda *_: pytest.fail("measured twice")
    )
    assert list(again) == []


def test_what_an_interrupted_training_took_is_counted(breadth: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), breadth.spending(tmp_path / "grpo"):
        raise KeyboardInterrupt
    with breadth.spending(tmp_path / "grpo"):
        time.sleep(0.2)
    calls = breadth.read(breadth.spent_file(tmp_path / "grpo"))
    assert [len(call) for call in calls] == [2, 2]
    assert calls[0][0] >= 0
    assert calls[1][0] >= 0.2


# HumanEval

ROW = {
    "task_id": "HumanEval/0",
    "prompt": (
        "import math\nfrom typing import List\n\n\n"
        "def half(x: int) -> int:\n    return x // 2\n\n\n"
        'def root(numbers: List[int]) -> List[int]:\n    """ Whole roots.\n\n    >>> root([9])\n'
        '    [3]\n    """\n'
    ),
    "entry_point": "root",
    "canonical_solution": "    out = []\n\n    for one in numbers:\n"
    "        out.append(math.isqrt(one))\n\n    return out\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n"
    "    assert candidate([4, 10]) == [2, 3]\n\n"
    "    assert half(5) == 2\n    assert candidate([]) == []\n",
}
TYPED = [
    "def root(numbers: List[int]) -> List[int]:",
    "    out = []",
    "    for one in numbers:",
    "        out.append(math.isqrt(one))",
    "    return out",
    "",
    "submit_final_answer(root)",
]


def test_a_problem_shows_its_imports_and_keeps_its_tests(human_eval: ModuleType) -> None:
    problem: Problem = human_eval.problem_of(ROW)
    assert problem.setup == ("import math", "from typing import List")
    assert problem.statement.startswith(
        "def half(x: int) -> int:\n    return x // 2\n\n\ndef root("
    )
    task = human_eval.HumanEval()
    assert isinstance(task, DemonstrableTask)
    assert list(task.demonstrate(problem, None)) == TYPED  # type: ignore[arg-type]


def test_what_is_submitted_is_what_has_run_and_the_name(human_eval: ModuleType) -> None:
    """A line that fails, a comment and an open statement are no part of it."""
    answers = {
        "x = 1/0": Execution(status=ExecStatus.ERROR, error_type="ZeroDivisionError"),
        "def f(): return 2": Execution(status=ExecStatus.INCOMPLETE),
        "f": Execution(status=ExecStatus.OK, value="<function f at 0x7f>"),
    }
    codec = ByteCodec()
    lines = (" # a thought\n", " x = 1/0\n", " def f(): return 2\n", "\n", " f()\n",
             " submit_final_answer(f)\n")  # fmt: skip
    sampler = human_eval.Definitions(
        ScriptedEngine(codec, script(*lines)), codec, PYTHON, SamplingConfig(), context_tokens=4096
    )
    kernel = FakeKernel(answers)
    made = asyncio.run(sampler.sample(an_attempt(seed=5), Prompt.plain(">>>"), kernel))
    assert json.loads(made.submission) == ["def f(): return 2\n", "f()", "f"]


def graded(human_eval: ModuleType, submissions: Sequence[str]) -> list[Verdict]:
    async def run() -> list[Verdict]:
        problem = human_eval.problem_of(ROW)
        async with Grader(deadline_s=30) as grader:
            return [
                await grader.grade("human_eval_task:HumanEval", problem, one) for one in submissions
            ]

    return asyncio.run(run())


@pytest.mark.kernel
def test_tests_judge_a_function_in_a_sealed_kernel(human_eval: ModuleType, tmp_path: Path) -> None:
    *lines, _, _ = TYPED
    right = "\n".join(lines) + "\n"
    wrong = right.replace("isqrt", "sqrt")
    there = tmp_path / "there"
    escaping = f"open({str(there)!r}, 'w')"
    submissions = [
        *(json.dumps([source, "root"]) for source in (right, wrong, escaping)),
        json.dumps([right, "lambda xs: root(xs)"]),
        json.dumps([right, "half"]),
        "<function root at 0x7f>",
    ]
    found = graded(human_eval, submissions)
    kinds = [one.kind for one in found]
    assert kinds == [
        *(VerdictKind.PROVED, VerdictKind.WRONG, VerdictKind.WRONG),
        *(VerdictKind.PROVED, VerdictKind.WRONG, VerdictKind.MALFORMED),
    ]
    assert "AssertionError" in found[1].evidence
    assert not there.exists()
