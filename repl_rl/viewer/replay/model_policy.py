"""A model that goes on from a live trajectory, and scores the tokens of a stored one.

    Live -> tokens -> engine -> lines in the live kernel;  Trajectory -> log-probabilities

Knows models and engines. Does not know screens, nor why it is asked.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from repl_rl.base.concurrency import derive_seed
from repl_rl.config import Config
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import AUTO, Engine
from repl_rl.engines.hf import HF
from repl_rl.errors import ConfigError
from repl_rl.models.loading import (
    LoadedModel,
    check_memory,
    load_model,
    logprobs,
    pick_device,
    rows_that_fit,
    silent,
)
from repl_rl.models.precision import precision
from repl_rl.records import Line, OutcomeKind, Trajectory
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.rollout.observations import Answers
from repl_rl.rollout.plan import TaskPlan
from repl_rl.rollout.sampler import LineSampler
from repl_rl.rollout.scoring import Scoring
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import TranscriptFormat, next_number
from repl_rl.viewer.replay.branch import Referee, begin, is_same_vocabulary
from repl_rl.viewer.replay.live import Live
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.types import KernelSource

_LONGEST_PROMPT = 4096
"""Tokens of a prompt for which there is room beside a trajectory and its continuation."""
_MOST_ROWS = 16
"""Continuations of a line that are sampled at once, at most."""


class ModelPolicy:
    """Goes on from a live trajectory, one rollout at a time."""

    def __init__(
        self,
        loaded: LoadedModel,
        engine: Engine,
        fmt: TranscriptFormat,
        *,
        context_tokens: int,
        sampling: SamplingConfig,
    ) -> None:
        self._loaded = loaded
        self._engine = engine
        self._sampler = LineSampler(
            engine, loaded.codec, fmt, sampling, context_tokens=context_tokens
        )
        self._format = fmt
        self._context_tokens = context_tokens
        self._sampling = sampling
        self._num_continued: Counter[int] = Counter()
        """Number of continuations of each trajectory, by its seed."""

    @property
    def source(self) -> str:
        """Source of the model and its tokenizer, as in `LoadedModel`."""
        return self._loaded.source

    def decode(self, ids: Sequence[int]) -> str:
        """Implement `branch.Policy`."""
        return self._loaded.codec.decode(ids)

    async def continue_from(self, live: Live, *, on_line: Callable[[Line], None]) -> Trajectory:
        """Implement `branch.Policy`. The first call has the recorded seed, each later one another.

        So the recorded policy goes on as it did, where nothing before was changed. A line that a
        limit or the end of the sequence cut is in the trajectory, but not in `live`. Raises
        ConfigError where a budget is used up.
        """
        built = begin(live, self._loaded.codec, self._format, context_tokens=self._context_tokens)
        self._check_room(built)
        session = live.session
        number = session.number

        def take_line(built: TrajectoryBuilder) -> None:
            nonlocal number
            line = built.lines[-1]
            if line.outcome.kind is OutcomeKind.CUT:
                return
            number = next_number(session.number, line.outcome.kind)
            live.take(line, text_after=live.text_after(line.outcome))
            on_line(line)

        self._sampler.on_line = take_line
        try:
            return await self._sampler.continue_from(built, session, seed=self._seed(live))
        finally:
            self._sampler.on_line = None
            # Lines by hand may follow. Their number counts on from the last prompt, for which a
            # sampler that stops does not wait.
            session.shorten, session.number = str, number

    def score(self, trajectory: Trajectory) -> tuple[float, ...]:
        """Log-probabilities [T] of a completion, nats; ConfigError for another vocabulary."""
        ids = [*trajectory.prompt_ids, *trajectory.completion_ids]
        start = len(trajectory.prompt_ids)
        num_known = self._loaded.model.get_input_embeddings().num_embeddings
        is_known = all(0 <= token < num_known for token in ids)
        if not (is_known and is_same_vocabulary(trajectory, self._loaded.codec)):
            raise ConfigError(
                f"{self._loaded.source!r} decodes these tokens to other texts; give the model that "
                f"sampled them, or one with its tokenizer"
            )
        if len(ids) > self._loaded.context_tokens:
            raise ConfigError(
                f"a trajectory of {len(ids)} tokens does not fit into the context of "
                f"{self._loaded.source!r}, {self._loaded.context_tokens}; give a model with more"
            )
        temperature, mask = self._sampling.temperature, trajectory.loss_mask
        return tuple(logprobs(self._loaded, ids, start, temperature=temperature, is_sampled=mask))

    def answers(self, scene: Scene) -> Answers:
        """Implement `branch.ScoringPolicy`."""
        return Answers(Encoding(scene.fmt, self._loaded.codec), setup=scene.setup)

    def referee(
        self, plan: TaskPlan, scene: Scene, *, kernels: KernelSource, scorer: Scoring
    ) -> Referee:
        """Implement `branch.ScoringPolicy`."""
        codec, fmt = self._loaded.codec, plan.format(self._loaded.chat_template)
        sampler = LineSampler(
            self._engine, codec, fmt, self._sampling, context_tokens=self._context_tokens
        )
        return Referee(
            sampler,
            Encoding(fmt, codec),
            plan.task,
            scene,
            source=self.source,
            at_once=self._sampling.max_in_flight,
            kernels=kernels,
            scorer=scorer,
        )

    def _check_room(self, built: TrajectoryBuilder) -> None:
        limit = self._sampling.max_tokens
        if built.num_completion >= limit:
            raise ConfigError(
                f"the lines so far have {built.num_completion} tokens, and sampling.max_tokens = "
                f"{limit} leaves none to continue with; go back a few lines, or raise it"
            )
        if len(built.ids) >= self._context_tokens:
            raise ConfigError(
                f"prompt and lines have {len(built.ids)} tokens, and the context of "
                f"{self._loaded.source!r} holds {self._context_tokens}; go back a few lines"
            )

    def _seed(self, live: Live) -> int:
        branch = live.trajectory.branch
        recorded = live.trajectory.seed if branch is None else branch.seed
        num_before = self._num_continued[recorded]
        self._num_continued[recorded] += 1
        return derive_seed(recorded, "branch", num_before) if num_before else recorded


@contextlib.asynccontextmanager
async def open_policy(
    scene: Scene, model: str, *, say: Callable[[str], None] = silent
) -> AsyncIterator[ModelPolicy]:
    """The model behind an engine of its own, in this process whatever the run sampled with.

    Raises ConfigError where there is no such model.
    """
    config = _alone(scene.config)
    device = pick_device(config.sampling.device)
    run_on = config.sampling.run_on
    loaded = load_model(
        model,
        device=device,
        precision=precision(config, HF(), device=device.type),
        run_on=run_on,
        say=say,
    )
    row_tokens = min(loaded.context_tokens, _LONGEST_PROMPT + 2 * config.sampling.max_tokens)
    most = min(scene.config.sampling.max_in_flight, _MOST_ROWS)
    num_rows = rows_that_fit(loaded, most=most, row_tokens=row_tokens)
    check_memory(loaded, num_rows=num_rows, row_tokens=row_tokens)
    sampling = replace(config.sampling, max_in_flight=num_rows)
    engine = HF().open(replace(config, sampling=sampling), loaded, row_tokens=row_tokens)
    fmt = load_format(config.transcript, loaded.chat_template)
    try:
        yield ModelPolicy(
            loaded,
            engine,
            fmt,
            context_tokens=row_tokens,
            sampling=sampling,
        )
    finally:
        await engine.aclose()


def _alone(config: Config) -> Config:
    sampling = config.sampling
    dtype = sampling.dtype if sampling.engine in (HF.name, AUTO) else "auto"
    one = replace(sampling, engine=HF.name, dtype=dtype, max_in_flight=1)
    return replace(config, sampling=one)
