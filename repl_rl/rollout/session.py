"""Lines in a kernel, one after another, and what became of each: the REPL as a transcript has it.

    line -> (thought | submission | statement) -> kernel -> outcome -> what is shown after

A sampler, a person at the keyboard and a replay run their lines through it. Knows text and
kernels. Does not know tokens or who wrote a line.
"""

from __future__ import annotations

from collections.abc import Callable

from repl_rl.records import LineOutcome, OutcomeKind
from repl_rl.transcript.format import TranscriptFormat, is_comment, next_number
from repl_rl.transcript.outcomes import (
    executed_kind,
    statement_key,
    submitted_expression,
    thought_kind,
)
from repl_sandbox.statements import Compiler, Syntax
from repl_sandbox.types import ExecStatus, Execution, Kernel


class Session:
    """One kernel's lines. What a line does wrong is an outcome, never an exception."""

    def __init__(self, kernel: Kernel, fmt: TranscriptFormat, *, number: int = 1) -> None:
        self.kernel = kernel
        self._format = fmt
        self._history: set[tuple[str, str]] = set()
        self._compiler = Compiler()
        self.number = number
        """Number of the statement at the prompt."""
        self.pending = ""
        """Source of a statement that is not complete, newline included."""
        self.submission: str | None = None
        """`repr` of the value that was submitted."""
        self.shorten: Callable[[str], str] = str
        """Cuts an output to what the transcript takes, beyond the kernel's own cap."""

    async def run(self, text: str) -> LineOutcome:
        """Run a line, given without the space after the prompt and without its newline.

        Raises SandboxError if our own side fails.
        """
        # Inside an open statement a comment belongs to the source: it may close a triple quote.
        if not self.pending and is_comment(text):
            return LineOutcome(kind=thought_kind(text))
        source = self.pending + text
        syntax = self._compiler.syntax(source)
        is_lone = syntax is Syntax.WHOLE and not self.pending
        if is_lone and (expression := submitted_expression(text)) is not None:
            return await self._submit(expression)
        execution = await self.kernel.run(source)
        kind = executed_kind(source, execution, self._history, syntax=syntax)
        if kind is OutcomeKind.INCOMPLETE:
            self.pending = source + "\n"
            return self._outcome(kind, execution)
        self.pending = ""
        if execution.status is ExecStatus.OK:
            self._history.add((statement_key(source), execution.output))
        return self._outcome(kind, execution)

    def show(self, observation: str, kind: OutcomeKind) -> str:
        """The text that stands after a line of this outcome: its observation, the next prompt."""
        return self._format.render_observation(observation, kind, number=self.number)

    def advance(self, kind: OutcomeKind) -> None:
        """Count a line of this outcome: its answer is shown, the next prompt is there."""
        self.number = next_number(self.number, kind)

    async def _submit(self, expression: str) -> LineOutcome:
        """The kernel only hands over the value; whether anything is submitted is decided here."""
        execution = await self.kernel.evaluate(expression)
        if execution.status is not ExecStatus.OK:
            kind = executed_kind(expression, execution, set(), syntax=Syntax.WHOLE)
            return self._outcome(kind, execution)
        self.submission = execution.value
        # Only a kernel that the policy has bent says OK and hands over nothing.
        is_submitted = execution.value is not None
        kind = OutcomeKind.SUBMITTED if is_submitted else OutcomeKind.BAD_SUBMIT
        return self._outcome(kind, execution)

    def _outcome(self, kind: OutcomeKind, execution: Execution) -> LineOutcome:
        output = self._format.render_output(execution.output, number=self.number)
        observation = self.shorten(output)
        return LineOutcome(
            kind=kind,
            observation=observation,
            wall_ms=execution.wall_ms,
            cpu_ms=execution.cpu_ms,
            is_truncated=execution.is_truncated or observation != output,
        )
