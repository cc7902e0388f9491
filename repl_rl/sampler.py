"""Sample one line, run it, splice its output: the loop at the heart of a rollout.

    prompt_ids -> [line -> Execution -> observation]* -> Trajectory

Floor 3. Knows tokens and kernels. Does not know rewards, groups or training.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from repl_rl.config import SamplingConfig
from repl_rl.engines.base import Engine, LineEnd, SampledLine
from repl_rl.errors import ConfigError
from repl_rl.outcomes import executed_kind, submitted_expression, thought_kind
from repl_rl.seeds import derive_seed
from repl_rl.tokens import Codec
from repl_rl.transcript import TranscriptFormat, is_thought, strip_line
from repl_rl.types import Line, LineOutcome, OutcomeKind, StopReason, Trajectory
from sandbox.render import truncate
from sandbox.types import ExecStatus, Execution, Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One trajectory to be made: where it starts and who it is."""

    problem_id: str
    group_index: int
    sibling_index: int
    seed: int
    prompt_text: str


@dataclass(slots=True)
class _State:
    """What a rollout has so far. The three lists have one length and grow together."""

    completion_ids: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    pending: str = ""
    """Source of a statement that is not complete, newline included."""
    history: set[tuple[str, str]] = field(default_factory=set)
    submission: str | None = None
    policy_version: int = 0

    def append(self, ids: tuple[int, ...] | list[int], logprobs: tuple[float, ...] = ()) -> None:
        """Sampled tokens come with their log-probabilities, injected ones without."""
        self.completion_ids.extend(ids)
        self.loss_mask.extend([bool(logprobs)] * len(ids))
        self.logprobs.extend(logprobs or [0.0] * len(ids))


class LineSampler:
    """Makes trajectories, one line at a time. Holds no state between them; safe to share."""

    def __init__(
        self,
        engine: Engine,
        codec: Codec,
        fmt: TranscriptFormat,
        config: SamplingConfig,
        *,
        context_tokens: int,
    ) -> None:
        self._engine = engine
        self._codec = codec
        self._format = fmt
        self._config = config
        self._context_tokens = context_tokens

    async def sample(self, rollout: Rollout, kernel: Kernel) -> Trajectory:
        """Run one rollout to its end. What the policy does wrong is in the trajectory it returns.

        Raises ConfigError if the prompt leaves no room for a token, EngineError and SandboxError
        if our own side fails.
        """
        prompt_ids = self._codec.encode(rollout.prompt_text, is_trusted=True)
        if len(prompt_ids) >= self._context_tokens:
            raise ConfigError(
                f"the prompt of problem {rollout.problem_id} has {len(prompt_ids)} tokens, the "
                f"model's context holds {self._context_tokens}; prompts are never cut"
            )
        state = _State()
        stop_reason = await self._loop(rollout, prompt_ids, state, kernel)
        return Trajectory(
            problem_id=rollout.problem_id,
            group_index=rollout.group_index,
            sibling_index=rollout.sibling_index,
            policy_version=state.policy_version,
            seed=rollout.seed,
            prompt_text=rollout.prompt_text,
            prompt_ids=tuple(prompt_ids),
            completion_ids=tuple(state.completion_ids),
            loss_mask=tuple(state.loss_mask),
            logprobs=tuple(state.logprobs),
            lines=tuple(state.lines),
            stop_reason=stop_reason,
            submission=state.submission,
        )

    async def _loop(
        self, rollout: Rollout, prompt_ids: list[int], state: _State, kernel: Kernel
    ) -> StopReason:
        deadline = time.monotonic() + self._config.time_limit_s
        while True:
            room, full = self._room(len(prompt_ids), len(state.completion_ids))
            sampled = await self._engine.line(
                [*prompt_ids, *state.completion_ids],
                max_tokens=min(room, self._config.max_line_tokens),
                seed=derive_seed(rollout.seed, len(state.lines)),
            )
            outcome = await self._take(sampled, state, kernel)
            if stop := _stop_reason(sampled, state, outcome.kind):
                return stop
            if sampled.end is LineEnd.LENGTH:
                return full if len(sampled.ids) == room else StopReason.MAX_LINE_TOKENS
            if len(state.lines) >= self._config.max_lines:
                return StopReason.MAX_LINES
            if time.monotonic() > deadline:
                return StopReason.TIME_LIMIT
            injected = self._codec.encode(
                self._format.render_observation(outcome.observation, outcome.kind),
                is_trusted=False,
            )
            room, full = self._room(len(prompt_ids), len(state.completion_ids))
            if len(injected) >= room:  # an observation that leaves no token to answer it is no use
                return full
            state.append(injected)

    def _room(self, num_prompt: int, num_completion: int) -> tuple[int, StopReason]:
        """Tokens that still fit, and the reason to stop when they are used up."""
        budget = self._config.max_tokens - num_completion
        context = self._context_tokens - num_prompt - num_completion
        if context < budget:
            return context, StopReason.CONTEXT_FULL
        return budget, StopReason.MAX_TOKENS

    async def _take(self, sampled: SampledLine, state: _State, kernel: Kernel) -> LineOutcome:
        """Append a sampled line, run it if it is whole, and record it with its outcome."""
        start = len(state.completion_ids)
        state.append(sampled.ids, sampled.logprobs)
        state.policy_version = sampled.policy_version
        text = self._codec.decode(sampled.ids)
        if sampled.end is LineEnd.NEWLINE:
            outcome = await self._execute(strip_line(text), state, kernel)
        else:
            outcome = LineOutcome(kind=OutcomeKind.CUT)
        state.lines.append(
            Line(
                index=len(state.lines),
                source=text,
                start=start,
                stop=len(state.completion_ids),
                outcome=outcome,
            )
        )
        return outcome

    async def _execute(self, text: str, state: _State, kernel: Kernel) -> LineOutcome:
        # Inside an open statement a comment belongs to the source: it may close a triple quote.
        if not state.pending and is_thought(text):
            return LineOutcome(kind=thought_kind(text))
        if not state.pending and (expression := submitted_expression(text)) is not None:
            return await self._submit(text, expression, state, kernel)
        source = state.pending + text
        execution = await kernel.run(source)
        kind = executed_kind(source, execution, state.history)
        if kind is OutcomeKind.INCOMPLETE:
            state.pending = source + "\n"
            return self._outcome(kind, execution)
        state.pending = ""
        if execution.status is ExecStatus.OK:
            state.history.add((source, execution.output))
        return self._outcome(kind, execution)

    async def _submit(
        self, text: str, expression: str, state: _State, kernel: Kernel
    ) -> LineOutcome:
        """The kernel only hands over the value; that something is submitted is decided here."""
        execution = await kernel.evaluate(expression)
        if execution.status is not ExecStatus.OK:
            return self._outcome(executed_kind(expression, execution, set()), execution)
        state.submission = execution.value
        # A kernel that says OK and hands over nothing is one that the policy has bent.
        is_submitted = execution.value is not None
        kind = OutcomeKind.SUBMITTED if is_submitted else OutcomeKind.BAD_SUBMIT
        return self._outcome(kind, execution)

    def _outcome(self, kind: OutcomeKind, execution: Execution) -> LineOutcome:
        observation = self._fit(execution.output)
        return LineOutcome(
            kind=kind,
            observation=observation,
            wall_ms=execution.wall_ms,
            cpu_ms=execution.cpu_ms,
            is_truncated=execution.is_truncated or observation != execution.output,
        )

    def _fit(self, output: str) -> str:
        """Cut an output until it fits the cap in tokens: the cap in characters is the kernel's."""
        if self._fits(output):
            return output
        # The longest cut that fits. That to 0 characters, the count of what is missing, always
        # does: the config sees to it.
        low, high = 0, len(output)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(truncate(output, middle)):
                low = middle
            else:
                high = middle
        return truncate(output, low)

    def _fits(self, shown: str) -> bool:
        num_tokens = len(self._codec.encode(shown, is_trusted=False))
        return num_tokens <= self._config.max_observation_tokens


def _stop_reason(sampled: SampledLine, state: _State, kind: OutcomeKind) -> StopReason | None:
    if state.submission is not None:
        return StopReason.SUBMITTED
    if sampled.end is LineEnd.EOS:
        return StopReason.EOS
    if kind is OutcomeKind.KILLED:
        return StopReason.KERNEL_KILLED
    if kind is OutcomeKind.DIED:
        return StopReason.KERNEL_DIED
    return None
