"""The examples do what their first lines say, and documents show them as they are."""

import asyncio
import itertools
import json
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from credit_kit import line_advantages
from repl_rl.base.plugins import load_spec
from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import RewardFunction
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.golden.suites import Suite
from repl_rl.records import Attempt, Problem, Scored, Split, Verdict, VerdictKind
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.runs.folder import RunFolder
from repl_rl.tasks.base import Task, make_prompt
from repl_rl.tasks.sympy_proofs import SympyProofs
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def load(monkeypatch: pytest.MonkeyPatch, spec: str) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return load_spec(spec)


class Direct:
    """Judges in this process: the example's grade() is a comparison of strings."""

    def __init__(self, task: Task) -> None:
        self._task = task

    async def grade(self, _spec: str, problem: Problem, submission: str) -> Verdict:
        return self._task.grade(problem, submission)


def roll_out(task: Task, reward: RewardFunction, *lines: str) -> list[Scored]:
    codec = ByteCodec()
    runner = RolloutRunner(
        task=task,
        fmt=PYTHON,
        sampler=LineSampler(
            ScriptedEngine(codec, script(*lines)),
            codec,
            PYTHON,
            SamplingConfig(),
            context_tokens=4096,
        ),
        kernels=FakeKernels(lambda source: Execution(status=ExecStatus.OK, value=source)),
        scorer=Scorer(
            task_spec="",
            judge=Direct(task),
            reward=lambda trajectory, verdict: reward(trajectory, verdict, RewardConfig()),
        ),
        max_in_flight=1,
    )
    problem = next(iter(task.problems(Split.TRAIN, seed=0)))
    attempt = Attempt(problem=problem, group_index=0, sibling_index=0, seed=0)
    return asyncio.run(runner.run([attempt]))


def test_the_task_never_shows_a_held_out_product_in_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = load(monkeypatch, "multiplication:Multiplication")()
    sides = [{p.id for p in itertools.islice(task.problems(split, seed=1), 500)} for split in Split]
    assert not sides[0] & sides[1]


def test_the_task_proves_the_product_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load(monkeypatch, "multiplication:Multiplication")()
    problem = next(iter(task.problems(Split.TRAIN, seed=0)))
    a, b = map(int, problem.id.split("x"))
    assert task.grade(problem, str(a * b)).kind is VerdictKind.PROVED
    assert task.grade(problem, str(a * b + 1)).kind is VerdictKind.WRONG


def test_the_reward_of_ones_own_pays_a_shorter_proof_more(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load(monkeypatch, "multiplication:Multiplication")()
    reward = load(monkeypatch, "no_charge_reward:outcome_only")
    problem = next(iter(task.problems(Split.TRAIN, seed=0)))
    answer = f" submit_final_answer({problem.meta['answer']})\n"
    (short,) = roll_out(task, reward, answer)
    (long,) = roll_out(task, reward, " # think\n", answer)
    assert short.reward.outcome_reward == 0.99
    assert long.reward.outcome_reward == 0.98
    (first, second) = line_advantages([short.reward, long.reward], credit="line_local", weight=0.5)
    assert first[0] > 0 > second[0]


def test_what_the_reward_of_ones_own_is_worth_is_written_down() -> None:
    assert list(Suite.open(EXAMPLES / "no_charge.repl", loads_code=True).misses()) == []


def test_the_reader_counts_outcomes_and_sampled_tokens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = load(monkeypatch, "multiplication:Multiplication")()
    reward = load(monkeypatch, "no_charge_reward:outcome_only")
    scored = roll_out(task, reward, " # a\n", " submit_final_answer(6)\n")
    RunFolder(tmp_path / "run").append_trajectories("after", scored)
    path = tmp_path / "run" / "trajectories" / "after.jsonl"
    monkeypatch.setattr(sys, "argv", ["read_a_run.py", str(path)])
    runpy.run_path(str(EXAMPLES / "read_a_run.py"), run_name="__main__")
    # 5 bytes, then `>>>`, then 24 bytes: 3 of 32 were injected.
    assert capsys.readouterr().out.split() == (
        ["comment", "1", "submitted", "1", "sampled", "tokens", "29", "of", "32"]
    )


def test_the_readme_shows_the_prompt_as_it_is() -> None:
    problem = Problem(id="p", statement="Solve over the reals: 2*x**2 + 7*x + 3 = 0")
    prompt = make_prompt(SympyProofs(), problem, PYTHON).text.splitlines()
    readme = (ROOT / "README.md").read_text()
    shown = [line.removesuffix("prompt").strip() for line in readme.splitlines()]
    start = shown.index(prompt[1])
    # The first line names the Python that runs, the last is the prompt of the first sampled line.
    assert shown[start : start + len(prompt) - 2] == prompt[1:-1]


def test_the_page_on_problems_shows_the_task_as_it_is() -> None:
    source = (EXAMPLES / "multiplication.py").read_text()
    assert source[source.index("import random") :] in (ROOT / "docs" / "problems.md").read_text()
    assert len(source.splitlines()) <= 25


def test_the_task_with_families_solves_itself_and_keeps_its_sides_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = load(monkeypatch, "arithmetic:Arithmetic")()
    sides = [list(itertools.islice(task.problems(split, seed=1), 60)) for split in Split]
    assert not {one.id for one in sides[0]} & {one.id for one in sides[1]}
    for problem in sides[0]:
        assert task.grade(problem, task.reference(problem)).kind is VerdictKind.PROVED
        assert not task.grade(problem, f"{task.reference(problem)} + 1").is_solved
    assert {one.meta["family"] for one in sides[1]} == {"sum", "product", "fraction"}
    assert {one.meta["tier"] for one in sides[1]} == {"1", "2", "3"}


def test_the_first_line_alone_decides_a_bifurcation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the steps are spelled like: a script is right where it opens the right door."""
    task = load(monkeypatch, "bifurcation:Bifurcation")()
    doors = load(monkeypatch, "bifurcation:DOORS")
    rng, opened = random.Random(0), set()
    for problem in itertools.islice(task.problems(Split.TRAIN, seed=0), 200):
        first, *steps, last = task.demonstrate(problem, rng)
        assert len(steps) == int(problem.meta["steps"])
        assert last == "submit_final_answer(x)"
        door = int(first.removeprefix("x = "))
        verdict = task.grade(problem, str(door + len(steps)))
        assert verdict.is_solved == (door == doors[problem.statement.split()[1]])
        opened.add(door)
    assert opened == {0, 1, 2, 3, 4}


def test_each_length_of_a_bifurcation_is_a_task_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for length in (2, 4, 8, 16):
        task = load(monkeypatch, f"bifurcation:Bifurcation{length}")()
        problems = list(itertools.islice(task.problems(Split.TRAIN, seed=0), 20))
        assert {int(problem.meta["steps"]) for problem in problems} == {length - 2}
        held_out = {p.id for p in itertools.islice(task.problems(Split.HELD_OUT, seed=0), 200)}
        assert not held_out & {problem.id for problem in problems}


def test_word_problems_are_solved_by_the_lines_that_are_shown(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "word_problems.py"], check=True, cwd=tmp_path)
    rows = [json.loads(row) for row in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len({row["problem"] for row in rows}) == len(rows) == 500
    shown = (tmp_path / "shown.repl").read_text()
    found = re.findall(
        r"statement: (.*)\n\n>>> (\w+) = (.*)\n>>> submit_final_answer\((.*)\)", shown
    )
    assert len(found) == 55
    answers = {row["problem"]: int(row["answer"]) for row in rows}
    for problem, name, first, submitted in found:
        assert eval(submitted, {name: eval(first)}) == answers[problem], problem
        assert str(answers[problem]) not in problem
