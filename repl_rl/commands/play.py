"""A person in the policy's place: the same loop, kernel, grader and reward, a keyboard as engine.

    prompt -> [keyboard -> Execution -> observation]* -> Trajectory -> Verdict -> Reward

Tokens are bytes, so limits in tokens are lifted. Knows no model, no torch and no files.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import Protocol

from rich.text import Text

from repl_rl.config import Config, SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.errors import ConfigError, GraderError
from repl_rl.rollout.builder import RolloutCancelled, TrajectoryBuilder
from repl_rl.rollout.kernels import kernel_pool
from repl_rl.rollout.runner import Attempt
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scorer, open_scorer, unscored
from repl_rl.runs.folder import make_origin
from repl_rl.tasks.base import Task, make_setup
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.format import TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.types import Origin, OutcomeKind, Scored, StopReason, Trajectory
from repl_sandbox.render import SURROGATE, clean
from repl_sandbox.types import Kernel, SandboxError

_UNLIMITED = 1 << 30


class Desk(Protocol):
    """Where the person sits."""

    def ask(self, prompt: str) -> str | None:
        """The next line, without newline; None at its end. KeyboardInterrupt calls it off."""
        ...

    def say(self, text: Text) -> None:
        """Show rows that stay."""
        ...

    def note(self, text: str) -> None:
        """Show a few words about the line above."""
        ...


def check_playable(config: Config) -> TranscriptFormat:
    """What a transcript looks like; ConfigError where a person cannot write one."""
    if config.sampling.sampler != SamplingConfig().sampler:
        raise ConfigError(
            f"sampling.sampler = {config.sampling.sampler!r} asks a model for more than lines; "
            f"play takes {SamplingConfig().sampler!r}"
        )
    if config.transcript == "chat":
        raise ConfigError(
            "transcript = 'chat' takes a model's template; play with --set transcript=python"
        )
    return load_format(config.transcript)


def without_token_limits(config: Config) -> Config:
    """The config that is played: no limit in tokens, no time limit, one kernel."""
    sampling = replace(
        config.sampling,
        max_line_tokens=_UNLIMITED,
        max_tokens=_UNLIMITED,
        max_observation_tokens=_UNLIMITED,
        time_limit_s=float(_UNLIMITED),
        max_in_flight=1,
        speculate=False,
    )
    # Nothing may be under way while a person thinks: the event loop stands still then.
    return replace(config, sampling=sampling, sandbox=replace(config.sandbox, standby=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What there is once a person is done."""

    scored: Scored
    origin: Origin
    failure: SandboxError | GraderError | None
    """What of ours ended it. The lines that were written are in `scored` all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One attempt by a person; `config` is as `without_token_limits` made it."""

    config: Config
    task: Task
    attempt: Attempt
    desk: Desk

    async def play(self) -> Played:
        """To its end, however it comes. SandboxError and GraderError if it cannot begin.

        Called off, or ended by a failure of ours, it is the part that is there: its stop reason is
        CANCELLED.
        """
        fmt = check_playable(self.config)
        setup = make_setup(self.task, fmt)
        pool = kernel_pool(self.config.sandbox, setup=setup)
        async with pool, open_scorer(self.config) as scorer:
            kernel = await pool.acquire(seed=self.attempt.seed)
            async with contextlib.aclosing(kernel):
                trajectory, lost = await self._write(kernel, fmt, scorer)
            scored, failure = await self._score(trajectory, scorer)
            walls = str(pool.walls)
        origin = make_origin(self.config, setup=setup, tokenizer=None, isolation=walls)
        return Played(scored=scored, origin=origin, failure=lost or failure)

    async def _write(
        self, kernel: Kernel, fmt: TranscriptFormat, scorer: Scorer
    ) -> tuple[Trajectory, SandboxError | None]:
        codec = ByteCodec()
        heard: list[TrajectoryBuilder] = []
        sampler = LineSampler(
            ScriptedEngine(codec, _Keyboard(self.desk).write),
            codec,
            fmt,
            self.config.sampling,
            context_tokens=2 * _UNLIMITED,
        )

        def on_line(built: TrajectoryBuilder) -> None:
            heard.append(built)
            self._tell(built, scorer)

        sampler.on_line = on_line
        try:
            return await sampler.sample(self.attempt.rollout(self.task, fmt), kernel), None
        except RolloutCancelled as cancelled:
            _take_back_cancel()
            return cancelled.trajectory, None
        except SandboxError as error:
            if not heard:
                raise
            return heard[-1].build(StopReason.CANCELLED), error

    async def _score(
        self, trajectory: Trajectory, scorer: Scorer
    ) -> tuple[Scored, GraderError | None]:
        problem, failure = self.attempt.problem, None
        if trajectory.stop_reason is not StopReason.CANCELLED:
            try:
                return await scorer.score(trajectory, problem), None
            except asyncio.CancelledError:
                _take_back_cancel()
            except GraderError as error:
                failure = error
        called_off = replace(trajectory, stop_reason=StopReason.CANCELLED)
        return unscored(called_off, problem), failure

    def _tell(self, built: TrajectoryBuilder, scorer: Scorer) -> None:
        """What the last line printed, and what it is worth as things stand."""
        line = built.lines[-1]
        if line.outcome.observation:
            self.desk.say(Text(clean(line.outcome.observation).rstrip("\n")))
        if line.outcome.kind is OutcomeKind.CUT:
            return
        rewards = scorer.so_far(built.build(StopReason.CANCELLED))
        self.desk.note(
            f"line {len(rewards)} of {self.config.sampling.max_lines}: {line.outcome.kind} "
            f"{rewards[-1]:+.2f}, all lines {sum(rewards):+.2f}"
        )


def _take_back_cancel() -> None:
    """The interrupt has been served: what follows may wait, with deadlines, once more."""
    task = asyncio.current_task()
    assert task is not None
    while task.cancelling():
        task.uncancel()


class _Keyboard:
    """Asks the person for a line, as the engine does a model. The event loop waits meanwhile.

    In a thread the question would outlive an interrupt, and with it the process.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._is_first = True

    def write(self, seen: str) -> str:
        """See `scripted.Writer`. What is `seen` ends in the prompt that asks for the line."""
        above, _, prompt = seen.rpartition("\n")
        if self._is_first:
            self._desk.say(Text(clean(above), "dim"))
            self._is_first = False
        try:
            typed = self._desk.ask(clean(prompt))
        except KeyboardInterrupt:
            raise asyncio.CancelledError from None
        if typed is None:
            return ""
        return f" {SURROGATE.sub(chr(0xFFFD), typed)}\n" if typed else "\n"
