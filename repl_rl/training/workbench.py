"""Everything a run needs that must be closed again: kernels, grader, engine, event loop.

Opens and closes; does not know what the run is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from repl_rl.config import Config, SamplingConfig
from repl_rl.credit.rewards import load_reward
from repl_rl.engines.base import Engine
from repl_rl.engines.memory import measure
from repl_rl.engines.models import (
    LoadedModel,
    ModelFiles,
    about_device,
    free_bytes,
    load_weights,
    pick_device,
    read_files,
    usable_context,
)
from repl_rl.engines.precision import precision, warning
from repl_rl.engines.serving import describe, make_engine, sync
from repl_rl.grading.grader import Grader
from repl_rl.rollout.builder import prompt_ids
from repl_rl.rollout.kernels import kernel_pool
from repl_rl.rollout.runner import Attempt, RolloutRunner, TrajectorySampler
from repl_rl.rollout.sampler import LineSampler
from repl_rl.runs.folder import make_origin
from repl_rl.tasks.base import Task, make_prompt, make_setup
from repl_rl.training.names import sampler_class
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.format import TranscriptFormat
from repl_rl.types import Origin, Scored, Split
from sandbox.isolation import Standing
from sandbox.pool import KernelPool

_NUM_PROMPTS = 16
"""Problems of a split that are looked at for the length of its prompts."""

_PROBE_TOKENS = 64
"""Leading tokens of a prompt that an engine's weights are checked with."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """An open set of tools: the way in from plain code."""

    standing: Standing
    """The walls around its kernels."""
    engine: Engine
    about_engine: str
    """See `serving.describe`."""
    origin: Origin
    """Of what is sampled with it."""
    sampler: TrajectorySampler
    context_tokens: int
    """Where the sampler ends a trajectory at the latest, prompt included."""
    _runner: RolloutRunner
    _loop: asyncio.Runner
    _loaded: LoadedModel
    _probe: Sequence[int]
    """What to sample after when the engine's weights are checked."""
    _temperature: float

    @property
    def num_retries(self) -> int:
        """See `RolloutRunner.num_retries`."""
        return self._runner.num_retries

    def run(
        self,
        attempts: Sequence[Attempt],
        *,
        on_sampled: Callable[[], None] = lambda: None,
        on_scored: Callable[[Scored], None] | None = None,
    ) -> list[Scored]:
        """See `RolloutRunner.run`."""
        return self._loop.run(
            self._runner.run(attempts, on_sampled=on_sampled, on_scored=on_scored)
        )

    def guesses(self) -> dict[str, float]:
        """Metrics of speculative lines since the start; none where none were begun."""
        if not isinstance(self.sampler, LineSampler) or not self.sampler.num_guesses:
            return {}
        return {
            "speculation/guesses": self.sampler.num_guesses,
            "speculation/hit_rate": self.sampler.num_hits / self.sampler.num_guesses,
        }

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids that the policy's vocabulary stands for."""
        return self._loaded.codec.decode(ids)

    def sleep(self) -> None:
        """See `Engine.sleep`."""
        self._loop.run(self.engine.sleep())

    def sync(self, version: int) -> float:
        """See `serving.sync`."""
        return self._loop.run(
            sync(
                self.engine,
                self._loaded,
                self._probe,
                version=version,
                temperature=self._temperature,
            )
        )


@contextlib.contextmanager
def open_workbench(
    config: Config,
    task: Task,
    task_spec: str,
    loaded: LoadedModel,
    *,
    watch: Callable[[Engine], Engine] = lambda engine: engine,
) -> Iterator[Workbench]:
    """Kernels forked, grader started, engine ready; all gone after the block, however it ends.

    `watch` may put something between the engine and all that use it.

    Raises ConfigError if the trajectories in flight cannot fit in memory, or one of them in what
    the model attends to.
    """
    sampling = config.sampling
    fmt = load_format(config.transcript, loaded.chat_template)
    prompts = _some_prompts(task, fmt, loaded)
    row_tokens, context_tokens = _lengths(sampling, loaded, prompts)
    make_sampler = sampler_class(sampling.sampler)
    setup = make_setup(task, fmt)
    pool = kernel_pool(config.sandbox, setup=setup)
    grader = Grader(num_workers=config.grading.num_workers, deadline_s=config.grading.deadline_s)
    reward = load_reward(config.reward, config.grpo)
    with asyncio.Runner() as loop:
        stack = contextlib.AsyncExitStack()
        try:
            engine = watch(make_engine(config, loaded, row_tokens=row_tokens))
            stack.push_async_callback(engine.aclose)
            sampler = make_sampler(
                engine, loaded.codec, fmt, sampling, context_tokens=context_tokens
            )
            loop.run(_open(stack, pool, grader))
            bench = Workbench(
                standing=pool.standing,
                engine=engine,
                about_engine=describe(config, loaded, row_tokens=row_tokens),
                origin=make_origin(
                    config, setup=setup, tokenizer=loaded.source, isolation=str(pool.standing)
                ),
                sampler=sampler,
                context_tokens=context_tokens,
                _runner=RolloutRunner(
                    task=task,
                    task_spec=task_spec,
                    fmt=fmt,
                    sampler=sampler,
                    kernels=pool,
                    judge=grader,
                    reward=reward,
                    reward_config=config.reward,
                    max_in_flight=sampling.max_in_flight,
                ),
                _loop=loop,
                _loaded=loaded,
                _probe=prompts[0][:_PROBE_TOKENS],
                _temperature=sampling.temperature,
            )
            # A server may hold the weights of another run.
            bench.sync(0)
            yield bench
        finally:
            loop.run(stack.aclose())


def load_policy(
    config: Config,
    task: Task,
    policy: str,
    *,
    say: Callable[[str], None],
    is_training: bool = False,
) -> LoadedModel:
    """The model in `policy`, for this config, once it was said what it takes.

    Raises ConfigError, before weights are read, for what cannot fit, and as `open_workbench`.
    """
    device = pick_device(config.sampling.device)
    held = precision(config, device=device.type)
    files = read_files(policy)
    prompts = _some_prompts(task, load_format(config.transcript, files.chat_template), files)
    row_tokens, _ = _lengths(config.sampling, files, prompts)
    memory = measure(config, files, held, row_tokens=row_tokens, is_training=is_training)
    free = free_bytes(device)
    memory.check(free)
    say(f"device: {about_device(device, visible=os.environ.get('CUDA_VISIBLE_DEVICES'))}")
    say(f"memory: {memory.row(free)}")
    said = warning(held, learning_rate=config.grpo.learning_rate) if is_training else None
    if said is not None:
        say(said)
    return load_weights(files, device=device, precision=held)


def _lengths(
    sampling: SamplingConfig, model: ModelFiles | LoadedModel, prompts: Sequence[Sequence[int]]
) -> tuple[int, int]:
    """Tokens of the longest row of the engine, and where a sampler ends a trajectory at the latest.

    Raises ConfigError if the model does not attend to as many.
    """
    longest = max(map(len, prompts), default=0)
    context_tokens = usable_context(model, row_tokens=longest + sampling.max_tokens)
    row_tokens = min(context_tokens, longest + sampling.max_tokens)
    if sampling.engine != "hf":
        # Rows of the others do not grow, and a prompt that was not looked at may be longer.
        row_tokens = context_tokens = min(context_tokens, row_tokens + longest)
    return row_tokens, context_tokens


def _some_prompts(
    task: Task, fmt: TranscriptFormat, loaded: ModelFiles | LoadedModel
) -> list[list[int]]:
    """Ids of the prompts of some problems of both splits."""
    problems = [
        problem
        for split in Split
        for problem in itertools.islice(task.problems(split, seed=0), _NUM_PROMPTS)
    ]
    return [prompt_ids(make_prompt(task, problem, fmt), loaded.codec) for problem in problems]


async def _open(stack: contextlib.AsyncExitStack, pool: KernelPool, grader: Grader) -> None:
    await stack.enter_async_context(pool)
    await stack.enter_async_context(grader)
