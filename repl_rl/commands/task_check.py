"""Whether a task can be trained on: problems on both sides, a prompt, a grader that answers.

    task -> what a policy would see of a problem;  task, spec -> [Finding]

Knows tasks and the grader's process. Does not know models, kernels or screens.
"""

from __future__ import annotations

import asyncio
import itertools
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from repl_rl.commands.best_constant import best_constant
from repl_rl.errors import GraderError
from repl_rl.grading.grader import Grader
from repl_rl.tasks.base import DemonstrableTask, ReferencedTask, Task, make_prompt
from repl_rl.transcript.format import PYTHON
from repl_rl.types import Finding, Problem, Split, Verdict

ANSWERS = ("0", "True", "'words'", "[1, 2]", "(")
"""Submissions that a policy may make of any problem; the last one is no expression."""
_NONSENSE = ("'words'", "(")
"""Those of them that are right nowhere, but where they are the problem's own answer."""
_NUM_ASKED = 8
"""Problems of which a grader is asked all answers."""
_MOST = 0.75
"""The share of problems, each with an answer of its own, that no fixed answer solves."""


def shown_prompt(task: Task, problem: Problem) -> str:
    """What stands before a policy's first line; ConfigError for a prompt without its marker."""
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
