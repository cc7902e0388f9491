"""Sample one line, run it, splice its output: the loop at the heart of a rollout.

    prompt_ids -> [line -> Execution -> observation]* -> Trajectory

Floor 3. Knows tokens and kernels. Does not know rewards, groups or training.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from repl_rl.builder import Rollout, RolloutCancelled, TrajectoryBuilder
from repl_rl.config import SamplingConfig
from repl_rl.engines.base import Engine, LineEnd, SampledLine
from repl_rl.outcomes import executed_kind, silent_kind, submitted_expression, thought_kind
from repl_rl.seeds import derive_seed
from repl_rl.tokens import Codec
from repl_rl.transcript import TranscriptFormat, is_thought, next_number, strip_line
from repl_rl.types import LineOutcome, OutcomeKind, StopReason, Trajectory
from sandbox.render import truncate
from sandbox.types import ExecStatus, Execution, Kernel


@dataclass(frozen=True, slots=True)
class _Guess:
    """The next line, begun while the kernel is still at work on the one before."""

    ids: list[int]
    """What it is sampled after, if the kernel prints nothing."""
    line: asyncio.Task[SampledLine]


@dataclass(slots=True)
class _State:
    """What a rollout has so far."""

    built: TrajectoryBuilder
    kernel: Kernel
    seed: int
    deadline: float
    """By the clock of the event loop."""
    number: int
    """Of the statement at the prompt."""
    pending: str = ""
    """Source of a statement that is not complete, newline included."""
    history: set[tuple[str, str]] = field(default_factory=set)
    guess: _Guess | None = None


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
        self.num_guesses = 0
        """Lines that were begun while a kernel was still at work on the one before."""
        self.num_hits = 0
        """Those of them that could be kept."""

    async def sample(self, rollout: Rollout, kernel: Kernel) -> Trajectory:
        """Run one rollout to its end. What the policy does wrong is in the trajectory it returns.

        Raises ConfigError if the prompt leaves no room for a token, EngineError and SandboxError
        if our own side fails, and RolloutCancelled with the part that is there when cancelled.
        """
        built = TrajectoryBuilder(rollout, self._codec, context_tokens=self._context_tokens)
        deadline = asyncio.get_running_loop().time() + self._config.time_limit_s
        state = _State(built, kernel, rollout.seed, deadline, rollout.prompt.next_number)
        try:
            return built.build(await self._loop(state))
        except asyncio.CancelledError:
            raise RolloutCancelled(built.build(StopReason.CANCELLED)) from None
        finally:
            await _drop_guess(state)

    async def _loop(self, state: _State) -> StopReason:
        built = state.built
        while True:
            room, full = self._room(built, len(built.ids))
            sampled = await self._sample(state, room)
            if sampled is None:
                return StopReason.TIME_LIMIT
            outcome = await self._take(sampled, state)
            if stop := _stop_reason(sampled, state, outcome.kind):
                return stop
            if sampled.end is LineEnd.LENGTH:
                return full if len(sampled.ids) == room else StopReason.MAX_LINE_TOKENS
            if len(built.lines) >= self._config.max_lines:
                return StopReason.MAX_LINES
            if asyncio.get_running_loop().time() > state.deadline:
                return StopReason.TIME_LIMIT
            injected = self._observed(outcome.observation, outcome.kind, state.number)
            state.number = next_number(state.number, outcome.kind)
            room, full = self._room(built, len(built.ids))
            if len(injected) >= room:  # an observation that leaves no token to answer it is no use
                return full
            built.inject(injected)

    def _observed(self, observation: str, kind: OutcomeKind, number: int) -> list[int]:
        text = self._format.render_observation(observation, kind, number=number)
        return self._codec.encode(text, is_trusted=False)

    def _room(self, built: TrajectoryBuilder, num_ids: int) -> tuple[int, StopReason]:
        """Tokens that fit after `num_ids`, and the reason to stop when they are used up."""
        budget = self._config.max_tokens - (num_ids - built.num_prompt)
        context = self._context_tokens - num_ids
        if context < budget:
            return context, StopReason.CONTEXT_FULL
        return budget, StopReason.MAX_TOKENS

    async def _sample(self, state: _State, room: int) -> SampledLine | None:
        """The next line; None where the time limit came first.

        The first line is waited for: a trajectory without a token cannot be trained on.
        """
        built = state.built
        try:
            async with asyncio.timeout_at(state.deadline if built.lines else None):
                if state.guess is not None and state.guess.ids == built.ids:
                    self.num_hits += 1
                    line = state.guess.line
                    state.guess = None
                    return await line
                await _drop_guess(state)
                return await self._ask(state, built.ids, room)
        except TimeoutError:
            return None

    def _guess(self, source: str, state: _State) -> None:
        """Begin the next line, as it will be asked for if `source` turns out to print nothing.

        A line is a function of ids, seed and weights, so one that was begun early is the same.
        """
        kind = silent_kind(source)
        if not self._config.speculate or kind is None:
            return
        built = state.built
        ids = [*built.ids, *self._observed("", kind, state.number)]
        room, _ = self._room(built, len(ids))
        if room < 1 or len(built.lines) >= self._config.max_lines:
            return
        self.num_guesses += 1
        state.guess = _Guess(ids, asyncio.create_task(self._ask(state, ids, room)))

    async def _ask(self, state: _State, ids: list[int], room: int) -> SampledLine:
        return await self._engine.line(
            ids,
            max_tokens=min(room, self._config.max_line_tokens),
            seed=derive_seed(state.seed, len(state.built.lines)),
        )

    async def _take(self, sampled: SampledLine, state: _State) -> LineOutcome:
        """Append a sampled line, run it if it is whole, and record it with its outcome."""
        text = state.built.add_line(sampled)
        if sampled.end is not LineEnd.NEWLINE:
            return LineOutcome(kind=OutcomeKind.CUT)
        outcome = await self._execute(strip_line(text), state)
        state.built.set_outcome(outcome)
        return outcome

    async def _execute(self, text: str, state: _State) -> LineOutcome:
        # Inside an open statement a comment belongs to the source: it may close a triple quote.
        if not state.pending and is_thought(text):
            return LineOutcome(kind=thought_kind(text))
        if not state.pending and (expression := submitted_expression(text)) is not None:
            return await self._submit(expression, state)
        source = state.pending + text
        self._guess(source, state)
        execution = await state.kernel.run(source)
        kind = executed_kind(source, execution, state.history)
        if kind is OutcomeKind.INCOMPLETE:
            state.pending = source + "\n"
            return self._outcome(kind, execution, state)
        state.pending = ""
        if execution.status is ExecStatus.OK:
            state.history.add((source, execution.output))
        return self._outcome(kind, execution, state)

    async def _submit(self, expression: str, state: _State) -> LineOutcome:
        """The kernel only hands over the value; that something is submitted is decided here."""
        execution = await state.kernel.evaluate(expression)
        if execution.status is not ExecStatus.OK:
            return self._outcome(executed_kind(expression, execution, set()), execution, state)
        state.built.submission = execution.value
        # A kernel that says OK and hands over nothing is one that the policy has bent.
        is_submitted = execution.value is not None
        kind = OutcomeKind.SUBMITTED if is_submitted else OutcomeKind.BAD_SUBMIT
        return self._outcome(kind, execution, state)

    def _outcome(self, kind: OutcomeKind, execution: Execution, state: _State) -> LineOutcome:
        output = self._format.render_output(execution.output, number=state.number)
        observation = self._fit(output)
        return LineOutcome(
            kind=kind,
            observation=observation,
            wall_ms=execution.wall_ms,
            cpu_ms=execution.cpu_ms,
            is_truncated=execution.is_truncated or observation != output,
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
    if state.built.submission is not None:
        return StopReason.SUBMITTED
    if sampled.end is LineEnd.EOS:
        return StopReason.EOS
    if kind is OutcomeKind.KILLED:
        return StopReason.KERNEL_KILLED
    if kind is OutcomeKind.DIED:
        return StopReason.KERNEL_DIED
    return None


async def _drop_guess(state: _State) -> None:
    """Call off a line that was begun in vain. What it raised is of no account: nobody needs it."""
    if state.guess is None:
        return
    line, state.guess = state.guess.line, None
    line.cancel()
    await asyncio.gather(line, return_exceptions=True)
