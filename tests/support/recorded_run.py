"""A run that real kernels made, for tests that look at it from outside."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from attempt_kit import an_attempt
from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import Origin, Problem, Scored, Split
from repl_rl.rollout.plan import make_task_plan
from repl_rl.rollout.runner import kernel_pool
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import open_scorer
from repl_rl.runs.folder import RunFolder, make_origin
from repl_rl.tasks.base import make_setup
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec

SETTINGS = (
    "sandbox.line_cpu_s=0.5",
    "sandbox.line_wall_s=20.0",
    "sandbox.standby=1",
    "grading.deadline_s=20.0",
)
RIGHT = (
    " # all roots\n",
    " x, y))\n",
    " for i in range(2):\n",
    "     random_symbol = Dummy('d')\n",
    "\n",
    " {'a', 'b', 'c'}, object(), random_symbol\n",
    " import random; random.random()\n",
    " submit_final_answer({answer})\n",
)
WRONG = (" y + undefined\n", " 1/0\n", " submit_final_answer([10**9])\n")
CLOCK = (" import time; time.time_ns()\n", " _ + 1\n", " 2 + 2\n")


def config() -> Config:
    """Config of kernels that a loaded machine does not hurry."""
    return resolve(overrides=SETTINGS)


async def make_rows() -> tuple[Origin, list[Scored]]:
    """Three trajectories of two problems: scripted, run in kernels, graded, rewarded."""
    plan = make_task_plan(config())
    task = plan.task
    problems = task.problems(Split.HELD_OUT, seed=0)
    found = list(itertools.islice(problems, 2))
    setup = make_setup(task, PYTHON)
    right = tuple(line.replace("{answer}", found[0].meta["answer"]) for line in RIGHT)
    plans = [(found[0], right), (found[0], WRONG), (found[1], CLOCK)]
    rows = []
    async with kernel_pool(config().sandbox, setup=setup) as pool, open_scorer(plan) as scorer:
        for number, (problem, lines) in enumerate(plans):
            trajectory = await play(pool, problem, task.prompt, lines, seed=number)
            rows.append(await scorer.score(trajectory, problem))
        walls = str(pool.walls)
    return make_origin(config(), setup=setup, tokenizer=None, isolation=walls), rows


async def play(pool: Any, problem: Problem, prompt: str, lines: Any, *, seed: int) -> Any:
    codec = ByteCodec()
    sampler = LineSampler(
        ScriptedEngine(codec, script(*lines)), codec, PYTHON, SamplingConfig(), context_tokens=10**6
    )
    attempt = an_attempt(problem.id, group_index=seed // 2, sibling_index=seed % 2, seed=seed)
    kernel = await pool.acquire(seed=seed)
    try:
        return await sampler.sample(
            attempt, PYTHON.prompt(prompt, problem.statement, python_version="3.11"), kernel
        )
    finally:
        await kernel.aclose()


def write_run(made: tuple[Origin, list[Scored]], path: Path) -> Path:
    """A run's folder: two trajectories in one step, one in the next."""
    origin, rows = made
    folder = RunFolder(path)
    folder.write_config(origin, policy="a script", device="cpu")
    folder.append_trajectories("step-000000", rows[:2])
    folder.append_trajectories("step-000001", rows[2:])
    return folder.path


def plant(run: Path, *, name: str, number: int, line: int) -> None:
    """Another output in the record of a line (from 1) of a trajectory (from 1)."""
    path = run / "trajectories" / f"{name}.jsonl"
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    trajectory = rows[number]["scored"]["trajectory"]  # row 0 is the origin
    trajectory["lines"][line - 1]["outcome"]["observation"] = "planted\n"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
