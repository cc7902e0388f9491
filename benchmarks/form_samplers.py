"""Other forms of a rollout than a line at a time: `--set sampling.sampler=form_samplers:Block`.

    Block     x = 2 / x += 1 / x / a blank line -> 3     run together, answered together, and again
    Script    the same once and blind: its submission counts
    Written   a text up to `submit_final_answer(3)`: nothing runs, the answer is as it stands

A block is one `Line`, so masks, rewards and the update need nothing else.
"""

import asyncio
from dataclasses import replace

from form_scripts import BlockScripts, WholeScripts, WrittenScripts, room
from form_sessions import BlockSession, WrittenSession, written_answer

from repl_rl import (
    Attempt,
    Codec,
    Encoding,
    Engine,
    Episode,
    LineEnd,
    Prompt,
    SampledLine,
    SamplingConfig,
    StopReason,
    Trajectory,
    TrajectoryBuilder,
    TranscriptFormat,
    derive_seed,
)
from repl_rl.engines.base import answered_within
from repl_rl.rollout.builder import RolloutCancelled
from repl_rl.rollout.episode import Session
from repl_rl.rollout.sampler import ScriptSampler
from repl_sandbox import Kernel


class Block:
    """Samples lines up to a blank one and runs them together, as often as limits allow."""

    scripts: type[ScriptSampler] = BlockScripts
    session: type[Session] = BlockSession
    most: int | None = None
    """Blocks of a trajectory; None: `sampling.max_lines`."""

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
        self._config = config if self.most is None else replace(config, max_lines=self.most)
        self._context_tokens = context_tokens

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        """Make one trajectory: see `repl_rl.LineSampler.sample`."""
        encoding = self._encoding
        built = TrajectoryBuilder(attempt, prompt, encoding, context_tokens=self._context_tokens)
        session = self.session(kernel, encoding.format, number=prompt.next_number)
        episode = Episode(built, session, limits=self._config, seed=attempt.seed)
        try:
            while episode.stop is None:
                await episode.take_line(await self._sampled(episode))
            return episode.trajectory()
        except asyncio.CancelledError:
            episode.end(StopReason.CANCELLED)
            raise RolloutCancelled(episode.trajectory()) from None

    async def _sampled(self, episode: Episode) -> SampledLine:
        """A block as one line; its end is LENGTH where a limit comes before its mark."""
        pieces, ids, end = list[SampledLine](), list[int](), LineEnd.LENGTH
        most = room(episode.built, self._config)
        while len(ids) < most:
            async with answered_within(self._config.engine_timeout_s, "a line"):
                piece = await self._engine.line(
                    [*episode.ids, *ids],
                    max_tokens=min(most - len(ids), self._config.max_line_tokens),
                    seed=derive_seed(episode.line_seed, len(pieces)),
                )
            pieces.append(piece)
            ids += piece.ids
            is_closed = self.is_closed(self._encoding.source_of(ids))
            if piece.end is not LineEnd.NEWLINE or is_closed:
                end = piece.end
                break
        return SampledLine(
            ids=tuple(ids),
            logprobs=tuple(one for piece in pieces for one in piece.logprobs),
            end=end,
            policy_version=pieces[-1].policy_version,
        )

    def is_closed(self, text: str) -> bool:
        """Say whether a block that ends in a newline is whole."""
        return text.endswith("\n\n") or not text.strip()


class Script(Block):
    """One block."""

    scripts = WholeScripts
    most = 1


class Written(Block):
    """One text, up to the line that submits."""

    scripts = WrittenScripts
    session = WrittenSession
    most = 1

    def is_closed(self, text: str) -> bool:
        return written_answer(text.rstrip("\n").rpartition("\n")[2]) is not None
