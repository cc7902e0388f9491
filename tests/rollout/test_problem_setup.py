"""A problem's own sources run in every kernel before its policy, and stand in the prompt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.progress import ignore
from repl_rl.records import Attempt, Problem, Reward, Split, Verdict
from repl_rl.rollout.runner import RolloutRunner, kernel_for
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.tasks.base import Script, make_prompt
from repl_rl.training.starter import Recipe, collect
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution, SandboxError

BOUND = Problem(
    id="p1",
    statement="Find x",
    setup=("x = Symbol('x', real=True)", "n = 85"),
)
FAILS = {
    "n = 85": Execution(
        status=ExecStatus.ERROR,
        output="Traceback (most recent call last):\nNameError: n\n",
        error_type="NameError",
    )
}


@dataclass
class Bound:
    """A task of the one problem."""

    name: str = "bound"
    prompt: str = "from sympy import *\n{{problem}}\n# Work in steps."

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        yield BOUND

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("nothing is submitted")

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        yield "x + n"


class NoJudge:
    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        raise AssertionError("nothing is submitted")


def run_one(kernels: FakeKernels) -> None:
    codec = ByteCodec()
    engine = ScriptedEngine(codec, script(" x + n\n"))
    runner = RolloutRunner(
        task=Bound(),
        fmt=PYTHON,
        sampler=LineSampler(engine, codec, PYTHON, SamplingConfig(), context_tokens=4096),
        kernels=kernels,
        scorer=Scorer(
            task_spec="",
            judge=NoJudge(),
            reward=lambda trajectory, _: Reward(
                line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=0.0
            ),
        ),
        max_in_flight=1,
    )
    attempt = Attempt(problem=BOUND, group_index=0, sibling_index=0, seed=3)
    asyncio.run(runner.run([attempt]))


def show_one(kernels: FakeKernels) -> None:
    recipe = Recipe(num_demonstrations=1)
    asyncio.run(collect(Bound(), kernels, recipe, max_in_flight=1, update=ignore))


def test_a_kernel_has_run_the_bindings_of_its_problem() -> None:
    kernels = FakeKernels()
    kernel = asyncio.run(kernel_for(BOUND, kernels, seed=3))
    assert kernel is kernels.kernels[0]
    assert (kernels.kernels[0].sources, kernels.kernels[0].seed) == ([*BOUND.setup], 3)


def test_a_problem_without_bindings_runs_nothing() -> None:
    kernels = FakeKernels()
    asyncio.run(kernel_for(Problem(id="p", statement="s"), kernels, seed=0))
    assert kernels.kernels[0].sources == []


@pytest.mark.parametrize("use", [run_one, show_one])
def test_whoever_writes_lines_finds_the_bindings(use: Callable[[FakeKernels], None]) -> None:
    kernels = FakeKernels()
    use(kernels)
    assert kernels.kernels[0].sources == [*BOUND.setup, "x + n"]
    assert [kernel.is_closed for kernel in kernels.kernels] == [True]


def test_bindings_that_fail_are_an_error_of_the_task_that_names_the_problem() -> None:
    kernels = FakeKernels(FAILS)
    with pytest.raises(SandboxError) as failed:
        asyncio.run(kernel_for(BOUND, kernels, seed=0))
    assert str(failed.value) == "setup of problem p1 fails at 'n = 85': NameError: n"
    assert kernels.kernels[0].is_closed


@pytest.mark.parametrize("status", [ExecStatus.DIED, ExecStatus.INCOMPLETE, ExecStatus.TIMEOUT])
def test_so_is_whatever_else_is_not_ok(status: ExecStatus) -> None:
    kernels = FakeKernels({"n = 85": Execution(status=status)})
    with pytest.raises(SandboxError, match="setup of problem p1 fails at 'n = 85'"):
        asyncio.run(kernel_for(BOUND, kernels, seed=0))
    assert kernels.kernels[0].is_closed


def test_the_prompt_shows_the_bindings_right_before_the_statement() -> None:
    text = make_prompt(Bound(), BOUND, PYTHON).text
    assert text.split("\n")[-6:] == [
        ">>> from sympy import *",
        ">>> x = Symbol('x', real=True)",
        ">>> n = 85",
        ">>> # Find x",
        ">>> # Work in steps.",
        ">>>",
    ]


def test_a_numbered_prompt_counts_the_bindings() -> None:
    text = make_prompt(Bound(), BOUND, IPYTHON).text
    assert "In [2]: x = Symbol('x', real=True)\nIn [3]: n = 85\nIn [4]: # Find x\n" in text
