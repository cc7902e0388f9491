"""Whether a task can be trained on: problems on both sides, a prompt, a grader that answers.

    task -> what a policy would see of a problem;  task, spec -> [Finding]

Knows tasks and the grader's process. Does not know models, kernels or screens.
"""

from __future__ import annotations

import asyncio
import itertools
import textwrap
from collections.abc import Iterator

from repl_rl.errors import GraderError
from repl_rl.grading.grader import Grader
from repl_rl.tasks.base import DemonstrableTask, Task, make_prompt
from repl_rl.transcript.format import PYTHON
from repl_rl.types import Finding, Problem, Split, Verdict

ANSWERS = ("0", "True", "'words'", "[1, 2]", "(")
"""Submissions that a policy may make of any problem; the last one is no expression."""


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
        text=f"none in split {' and '.join(lacking)}" if lacking else "in both splits",
        passed=not lacking,
    )
    problem = next(filter(None, sides.values()), None)
    if problem is None:
        return
    yield asyncio.run(_graded(spec, problem))
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
