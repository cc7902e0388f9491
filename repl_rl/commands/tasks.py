"""`repl-rl tasks`: the tasks that there are, and whether one can be trained on.

    task -> what a policy would see of a problem;  task, spec -> [Finding]

Has it problems on both sides, a prompt, a grader that answers, and no answer that earns much
without a look at the problem? Knows tasks, the grader's process and the default reward. Does not
know models or kernels.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Problems of which a grader is asked all answers."""
_MOST = 0.75
"""The share of problems, each with an answer of its own, that no fixed answer solves."""

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


@click.command()
@click.argument("name", required=False)
@shared.count(8, "How many sample problems.")
@click.option("--seed", default=0, show_default=True)
@shared.with_options(shared.FILES, shared.OVERRIDES)
def tasks(
    name: str | None,
    count: int,
    seed: int,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
) -> None:
    """List the tasks, or look at one, or at a file of problems.

    Prints sample problems, what a policy sees of the first, and whether the task can be trained on:
    both splits have problems, and the grader answers. Exit code 1 if something is wrong. Without
    NAME, --config names the task.
    """
    if name is None and not files:
        for point in entry_points(group="repl_rl.tasks"):
            click.echo(f"{point.name:24}{point.value}")
        return
    flags = {} if name is None else {"task": name}
    config = resolve(files=files, overrides=overrides, flags=flags)
    plan = shared.said(make_task_plan(config))
    with users_code():
        for text in samples(plan.task, count=count, seed=seed):
            click.echo(text)
        click.echo()
        found = list(findings(plan.task, plan.task_spec, seed=seed))
    shared.report(found)


def shown_prompt(task: Task, problem: Problem) -> str:
    """Return the text before a policy's first line; ConfigError for a prompt without its marker."""
    return make_prompt(task, problem, PYTHON).text


def samples(task: Task, *, count: int, seed: int) -> Iterator[str]:
    """Problems to train on, and what a policy sees of the first."""
    problems = list(itertools.islice(task.problems(Split.TRAIN, seed=seed), count))
    for problem in problems:
        # Further lines of a statement stand below its first.
        below = "\n" + " " * len(f"{problem.id}  ")
        yield f"{problem.id}  {problem.statement}".replace("\n", below)
    if problems:
        yield f"\nwhat a policy sees of {problems[0].id}:\n"
        yield textwrap.indent(shown_prompt(task, problems[0]), "    ")


def findings(task: Task, spec: str, *, seed: int) -> Iterator[Finding]:
    """The findings, in the order to read them."""
    sides = {split: next(task.problems(split, seed=seed), None) for split in Split}
    lacking = [str(split) for split, problem in sides.items() if problem is None]
    yield Finding(
        name="problems",
        text=f"none in split {' and '.join(lacking)}"
        if lacking
        else "in both splits; those above are to train on",
        passed=not lacking,
    )
    problem = next(filter(None, sides.values()), None)
    if problem is None:
        return
    yield asyncio.run(_graded(spec, problem))
    asked = list(itertools.islice(task.problems(Split.TRAIN, seed=seed), _NUM_ASKED))
    yield from asyncio.run(_judged(task, spec, asked))
    if constant := asyncio.run(best_constant(task, spec, seed=seed)):
        yield constant
    has = isinstance(task, DemonstrableTask)
    yield Finding(
        name="starter",
        text="it has demonstrate()" if has else "no demonstrate(): training takes --model PATH",
    )


async def _graded(spec: str, problem: Problem) -> Finding:
    """Ask a grader's process as training does: it imports the task by itself."""
    verdicts: dict[str, Verdict] = {}
    try:
        async with Grader() as grader:
            for answer in ANSWERS:
                verdicts[answer] = await grader.grade(spec, problem, answer)
    except GraderError as error:
        return Finding(name="grader", text=str(error), passed=False)
    for answer, verdict in verdicts.items():
        if verdict.grader_error is not None:
            text = f"submit_final_answer({answer}): {verdict.grader_error}"
            return Finding(name="grader", text=text, passed=False)
    text = ", ".join(f"{answer} {verdict.kind.word}" for answer, verdict in verdicts.items())
    return Finding(name="grader", text=text)


async def _judged(task: Task, spec: str, problems: Sequence[Problem]) -> list[Finding]:
    """Does the grader solve each problem with its own answer, and with nothing else?"""
    known = {
        problem.id: task.reference(problem) if isinstance(task, ReferencedTask) else None
        for problem in problems
    }
    solved = Counter[str]()
    missed = list[str]()
    try:
        async with Grader() as grader:
            for problem in problems:
                own = known[problem.id]
                if own is not None:
                    verdict = await grader.grade(spec, problem, own)
                    if not verdict.is_solved:
                        missed.append(f"{problem.id} {verdict.grader_error or verdict.kind}")
                for answer in ANSWERS:
                    if answer != own and (await grader.grade(spec, problem, answer)).is_solved:
                        solved[answer] += 1
    except GraderError:
        return []  # which the finding before has said
    answers = [answer for answer in known.values() if answer is not None]
    share = {answer: num / len(problems) for answer, num in solved.items()}
    return [*_references(answers, missed), *_nonsense(share, num_own=len(set(answers)))]


def _references(answers: Sequence[str], missed: Sequence[str]) -> Iterator[Finding]:
    """Nothing where no problem has one."""
    if num := len(answers):
        text = f"{num - len(missed)} of {num} own answers are right"
        text += f"; not those of {', '.join(missed)}" if missed else ""
        yield Finding(name="reference", text=text, passed=not missed)


def _nonsense(share: Mapping[str, float], *, num_own: int) -> Iterator[Finding]:
    """A finding for each fixed answer that solves what it cannot.

    Of two answers, such as yes and no, one may be right for most problems; of three, none is.
    """
    for answer, solved in share.items():
        if answer in _NONSENSE or (num_own > 2 and solved >= _MOST):
            text = f"submit_final_answer({answer}) solves {solved:.0%} of the problems"
            yield Finding(name="nonsense", text=text, passed=False)


# The most that one answer earns which does not look at the problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """Verdicts on one constant."""

    answer: str
    verdicts: Sequence[Verdict]
    """For each problem, with its chance."""

    @property
    def reward(self) -> float:
        """The mean of the default reward; an undecided answer has none, which counts as 0."""
        rewards = (outcome_reward(verdict, RewardConfig()) for verdict in self.verdicts)
        return math.fsum(reward or 0.0 for reward in rewards) / len(self.verdicts)

    @property
    def solved(self) -> int:
        return sum(verdict.is_solved for verdict in self.verdicts)

    @property
    def chance(self) -> float:
        return math.fsum(verdict.chance for verdict in self.verdicts) / len(self.verdicts)

    @property
    def beats_chance(self) -> bool:
        """True if the answer gains more than by accident, and enough to tempt a policy."""
        count, chance = len(self.verdicts), self.chance
        error = math.sqrt(max(chance, 1 / count) * (1 - chance) / count)
        return self.solved / count > chance + max(MARGIN, NUM_ERRORS * error)


async def best_constant(task: Task, spec: str, *, seed: int) -> Finding | None:
    """None where there are too few problems to tell, or no grader."""
    problems = list(itertools.islice(task.problems(Split.TRAIN, seed=seed), NUM_PROBLEMS))
    if len(problems) < FEWEST:
        return None
    try:
        best = max(await _earned(task, spec, problems), key=lambda each: each.reward)
    except GraderError:
        return None  # another finding says so
    if len(best.verdicts) < FEWEST:
        return None
    text = (
        f"{best.answer[:40]} solves {best.solved} of {len(best.verdicts)} problems and earns "
        f"{best.reward:+.2f}; `chance` says {best.chance:.0%}"
    )
    return Finding(name="constant", text=text, passed=not best.beats_chance)


async def _earned(task: Task, spec: str, problems: Sequence[Problem]) -> list[Earned]:
    """Problem by problem, until time is up."""
    verdicts: dict[str, list[Verdict]] = {answer: [] for answer in _candidates(task, problems)}
    started = time.monotonic()
    async with Grader() as grader:
        for problem in problems:
            if time.monotonic() - started > TIME_S:
                break
            for answer, found in verdicts.items():
                verdict = await grader.grade(spec, problem, answer)
                found.append(replace(verdict, chance=problem.chance))
    return [Earned(answer=answer, verdicts=found) for answer, found in verdicts.items()]


def _candidates(task: Task, problems: Iterable[Problem]) -> Mapping[str, None]:
    """Constants, and the task's own answers that are right most often, each once."""
    own: Counter[str] = Counter()
    if isinstance(task, ReferencedTask):
        own.update(filter(None, (task.reference(problem) for problem in problems)))
    common = [answer for answer, count in own.most_common(NUM_COMMON) if count > 1]
    return dict.fromkeys([*CONSTANTS, *common])
