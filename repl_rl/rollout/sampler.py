"""Sample one line, run it, go on after its output: the loop of a rollout, and a thought before it.

    prompt -> thought -> Episode -> [engine.line -> episode.take_line]* -> Trajectory

`ScriptSampler` writes trajectories without an engine: prompt, lines and answers have the ids that
they have where a model samples. Knows engines. The episode knows what a line does. Does not know
rewards, groups or training.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from repl_rl.base.concurrency import derive_seed
from repl_rl.base.plugins import users_code
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import Engine, LineEnd, SampledLine, answered_within, line_end
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Problem, StopReason, Trajectory
from repl_rl.rollout.builder import RolloutCancelled, TrajectoryBuilder
from repl_rl.rollout.episode import Episode, Session
from repl_rl.rollout.prefixes import run_again
from repl_rl.tasks.base import Script
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import Prompt, TranscriptFormat, line_of
from repl_rl.transcript.tokens import Codec
from repl_sandbox.types import Kernel


class LineSampler:
    r"""Makes trajectories, one line at a time. Holds no state between them; safe to share.

        engine = ScriptedEngine(codec, script(" 1 + 1\n"))
        sampler = LineSampler(engine, codec, fmt, config.sampling, context_tokens=4096)
        trajectory = await sampler.sample(attempt, prompt, kernel)

    A class that replaces it has these arguments and this method. `scripts` may name what shows
    demonstrations in its form: see `ScriptSampler`.
    """

    samples_lines = True
    """Each line is shown to `on_line`, and each state to `on_state`. A class that leaves it out, or
    that is derived from this one and does not repeat it, has a loop of its own."""

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
        self._encoding = Encoding(fmt, codec)
        self._config = config
        self._context_tokens = context_tokens
        self.on_line: Callable[[TrajectoryBuilder], None] | None = None
        """Called for each line of each rollout as soon as its outcome is known."""

    async def sample(
        self,
        attempt: Attempt,
        prompt: Prompt,
        kernel: Kernel,
        *,
        on_state: Callable[[Trajectory], None] | None = None,
    ) -> Trajectory:
        """Make one trajectory from `prompt` on. What the policy does wrong is in the trajectory.

        `on_state` gets as much as is there behind each of its own lines, wherever it goes on.

        Raises ConfigError if the prompt leaves no room for a token, StemError if the lines that it
        begins with do something else, EngineError and SandboxError if our own side fails, and
        RolloutCancelled with the part made so far when it is cancelled.
        """
        episode = Episode.begin(
            attempt, prompt, kernel, self._encoding, self._config, self._context_tokens
        )
        if attempt.stem is not None:
            await run_again(attempt.stem, episode.session)
        elif prompt.after:
            await self._think(episode.built)
        episode.start_clock()
        return await self._go_on(episode, on_state)

    async def _think(self, built: TrajectoryBuilder) -> None:
        """Append a thought of at most `max_think_tokens`, and what asks for a line.

        A thought ends with its marker. At the limit, or where the policy ends the sequence, the
        marker is injected; the token that ended the sequence is dropped.
        """
        room = _room_for_thought(built, self._config)
        pieces: list[SampledLine] = []
        ids: list[int] = []
        is_over = False
        try:
            while not is_over and len(ids) < room:
                seed = derive_seed(built.attempt.seed, "thought", len(pieces))
                sampled = await self._ask([*built.ids, *ids], room - len(ids), seed)
                piece, is_over = _of_thought(built, ids, sampled)
                pieces.append(piece)
                ids += piece.ids
        except asyncio.CancelledError:
            raise RolloutCancelled(built.build(StopReason.CANCELLED)) from None
        built.add_thought(*pieces)

    async def continue_from(
        self, built: TrajectoryBuilder, session: Session, *, seed: int
    ) -> Trajectory:
        """Like `sample`, from the state of `built` and of the kernel of `session` to the end."""
        return await self._go_on(Episode(built, session, limits=self._config, seed=seed))

    async def _go_on(
        self, episode: Episode, on_state: Callable[[Trajectory], None] | None = None
    ) -> Trajectory:
        episode.on_line = self.on_line
        try:
            while episode.stop is None:
                sampled = await self._sample(episode)
                if sampled is None:
                    episode.end(StopReason.TIME_LIMIT)
                else:
                    await episode.take_line(sampled)
                    if on_state is not None and episode.stop is None:
                        on_state(episode.trajectory())
            return episode.trajectory()
        except asyncio.CancelledError:
            episode.end(StopReason.CANCELLED)
            raise RolloutCancelled(episode.trajectory()) from None

    async def _sample(self, episode: Episode) -> SampledLine | None:
        """The next line; None where the time limit came first.

        The first line of its own has no limit: a trajectory without a token cannot be trained on.
        """
        try:
            is_first = len(episode.built.lines) == episode.built.num_copied_lines
            async with asyncio.timeout_at(None if is_first else episode.deadline) as limit:
                return await self._ask(episode.ids, episode.room, episode.line_seed)
        except TimeoutError:
            if limit.expired():
                return None
            raise  # the engine's own

    async def _ask(self, ids: list[int], most: int, seed: int) -> SampledLine:
        async with answered_within(self._config.engine_timeout_s, "a line"):
            return await self._engine.line(ids, max_tokens=most, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLine:
    """A line of a transcript that somebody wrote by hand."""

    source: str
    """Without newline."""
    output: str
    """Output that is said to have come back. Ends in a newline unless empty."""
    place: str
    """`FILE:LINE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A transcript that somebody wrote by hand; one without any output says nothing of outputs."""

    problem: Problem
    lines: tuple[WrittenLine, ...]

    @property
    def has_outputs(self) -> bool:
        return any(line.output for line in self.lines)


def fixed_script(sources: Iterable[str]) -> Script:
    """The script of these lines, whatever is answered."""
    for source in sources:  # noqa: UP028  # a list has no `send`
        yield source


@dataclass(frozen=True, slots=True)
class ScriptSampler:
    """Makes the trajectory of the script that `write` has for an attempt.

    One that ends without a submission has the stop reason EOS, though no token says so. A line that
    is longer than `limits` allow is cut, as a policy's is. Raises ConfigError for a script that has
    no line or fails, and for a line that holds a newline.
    """

    write: Callable[[Attempt], Script]
    encoding: Encoding
    limits: SamplingConfig
    context_tokens: int = field(kw_only=True)

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        """Run the script's lines: see `TrajectorySampler.sample`."""
        episode = Episode.begin(
            attempt, prompt, kernel, self.encoding, self.limits, self.context_tokens
        )
        with users_code("demonstrate()"):
            script = self.write(attempt)
        source = answered(script, None)
        if source is None:
            raise ConfigError(
                f"the script of problem {attempt.problem.id} has no line; yield at least one, such "
                f"as submit_final_answer(...)"
            )
        while source is not None and episode.stop is None:
            step = await episode.take_line(self._line(source, episode.room))
            source = answered(script, step.outcome.observation)
        if episode.stop is None:
            episode.end(StopReason.EOS)
        return episode.trajectory()

    def _line(self, source: str, room: int) -> SampledLine:
        """Sample a line as a policy that is sure of it, as far as there is room."""
        if "\n" in source:
            raise ConfigError(f"a scripted line continues after a newline: {source!r}; yield two")
        codec = self.encoding.codec
        ids = tuple(self.encoding.line_ids(line_of(source))[:room])
        end = line_end(ids[-1], newline_ids=codec.newline_ids, eos_ids=codec.eos_ids)
        return SampledLine(ids=ids, logprobs=(0.0,) * len(ids), end=end, policy_version=0)


def answered(script: Script, observation: str | None) -> str | None:
    """Return the line that a script has after what its last one printed; None where it ends.

    An observation of None begins it. Raises ConfigError if it fails.
    """
    with users_code("demonstrate()"):
        try:
            return next(script) if observation is None else script.send(observation)
        except StopIteration:
            return None


def _room_for_thought(built: TrajectoryBuilder, limits: SamplingConfig) -> int:
    """Tokens of a thought that leave one for a line; raises ConfigError where there is none."""
    needed = len(built.encoding.after_thought(built.prompt.after, "")[0]) + 1
    room = min(limits.max_tokens, built.context_tokens - built.num_prompt) - needed
    if room < 0:
        raise ConfigError(
            f"{needed} tokens end a thought and ask for a line, but a trajectory has "
            f"{room + needed}; raise sampling.max_tokens, or set sampling.max_think_tokens = 0"
        )
    return min(limits.max_think_tokens, room)


def _of_thought(
    built: TrajectoryBuilder, ids: Sequence[int], sampled: SampledLine
) -> tuple[SampledLine, bool]:
    """(the part of a piece that belongs to the thought, whether the thought is over)."""
    decode, marker = built.encoding.codec.decode, built.encoding.thought_end(built.prompt.after)
    if marker in decode([*ids, *sampled.ids]):
        sizes = range(1, len(sampled.ids) + 1)
        at = bisect.bisect_left(
            sizes, x=True, key=lambda size: marker in decode([*ids, *sampled.ids[:size]])
        )
        return _cut(sampled, sizes[at]), True
    is_over = sampled.end is LineEnd.EOS
    return _cut(sampled, len(sampled.ids) - is_over), is_over


def _cut(sampled: SampledLine, size: int) -> SampledLine:
    return replace(sampled, ids=sampled.ids[:size], logprobs=sampled.logprobs[:size])
