"""`repl-rl ask`: a problem of a person's own, put to a model.

    question, setup -> Problem -> Trajectory, shown or as JSON

Knows words for the terminal. Does not know how a policy is opened. Nothing is graded.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from repl_rl.commands import options as shared
from repl_rl.commands.attempts import first_attempt, open_policy, run_shown
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, Trajectory
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.runner import SetupError, kernel_for, kernel_pool
from repl_rl.tasks.data.texts import statement_of
from repl_rl.transcript.format import setup_sources, strip_line
from repl_rl.viewer.show.display import Screen
from repl_rl.viewer.show.rollout_view import ending_rows


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="QUESTION")
@shared.with_options(shared.MODEL, shared.TASK, shared.ENGINE)
@click.option(
    "--setup", multiple=True, metavar="LINE", help="Run LINE before the model's lines; repeatable."
)
@shared.with_options(shared.TEMPERATURE, shared.SEED, shared.FILES, shared.OVERRIDES)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object on stdout.")
def ask(words: tuple[str, ...], setup: tuple[str, ...], is_json: bool, **options: Any) -> None:
    """Ask a model a question.

    The model sees the question as in training: in the prompt of its run's task, or of --task. Its
    lines run in a sealed kernel, and you see each above its output. Nothing is graded. The exit
    code is 0 if the model submits an answer, else 1. QUESTION - reads the question from stdin.
    """
    question = " ".join(words)  # quotes may be left out
    problem = problem_of(_read() if question == "-" else question, setup)
    model = options["model"]
    plan = shared.plan_of(options) if model is None else shared.plan_of_run(Path(model), options)
    if setup:
        asyncio.run(_check_setup(plan, problem))
    shared.load_libraries(plan, err=is_json)
    with Screen(Console(stderr=is_json)) as screen:
        trajectory = _answer(plan, problem, screen)
    if is_json:
        click.echo(json.dumps(_facts(plan, problem, trajectory)))
    if trajectory.submission is None:
        sys.exit(shared.FAILED)


def problem_of(question: str, setup: tuple[str, ...]) -> Problem:
    """The problem that a person put; ConfigError where it cannot be one."""
    for source in setup:
        if "\n" in source or not source.strip():
            raise ConfigError(f"--setup {source!r}; expected one line of Python")
    try:
        # As the rows of a file are read, so that it looks like what a model was trained on.
        return Problem(id="asked", statement=statement_of(question), setup=setup)
    except ValueError as error:
        raise ConfigError(
            f"QUESTION: {error}; expected a problem in words, or - to read it from stdin"
        ) from None


def _read() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"QUESTION: stdin is not UTF-8: byte {error.start + 1} of it; expected a problem"
        ) from None


async def _check_setup(plan: Plan, problem: Problem) -> None:
    """ConfigError for a setup that fails: a kernel says so before a model is read."""
    sandbox = replace(plan.sandbox, standby=0)
    async with kernel_pool(sandbox, setup=setup_sources(plan.task.prompt)) as pool:
        try:
            kernel = await kernel_for(problem, pool, seed=plan.seed)
        except SetupError as error:
            raise ConfigError(f"--setup: {error}") from None
        await kernel.aclose()


def _answer(plan: Plan, problem: Problem, screen: Screen) -> Trajectory:
    """Show what the plan's policy does about `problem`; raises as `train`."""
    with open_policy(plan, screen, problem=problem) as (loaded, runtime):
        screen.say("")
        attempt = first_attempt(problem, seed=plan.seed)
        trajectory = run_shown(runtime, attempt, loaded, screen).trajectory
    screen.say("")
    for row in ending_rows(trajectory):
        screen.say(row)
    return trajectory


def _facts(plan: Plan, problem: Problem, trajectory: Trajectory) -> dict[str, Any]:
    """Return the answered question as the fields of `--json`."""
    return {
        "question": problem.statement,
        "setup": problem.setup,
        "model": plan.model,
        "task": plan.task_name,
        "seed": plan.seed,
        "lines": [
            {
                "source": strip_line(line.source),
                "outcome": line.outcome.kind,
                "observation": line.outcome.observation,
            }
            for line in trajectory.lines
        ],
        "stop_reason": trajectory.stop_reason,
        "submission": trajectory.submission,
    }
