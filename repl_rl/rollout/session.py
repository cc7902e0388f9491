"""Lines in a kernel, one after another, and what became of each: the REPL as a transcript has it.

    line -> (thought | submission | claim | statement) -> kernel -> outcome -> what is shown after

A sampler, a person at the keyboard and a replay run their lines through it. Knows text and
kernels. Does not know tokens or who wrote a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repl_rl.transcript.format import TranscriptFormat, is_thought, next_number
from repl_rl.transcript.outcomes import (
    claimed_lemma,
    executed_kind,
    statement_key,
    submitted_expression,
    thought_kind,
)
from repl_rl.types import Lemma, LineOutcome, OutcomeKind
from repl_sandbox.statements import Compiler, Syntax
from repl_sandbox.types import ExecStatus, Execution, Kernel


class Session:
    """One kernel's lines. What a line does wrong is an outcome, never an exception.

    `lemmas` may be claimed, each once.
    """

    def __init__(
        self,
        kernel: Kernel,
        fmt: TranscriptFormat,
        *,
        number: int = 1,
        lemmas: Sequence[Lemma] = (),
    ) -> None:
        self._kernel = kernel
        self._format = fmt
        self._lemmas = {lemma.name for lemma in lemmas}
        self._history: set[tuple[str, str]] = set()
        self._compiler = Compiler()
        self.number = number
        """Number of the statement at the prompt."""
        self.pending = ""
        """Source of a statement that is not complete, newline included."""
        self.submission: str | None = None
        """`repr` of the value that was submitted."""
        self.claims: dict[str, str] = {}
        """`repr` of the value of each lemma that was claimed, in order."""
        self.shorten: Callable[[str], str] = str
        """Cuts an output to what the transcript takes, beyond the kernel's own cap."""

    async def run(self, text: str) -> LineOutcome:
        """What became of a line, given without the space after the prompt and without its newline.

        Raises SandboxError if our own side fails.
        """
        # Inside an open statement a comment belongs to the source: it may close a triple quote.
        if not self.pending and is_thought(text):
            return LineOutcome(kind=thought_kind(text))
        source = self.pending + text
        syntax = self._compiler.syntax(source)
        is_lone = syntax is Syntax.WHOLE and not self.pending
        expression = submitted_expression(text) if is_lone else None
        if expression is not None:
            return await self._submit(expression)
        claim = self._claim_of(text) if is_lone else None
        if claim is not None:
            return await self._claim(*claim)
        execution = await self._kernel.run(source)
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
        execution = await self._kernel.evaluate(expression)
        if execution.status is not ExecStatus.OK:
            kind = executed_kind(expression, execution, set(), syntax=Syntax.WHOLE)
            return self._outcome(kind, execution)
        self.submission = execution.value
        # Only a kernel that the policy has bent says OK and hands over nothing.
        is_submitted = execution.value is not None
        kind = OutcomeKind.SUBMITTED if is_submitted else OutcomeKind.BAD_SUBMIT
        return self._outcome(kind, execution)

    def _claim_of(self, text: str) -> tuple[str, str] | None:
        """(name, expression) of the first claim of a lemma; a later one runs into the stub."""
        claim = claimed_lemma(text) if self._lemmas else None
        is_first = claim is not None and claim[0] in self._lemmas - self.claims.keys()
        return claim if is_first else None

    async def _claim(self, name: str, expression: str) -> LineOutcome:
        """As with a submission the kernel only hands over the value, and says nothing to it."""
        execution = await self._kernel.evaluate(expression)
        if execution.status is not ExecStatus.OK:
            kind = executed_kind(expression, execution, set(), syntax=Syntax.WHOLE)
            return self._outcome(kind, execution)
        if execution.value is None:  # as in `_submit`, only of a bent kernel
            return self._outcome(OutcomeKind.RUNTIME_ERROR, execution)
        self.claims[name] = execution.value
        return self._outcome(OutcomeKind.CLAIMED, execution)

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
