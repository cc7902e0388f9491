"""Play a golden transcript: the real loop on its lines, answered by its outputs.

    Golden -> ScriptedEngine + FakeKernel -> LineSampler -> Trajectory

So the code that names a policy's outcomes names these, never this module. What no output shows (a
deadline, a death) comes from the outcome that the author wrote. `read_written` gives the
same lines to be run again in a real kernel and shown to a model, without what is said of rewards.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.golden.text import Golden, GoldenFile, GoldenLine, read_file
from repl_rl.records import Attempt, OutcomeKind, Problem, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scripts import Written, WrittenLine
from repl_rl.transcript.format import PYTHON, Prompt, strip_line
from repl_rl.transcript.outcomes import submitted_expression
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

_UNLIMITED = 1 << 20
_HEADER = re.compile(r'Traceback \(most recent call last\):|  File "<stdin>", line \d+')
_RAISED = re.compile(r"(?:\w+\.)*(\w+)(?::.*)?")
_ERROR = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception)|OutputLimit)(?::.*)?")


def play(golden: Golden, *, sibling_index: int = 0) -> Trajectory:
    """The trajectory of its lines, as far as the loop takes them; tokens in it are bytes."""
    actor = _Actor(golden)
    sampler = LineSampler(
        ScriptedEngine(ByteCodec(), actor.write),
        ByteCodec(),
        PYTHON,
        SamplingConfig(
            max_lines=len(golden.lines),
            max_line_tokens=_UNLIMITED,
            max_tokens=_UNLIMITED,
            max_observation_tokens=_UNLIMITED,
        ),
        context_tokens=2 * _UNLIMITED,
    )
    attempt = Attempt(
        problem=problem_of(golden),
        group_index=0,
        sibling_index=sibling_index,
        seed=0,
    )
    return asyncio.run(
        sampler.sample(attempt, Prompt.plain(PYTHON.primary), FakeKernel(actor.answer))
    )


def problem_of(golden: Golden) -> Problem:
    """Make the problem of a transcript's head."""
    return Problem(
        id=golden.title,
        statement=golden.statement or golden.title,
        chance=golden.chance,
    )


@dataclass(slots=True)
class _Actor:
    """Says the lines of a transcript, and what the interpreter answered to the last one."""

    golden: Golden
    num_written: int = 0

    def write(self, _: str) -> str:
        line = self.golden.lines[self.num_written]
        self.num_written += 1
        return line.source.removesuffix("\n") if line.kind is OutcomeKind.CUT else line.source

    def answer(self, source: str) -> Execution:
        """Answer as the kernel: `source` may hold lines before the last, or be an expression."""
        line = self.golden.lines[self.num_written - 1]
        error_type = raised(line)
        return Execution(
            status=self._status(line, error_type),
            output=line.output,
            error_type=error_type,
            value=None if error_type else self._value(line, source),
        )

    def _status(self, line: GoldenLine, error_type: str | None) -> ExecStatus:
        if line.kind is not None and line.kind.traits.kernel:
            return ExecStatus(line.kind.value)
        return ExecStatus.ERROR if error_type else ExecStatus.OK

    def _value(self, line: GoldenLine, source: str) -> str | None:
        """`repr` of what is submitted, as the head or the line has it."""
        if submitted_expression(strip_line(line.source)) != source:
            return None
        written = self.golden.head.get("submission")
        return source if written is None else None if written.value is None else str(written.value)


def raised(line: GoldenLine) -> str | None:
    """Class name of the exception that a line's output shows; None where it shows none.

    Below the last header of a traceback: the first line that is not indented. Without a header: the
    last line, if it reads `SomeError: ...` and no backslash stands before it.
    """
    headers = [i for i, row in enumerate(line.output_rows) if _HEADER.match(row)]
    if headers:
        below = (row for row in line.output_rows[headers[-1] + 1 :] if row and row[0] != " ")
        match = _RAISED.fullmatch(next(below, ""))
    else:
        match = _ERROR.fullmatch(line.output_rows[-1] if line.output_rows else "")
    return match[1] if match else None


def read_written(path: Path) -> list[Written]:
    """The transcripts of a file. ConfigError, with file and line, where it is not one."""
    return list(_written(read_file(path)))


def _written(file: GoldenFile) -> Iterator[Written]:
    for golden in file.goldens:
        lines = (
            WrittenLine(
                source=strip_line(line.source),
                output=line.output,
                place=f"{file.path}:{line.number}",
            )
            for line in golden.lines
        )
        yield Written(problem=problem_of(golden), lines=tuple(lines))
