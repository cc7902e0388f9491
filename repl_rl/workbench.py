"""Everything a run needs that must be closed again: kernels, grader, engine, event loop.

Floor 5. Opens and closes; does not know what the run is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sandbox
from repl_rl import __version__
from repl_rl.config import Config, SandboxConfig
from repl_rl.engines.hf import HFEngine
from repl_rl.errors import ConfigError
from repl_rl.grading.grader import Grader
from repl_rl.models import LoadedModel, check_memory, usable_context
from repl_rl.rewards import load_reward
from repl_rl.rollouts import Attempt, RolloutRunner
from repl_rl.sampler import LineSampler
from repl_rl.tasks.base import Task, prompt_text
from repl_rl.transcript import PYTHON, setup_sources
from repl_rl.types import Scored, Split
from sandbox.isolation import Standing
from sandbox.pool import KernelPool
from sandbox.types import Limits


def kernel_pool(task: Task, config: SandboxConfig) -> KernelPool:
    """Kernels in the state that the task's prompt shows."""
    if sandbox.__repl_rl__ != __version__:
        raise ConfigError(
            f"the package `sandbox` in this environment is not repl-rl's ({sandbox.__file__}); "
            f"install repl-rl in an environment of its own"
        )
    limits = Limits(
        line_cpu_s=config.line_cpu_s,
        line_wall_s=config.line_wall_s,
        grace_s=config.grace_s,
        kernel_cpu_s=config.kernel_cpu_s,
        memory_mib=config.memory_mib,
        max_output_chars=config.max_output_chars,
    )
    return KernelPool(
        limits,
        preload=config.preload,
        warmup=config.warmup,
        setup=setup_sources(task.prompt),
        standby=config.standby,
        isolation=config.isolation,
    )


_NUM_PROMPTS = 16
"""Problems of a split that are looked at for the length of its prompts."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """An open set of tools. `run` is the only way in from plain code."""

    engine: HFEngine
    standing: Standing
    """The walls around its kernels."""
    _runner: RolloutRunner
    _loop: asyncio.Runner

    @property
    def num_retries(self) -> int:
        """See `RolloutRunner.num_retries`."""
        return self._runner.num_retries

    def run(
        self, attempts: Sequence[Attempt], *, on_scored: Callable[[Scored], None] | None = None
    ) -> list[Scored]:
        """See `RolloutRunner.run`."""
        return self._loop.run(self._runner.run(attempts, on_scored=on_scored))


@contextlib.contextmanager
def open_workbench(
    config: Config, task: Task, task_spec: str, loaded: LoadedModel
) -> Iterator[Workbench]:
    """Kernels forked, grader started, engine ready; all gone after the block, however it ends.

    Raises ConfigError if the trajectories in flight cannot fit in memory, or one of them in what
    the model attends to.
    """
    sampling = config.sampling
    row_tokens = _longest_prompt(task, loaded) + sampling.max_tokens
    context_tokens = usable_context(loaded, row_tokens=row_tokens)
    check_memory(loaded, num_rows=sampling.max_in_flight, row_tokens=row_tokens)
    engine = HFEngine(
        loaded.model,
        newline_ids=loaded.codec.newline_ids,
        eos_ids=loaded.codec.eos_ids,
        num_rows=sampling.max_in_flight,
        row_tokens=min(row_tokens, context_tokens),
        temperature=sampling.temperature,
    )
    pool = kernel_pool(task, config.sandbox)
    grader = Grader(num_workers=config.grading.num_workers, deadline_s=config.grading.deadline_s)
    runner = RolloutRunner(
        task=task,
        task_spec=task_spec,
        fmt=PYTHON,
        sampler=LineSampler(engine, loaded.codec, PYTHON, sampling, context_tokens=context_tokens),
        kernels=pool,
        judge=grader,
        reward=load_reward(config.reward),
        reward_config=config.reward,
        max_in_flight=sampling.max_in_flight,
    )
    with asyncio.Runner() as loop:
        stack = contextlib.AsyncExitStack()
        try:
            loop.run(_open(stack, engine, pool, grader))
            yield Workbench(engine, pool.standing, runner, loop)
        finally:
            loop.run(stack.aclose())


def _longest_prompt(task: Task, loaded: LoadedModel) -> int:
    """Tokens of the longest prompt among some problems of both splits."""
    problems = [
        problem
        for split in Split
        for problem in itertools.islice(task.problems(split, seed=0), _NUM_PROMPTS)
    ]
    texts = [prompt_text(task, problem, PYTHON) for problem in problems]
    return max((len(loaded.codec.encode(text, is_trusted=True)) for text in texts), default=0)


async def _open(
    stack: contextlib.AsyncExitStack, engine: HFEngine, pool: KernelPool, grader: Grader
) -> None:
    stack.push_async_callback(engine.aclose)
    await stack.enter_async_context(pool)
    await stack.enter_async_context(grader)
