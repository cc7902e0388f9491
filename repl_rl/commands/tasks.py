"""`repl-rl tasks`: the tasks that there are, and whether one can be trained on.

    task -> what a policy would see of a problem;  task, spec -> [Finding]

Has it problems on both sides, a prompt, a grader that answers, and no answer that earns much
without a look at the problem? Knows tasks, the grader's process and the default reward. Does not
know models or kernels.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import statistics
import textwrap
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import click

from repl_rl.base.plugins import users_code
from repl_rl.commands import options as shared
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import outcome_reward
from repl_rl.errors import GraderError
from repl_rl.grading.grader import Grader
from repl_rl.records import Finding, Problem, Split, Verdict
from repl_rl.rollout.plan import make_task_plan
from repl_rl.tasks.base import DemonstrableTask, ReferencedTask, Task, make_prompt
from repl_rl.transcript.format import PYTHON

ANSWERS = ("0", "True", "'words'", "[1, 2]", "(")
"""Submissions that a policy may make of any problem; the last one is no expression."""
_NONSENSE = ("'words'", "(")
"""Submissions that are right nowhere, except as the problem's own answer."""
_NUM_ASKED = 8
"""Problems whose own answers, and nonsense, a grader is asked for."""

NON_VALUES = (
    "(sin(1)**2+cos(1)**2-1)/(sin(2)**2+cos(2)**2-1)**2",
    "1/(sqrt(5+2*sqrt(6))-sqrt(2)-sqrt(3))",
    "log(sin(1)**2+cos(1)**2-1)",
)
"""0/0, 1/0 and the logarithm of 0, which sympy does not see."""
CONSTANTS = (
    *("0", "1", "2", "3", "4", "5", "6", "7", "10", "12", "-1", "1/2", "pi", "x", "n", "oo", "nan"),
    *("True", "False", "'A'", "'B'", "'C'", "'D'", "'yes'", "'no'", "EmptySet", "[]"),
    *("[0]", "[1]", "[0, 1]", "[1, 2]", "(0, 0)", "(1, 1)", "[True]", "[True, False]"),
    *("[True, 3]", "[3, True]", "[True, True, 3]", "[3, 3, True]", "[False, False, False]"),
    *NON_VALUES,
    f"({NON_VALUES[0]}, {NON_VALUES[0]})",
    f"[{NON_VALUES[0]}]",
)
"""Submissions that somebody would make without a look at the problem."""
NUM_PROBLEMS = 40
FEWEST = 10
"""Problems, below which a share says nothing."""
NUM_COMMON = 5
"""Answers of the task's own that are tried: those of most of its problems."""
TIME_S = 15.0
"""For all verdicts; what is late is not looked at."""
MARGIN = 0.05
"""The share of problems by which a constant may be better than `chance`, as 2 is on word problems
with small answers."""
NUM_ERRORS = 2.0
"""Standard errors above `chance` that are no accident."""


Grade = Callable[[Problem, str], Awaitable[Verdict]]
"""Verdict on a submission for a problem, by a grader's process."""


@click.command()
@click.argument("name", required=False)
@shared.count(8, "How many sample problems to print.")
@click.option("--seed", type=int, help="Seed of the problems [0].")
@shared.with_options(shared.FILES, shared.OVERRIDES)
def tasks(
    name: str | None,
    count: int,
    seed: int | None,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
) -> None:
    """List the tasks, or check a task or a file of problems.

    A check prints sample problems, and the prompt of the first one as a policy sees it. Then it
    says whether you can train on the task: both splits have problems, and the grader answers. The
    exit code is 1 if a check fails. Without NAME, --config names the task.
    """
    if name is None and not files:
        for point in entry_points(group="repl_rl.tasks"):
            click.echo(f"{point.name:24}{point.value}")
        return
    flags = {key: value for key, value in (("task", name), ("seed", seed)) if value is not None}
    config = resolve(files=files, overrides=overrides, flags=flags)
    plan = shared.announced(make_task_plan(config))
    with users_code():
        for text in samples(plan.task, count=count, seed=plan.seed):
            click.echo(text)
        click.echo()
        results = list(findings(plan.task, plan.task_spec, seed=plan.seed))
    shared.report(results)


def samples(task: Task, *, count: int, seed: int) -> Iterator[str]:
    """Problems to train on, and what a policy sees of the first."""
    problems = list(itertools.islice(task.problems(Split.TRAIN, seed=seed), count))
    for problem in problems:
        # Further lines of a statement stand below its first.
        below = "\n" + " " * len(f"{problem.id}  ")
        yield f"{problem.id}  {problem.statement}".replace("\n", below)
    if problems:
        yield f"\nthe prompt of {problems[0].id}, as a policy sees it:\n"
        yield textwrap.indent(make_prompt(task, problems[0], PYTHON).text, "    ")


def findings(task: Task, spec: str, *, seed: int) -> Iterator[Finding]:
    """The findings, in the order to read them."""
    sides = {split: next(task.problems(split, seed=seed), None) for split in Split}
    lacking = [str(split) for split, problem in sides.items() if problem is None]
    yield Finding(
        name="problems",
        text=f"none in split {' and '.join(lacking)}"
        if lacking
        else "in both splits; those above are for training",
        passed=not lacking,
    )
    problem = next(filter(None, sides.values()), None)
    if problem is None:
        return
    yield from asyncio.run(_graded(task, spec, problem, seed=seed))
    has = isinstance(task, DemonstrableTask)
    yield Finding(
        name="starter",
        text="it has demonstrate()" if has else "no demonstrate(), so training needs --model PATH",
    )


async def _graded(task: Task, spec: str, problem: Problem, *, seed: int) -> list[Finding]:
    """Ask a grader's process as training does: it imports the task by itself."""
    problems = list(itertools.islice(task.problems(Split.TRAIN, seed=seed), NUM_PROBLEMS))
    reference = task.reference if isinstance(task, ReferencedTask) else lambda _: None
    own = {one.id: answer for one in problems if (answer := reference(one)) is not None}
    try:
        async with Grader() as grader:
            grade = functools.partial(grader.grade, spec)
            verdicts = {answer: await grade(problem, answer) for answer in ANSWERS}
            for answer, verdict in verdicts.items():
                if verdict.grader_error is not None:
                    text = f"submit_final_answer({answer}): {verdict.grader_error}"
                    return [Finding(name="grader", text=text, passed=False)]
            text = ", ".join(
                f"{answer} {verdict.kind.word}" for answer, verdict in verdicts.items()
            )
            return [
                Finding(name="grader", text=text),
                *await _references(grade, problems[:_NUM_ASKED], own),
                *await _nonsense(grade, problems[:_NUM_ASKED], own),
                *await _constant(grade, problems, own),
            ]
    except GraderError as error:
        return [Finding(name="grader", text=str(error), passed=False)]


async def _references(
    grade: Grade, problems: Sequence[Problem], own: Mapping[str, str]
) -> list[Finding]:
    """A finding about the problems' own answers, if any has one."""
    answered = [problem for problem in problems if problem.id in own]
    verdicts = {one.id: await grade(one, own[one.id]) for one in answered}
    missed = [
        f"{name} {verdict.grader_error or verdict.kind}"
        for name, verdict in verdicts.items()
        if not verdict.is_solved
    ]
    text = f"{len(answered) - len(missed)} of {len(answered)} own answers are right"
    text += f"; not those of {', '.join(missed)}" if missed else ""
    return [Finding(name="reference", text=text, passed=not missed)] if answered else []


async def _nonsense(
    grade: Grade, problems: Sequence[Problem], own: Mapping[str, str]
) -> list[Finding]:
    """A finding for each answer that solves a problem whose own answer it is not."""
    faults = []
    for answer in _NONSENSE:
        others = [problem for problem in problems if own.get(problem.id) != answer]
        if solved := sum([(await grade(problem, answer)).is_solved for problem in others]):
            text = (
                f"submit_final_answer({answer}) solves {solved / len(problems):.0%} of the problems"
            )
            faults.append(Finding(name="nonsense", text=text, passed=False))
    return faults


# The most that one answer earns which does not look at the problem


async def _constant(
    grade: Grade, problems: Sequence[Problem], own: Mapping[str, str]
) -> list[Finding]:
    """A finding about the best constant, where there are enough problems to tell.

    It fails if the constant gains more than by accident, and enough to tempt a policy.
    """
    common = [answer for answer, num in Counter(own.values()).most_common(NUM_COMMON) if num > 1]
    verdicts: dict[str, list[Verdict]] = {answer: [] for answer in (*CONSTANTS, *common)}
    started = time.monotonic()
    for problem in problems if len(problems) >= FEWEST else ():
        if time.monotonic() - started > TIME_S:
            break
        for answer, judged in verdicts.items():
            judged.append(replace(await grade(problem, answer), chance=problem.chance))
    best, judged = max(verdicts.items(), key=lambda item: _reward(item[1]))
    if (num := len(judged)) < FEWEST:
        return []
    solved = sum(verdict.is_solved for verdict in judged)
    chance = statistics.fmean(verdict.chance for verdict in judged)
    error = math.sqrt(max(chance, 1 / num) * (1 - chance) / num)
    text = (
        f"{best[:40]} solves {solved} of {num} problems and earns {_reward(judged):+.2f}; "
        f"`chance` says {chance:.0%}"
    )
    is_fair = solved / num <= chance + max(MARGIN, NUM_ERRORS * error)
    return [Finding(name="constant", text=text, passed=is_fair)]


def _reward(verdicts: Sequence[Verdict]) -> float:
    """The mean of the default reward; an undecided answer has none, which counts as 0."""
    rewards = [outcome_reward(verdict, RewardConfig()) or 0.0 for verdict in verdicts]
    return statistics.fmean(rewards) if rewards else 0.0
