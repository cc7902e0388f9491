"""Lines in a kernel, one after another, and one trajectory that is pushed line by line.

    ids, room, stop_ids, line_seed -> somebody's tokens -> take -> Step

A `Session` is the REPL as a transcript has it: a line is a comment, a submission or a statement; a
statement goes to the kernel when it is whole. A sampler, a person at the keyboard and a replay run
their lines through it. An `Episode` is a session with token ids: `LineSampler` is a loop over it,
and a framework can bring its own. Knows tokens and kernels. Does not know who samples, nor groups
or training.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from repl_rl.base.concurrency import derive_seed
from repl_rl.config.sections import SamplingConfig
from repl_rl.credit.rewards import RunningReward
from repl_rl.engines.base import LineEnd, SampledLine, line_end
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Line, LineOutcome, OutcomeKind, StopReason, Trajectory
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import Prompt, TranscriptFormat, is_comment, next_number, strip_line
from repl_rl.transcript.outcomes import (
    comment_kind,
    executed_kind,
    statement_key,
    submitted_expression,
)
from repl_rl.transcript.tokens import forbidden_ids
from repl_sandbox.render import truncate
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
            return LineOutcome(kind=comment_kind(text))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Outcome of one line, with its reward and the text that answered it.

    In an episode whose tokens are bytes:

        step = await episode.line("x = 1")
        print(step.outcome.kind, step.reward, step.observation)
    """

    line: Line
    reward: float | None
    """Reward of the line, as far as it is known: see `RunningReward`. None where the reward
    function needs the whole trajectory."""
    injected_ids: tuple[int, ...]
    """Tokens that now stand after the line: what the interpreter answered, and the next prompt.
    None of them was sampled. Empty with the last line."""
    observation: str
    """`injected_ids` as text."""
    stop: StopReason | None
    """Reason why the trajectory has ended with it; None where it goes on."""

    @property
    def outcome(self) -> LineOutcome:
        return self.line.outcome

    @property
    def done(self) -> bool:
        return self.stop is not None


class Episode:
    """A trajectory in the making.

        while episode.stop is None:
            ids, logprobs = await sample(episode.ids, stop=episode.stop_ids, most=episode.room)
            step = await episode.take(ids, logprobs)

    `built` ends in a prompt; its tokens count against the limits. Make it inside a running event
    loop: its clock measures the time limit.
    """

    def __init__(
        self,
        built: TrajectoryBuilder,
        session: Session,
        *,
        limits: SamplingConfig,
        seed: int,
        running: RunningReward | None = None,
    ) -> None:
        self.built = built
        self.session = session
        self.stop: StopReason | None = None
        """Reason why it has ended; None while it goes on."""
        self.on_line: Callable[[TrajectoryBuilder], None] | None = None
        """Called for each line as soon as its outcome is known, before anything is injected."""
        self._is_running = False
        """True while a line is under way."""
        self._encoding = built.encoding
        self._limits = limits
        self._seed = seed
        self._running = running
        session.shorten = self._shorten
        self.start_clock()

    @classmethod
    def begin(
        cls,
        attempt: Attempt,
        prompt: Prompt,
        kernel: Kernel,
        encoding: Encoding,
        limits: SamplingConfig,
        context_tokens: int,
        **more: Any,
    ) -> Self:
        """Begin an episode after `prompt`, in a fresh kernel.

        Raises ConfigError if the prompt leaves no room for a token.
        """
        built = TrajectoryBuilder(attempt, prompt, encoding, context_tokens=context_tokens)
        session = Session(kernel, encoding.format, number=prompt.next_number)
        return cls(built, session, limits=limits, seed=attempt.seed, **more)

    def start_clock(self) -> None:
        """Begin to measure the time limit."""
        self.deadline = asyncio.get_running_loop().time() + self._limits.time_limit_s
        """By the clock of the event loop. A line that ends later is the last."""

    @property
    def ids(self) -> list[int]:
        """Prompt and completion so far: what the next line is sampled after."""
        return self.built.ids

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a line; the last token of a line is one of them, or `room` is used up."""
        return self._encoding.stop_ids

    @property
    def forbidden_ids(self) -> frozenset[int]:
        """Tokens that must have no probability where a line is sampled: see `sampling.run_on`."""
        return forbidden_ids(self._encoding.codec, self._limits.run_on)

    @property
    def room(self) -> int:
        """Tokens that the next line may have."""
        return min(self._room(len(self.ids))[0], self._limits.max_line_tokens)

    @property
    def line_seed(self) -> int:
        """The seed of the next line: a line is a function of ids, seed and weights."""
        return derive_seed(self._seed, len(self.built.lines))

    async def take(
        self, ids: Sequence[int], logprobs: Sequence[float] | None = None, *, version: int = 0
    ) -> Step:
        """Run the line that was sampled after `self.ids`, its stop token included.

        `logprobs` are those of the sampling policy, nats; without them the trajectory has zeros.
        `version` counts the optimiser steps that this policy had taken.

        Raises ConfigError for tokens that are no line, or while another line is under way, and
        SandboxError if our own side fails. What the policy does wrong is in the step.
        """
        logprobs = [0.0] * len(ids) if logprobs is None else logprobs
        self._check(ids, logprobs)
        codec = self._encoding.codec
        end = line_end(ids[-1], newline_ids=codec.newline_ids, eos_ids=codec.eos_ids)
        return await self.take_line(
            SampledLine(ids=tuple(ids), logprobs=tuple(logprobs), end=end, policy_version=version)
        )

    async def take_line(self, sampled: SampledLine) -> Step:
        """Take a line of one of our engines: see `take`."""
        self._refuse_overlap()
        self._is_running = True
        try:
            return await self._taken(sampled)
        except BaseException:
            self.end(StopReason.CANCELLED)  # nobody knows how much of the line has run
            raise
        finally:
            self._is_running = False

    async def _taken(self, sampled: SampledLine) -> Step:
        room, full = self._room(len(self.ids))
        outcome = await self._run(sampled)
        if self.on_line is not None:
            self.on_line(self.built)
        injected: list[int] = []
        self.stop = self._stop_after(sampled, outcome, full if len(sampled.ids) == room else None)
        if self.stop is None:
            text = self.session.show(outcome.observation, outcome.kind)
            injected = self._encoding.injected_ids(text, after=self.ids)
            self.session.advance(outcome.kind)
            room, full = self._room(len(self.ids))
            if len(injected) >= room:  # no token would be left to answer it
                self.stop, injected = full, []
        self.built.inject(injected)
        return Step(
            line=self.built.lines[-1],
            reward=self._reward(self.built.lines[-1]),
            injected_ids=tuple(injected),
            observation=self._encoding.codec.decode(injected),
            stop=self.stop,
        )

    def end(self, reason: StopReason) -> None:
        """End it here: nothing more is taken."""
        self.stop = reason

    def trajectory(self) -> Trajectory:
        """The trajectory so far; its stop reason is CANCELLED where it has not ended.

        Raises ConfigError while a line is under way.
        """
        self._refuse_overlap()
        return self.built.build(self.stop or StopReason.CANCELLED)

    def _refuse_overlap(self) -> None:
        if self._is_running:
            raise ConfigError("a line is under way; await its step first")

    def _check(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        self._refuse_overlap()
        if self.stop is not None:
            raise ConfigError(f"the episode has ended ({self.stop}); expected no more lines")
        if len(ids) != len(logprobs):
            raise ConfigError(
                f"{len(ids)} tokens and {len(logprobs)} log-probabilities; expected one for each"
            )
        if not 0 < len(ids) <= self.room:
            raise ConfigError(f"a line of {len(ids)} tokens; expected 1 to {self.room}")
        if any(token in self.stop_ids for token in ids[:-1]):
            raise ConfigError(
                "a line continues after a stop token; sample with episode.stop_ids, or cut it there"
            )
        if not self.forbidden_ids.isdisjoint(ids):
            raise ConfigError(
                "a line holds a token that sampling.run_on = 'forbid' excludes; sample without "
                "episode.forbidden_ids"
            )
        if ids[-1] not in self.stop_ids and len(ids) < self.room:
            raise ConfigError(
                f"a line of {len(ids)} tokens without a stop token; expected one of "
                f"episode.stop_ids at its end, or {self.room} tokens"
            )

    def _reward(self, line: Line) -> float | None:
        if self._running is None:
            return None
        return self._running.add(line, is_last=self.stop is not None)

    def _stop_after(
        self, sampled: SampledLine, outcome: LineOutcome, full: StopReason | None
    ) -> StopReason | None:
        if self.built.submission is not None:
            return StopReason.SUBMITTED
        if sampled.end is LineEnd.EOS and not self._is_whole(sampled):
            return StopReason.EOS
        if outcome.kind.traits.ends is not None:
            return outcome.kind.traits.ends
        if sampled.end is LineEnd.LENGTH:
            return full or StopReason.MAX_LINE_TOKENS
        if len(self.built.lines) >= self._limits.max_lines:
            return StopReason.MAX_LINES
        if asyncio.get_running_loop().time() > self.deadline:
            return StopReason.TIME_LIMIT
        return None

    def _room(self, num_ids: int) -> tuple[int, StopReason]:
        """Tokens that fit after `num_ids`, and the reason to stop when they are used up."""
        budget = self._limits.max_tokens - (num_ids - self.built.num_prompt)
        context = self.built.context_tokens - num_ids
        if context < budget:
            return context, StopReason.CONTEXT_FULL
        return budget, StopReason.MAX_TOKENS

    async def _run(self, sampled: SampledLine) -> LineOutcome:
        """Append a sampled line, run it if it is whole, and record it with its outcome."""
        text = self.built.add_line(sampled)
        if not self._is_whole(sampled):
            return LineOutcome(kind=OutcomeKind.CUT)
        outcome = await self.session.run(strip_line(text))
        self.built.submission = self.session.submission
        self.built.set_outcome(outcome)
        return outcome

    def _is_whole(self, sampled: SampledLine) -> bool:
        """False where it was cut, or where the policy has ended the whole sequence."""
        return sampled.end is LineEnd.NEWLINE or sampled.ids[-1] == self._encoding.turn_end

    def _shorten(self, output: str) -> str:
        """Cut an output until it fits the cap in tokens: the cap in characters is the kernel's."""
        if self._fits(output):
            return output
        # Find the longest cut that fits. A cut to 0 characters leaves the count of what is missing,
        # and the config makes sure that this fits.
        sizes = range(1, len(output))
        longest = bisect.bisect_left(
            sizes, x=True, key=lambda size: not self._fits(truncate(output, size))
        )
        return truncate(output, longest)

    def _fits(self, text: str) -> bool:
        num_tokens = len(self._encoding.codec.encode(text, is_trusted=False))
        return num_tokens <= self._limits.max_observation_tokens
