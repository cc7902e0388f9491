"""The grader `tests`: calls of a submitted function, in fresh sealed kernels, judged outside.

    source, assert f(2) == 4 -> exec in a kernel -> repr of f(2) -> is it 4?

A kernel sees the calls, and never what they must return: code in it could make any comparison
true. So a test is a call and a literal, and the comparison is made here, on text.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
from collections.abc import Sequence

from repl_rl.grading.equality import wrong
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.data.graders import ByName, unquoted
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Isolation, Kernel, Limits

SPEC = "repl_rl.tasks.data.by_tests:ByTests"
LIMITS = Limits(line_cpu_s=1.0, line_wall_s=2.0, kernel_cpu_s=4)
"""All calls together stay within the deadline of a verdict."""


class ByTests(ByName):
    """Judges by the grader that a problem names; its own kernels run what was submitted."""

    starts_processes = True
    """So its process has no walls around itself: each kernel has its own."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._pool: KernelPool | None = None

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """PROVED where each call returns what it must; MALFORMED unless a text is submitted."""
        if problem.meta["grader"] != "tests":
            return super().grade(problem, submission)
        source = unquoted(submission)
        if source == submission:
            evidence = "source of a function is expected, as a string"
            return Verdict(kind=VerdictKind.MALFORMED, method="tests", evidence=evidence)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._run(source, json.loads(problem.meta["value"])))

    async def _run(self, source: str, calls: Sequence[Sequence[str]]) -> Verdict:
        if self._pool is None:  # kept for the life of the process, which ends it
            pool = KernelPool(LIMITS, preload=(), standby=1, isolation=Isolation.AUTO)
            self._pool = await pool.__aenter__()
        kernel = await self._pool.acquire(seed=0)
        async with contextlib.aclosing(kernel):
            return await judged(kernel, source, calls)


async def judged(kernel: Kernel, source: str, calls: Sequence[Sequence[str]]) -> Verdict:
    """Define what `source` defines, then make each call, which must return a literal."""
    defined = await kernel.run(f"exec({source!r})")
    if defined.status is not ExecStatus.OK:
        return wrong("tests", f"the source: {defined.status}")
    for number, (call, expected) in enumerate(calls, 1):
        execution = await kernel.evaluate(call)
        if execution.status is not ExecStatus.OK or execution.value is None:
            return wrong("tests", f"call {number} of {len(calls)}: {execution.status}")
        if not is_literal_equal(execution.value, expected):
            return wrong("tests", f"call {number} of {len(calls)}: another value")
    return Verdict(kind=VerdictKind.PROVED, method="tests", evidence=f"{len(calls)} calls")


def is_literal_equal(value: str, expected: str) -> bool:
    """Say whether a kernel's text spells the literal; text that spells none is another value."""
    try:
        return bool(ast.literal_eval(value) == ast.literal_eval(expected))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False


def read_tests(source: str) -> str:
    """Tests as `meta` holds them. Raises ValueError for anything but a call and a literal."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("no Python") from None
    if not body:
        raise ValueError("no tests")
    return json.dumps([_test(statement) for statement in body])


def _test(statement: ast.stmt) -> tuple[str, str]:
    """`assert f(2) == 4`, `assert f(2)` or `assert not f(2)`."""
    match statement:
        case ast.Assert(
            test=ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[it])
        ):
            expected = it
        case ast.Assert(test=ast.Call() as call):
            expected = ast.Constant(True)
        case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call)):
            expected = ast.Constant(False)
        case _:
            raise ValueError(
                f"expected `assert call == literal`, not {ast.unparse(statement)[:40]!r}"
            )
    text = ast.unparse(expected)
    if not is_literal_equal(text, text):
        raise ValueError(f"no literal: {text[:40]!r}")
    return ast.unparse(call), text
