"""Sample one line, run it, splice its output: the loop at the heart of a rollout.

    prompt_ids -> [line -> Execution -> observation]* -> Trajectory

Knows tokens and kernels. Does not know rewards, groups or training.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from repl_rl.config import SamplingConfig
from repl_rl.engines.base import Engine, LineEnd, SampledLine
from repl_rl.rollout.builder import Rollout, RolloutCancelled, TrajectoryBuilder
from repl_rl.rollout.session import Session
from repl_rl.seeds import derive_seed
from repl_rl.transcript.format import TranscriptFormat, strip_line
from repl_rl.transcript.outcomes import silent_kind
from repl_rl.transcript.tokens import Codec
from repl_rl.types import LineOutcome, OutcomeKind, StopReason, Trajectory
from sandbox.render import truncate
from sandbox.types import Kernel


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
    session: Session
    seed: int
    deadline: float
    """By the clock of the event loop."""
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
        self.on_line: Callable[[TrajectoryBuilder], None] | None = None
        """Hears of each line of each rollout as soon as its outcome is known."""
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
        session = Session(kernel, self._format, number=rollout.prompt.next_number)
        return await self.go_on(built, session, seed=rollout.seed)

    async def go_on(self, built: TrajectoryBuilder, session: Session, *, seed: int) -> Trajectory:
        """Sample from where `built` and the kernel of `session` stand, to the end, as `sample`.

        What `built` holds ends in a prompt; its tokens count against the budgets.
        """
        deadline = asyncio.get_running_loop().time() + self._config.time_limit_s
        state = _State(built, session, seed, deadline)
        session.on_run = lambda source: self._guess(source, state)
        session.fit = self._fit
        try:
            return built.build(await self._loop(state))
        except asyncio.CancelledError:
            raise RolloutCancelled(built.build(StopReason.CANCELLED)) from None
        finally:
            await _drop_guess(state)

    async def _loop(self, state: _State) -> StopReason:
        built, session = state.built, state.session
        while True:
            room, full = self._room(built, len(built.ids))
            sampled = await self._sample(state, room)
            if sampled is None:
                return StopReason.TIME_LIMIT
            outcome = await self._take(sampled, state)
            if self.on_line is not None:
                self.on_line(built)
            if stop := _stop_reason(sampled, state, outcome.kind):
                return stop
            if sampled.end is LineEnd.LENGTH:
                return full if len(sampled.ids) == room else StopReason.MAX_LINE_TOKENS
            if len(built.lines) >= self._config.max_lines:
                return StopReason.MAX_LINES
            if asyncio.get_running_loop().time() > state.deadline:
                return StopReason.TIME_LIMIT
            injected = self._observed(session, outcome.observation, outcome.kind)
            session.go_on(outcome.kind)
            room, full = self._room(built, len(built.ids))
            if len(injected) >= room:  # an observation that leaves no token to answer it is no use
                return full
            built.inject(injected)

    def _observed(self, session: Session, observation: str, kind: OutcomeKind) -> list[int]:
        return self._codec.encode(session.show(observation, kind), is_trusted=False)

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
        ids = [*built.ids, *self._observed(state.session, "", kind)]
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
        built = state.built
        text = built.add_line(sampled)
        if sampled.end is not LineEnd.NEWLINE:
            return LineOutcome(kind=OutcomeKind.CUT)
        outcome = await state.session.run(strip_line(text))
        built.submission = state.session.submission
        built.set_outcome(outcome)
        return outcome

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
    return kind.traits.ends


async def _drop_guess(state: _State) -> None:
    """Call off a line that was begun in vain. What it raised is of no account: nobody needs it."""
    if state.guess is None:
        return
    line, state.guess = state.guess.line, None
    line.cancel()
    await asyncio.gather(line, return_exceptions=True)
