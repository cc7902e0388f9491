"""Scripted attempts at a task, run line by line in real kernels: every output in them is real.

    Script -> ScriptedEngine -> the same loop that samples a policy -> Trajectory

Knows tasks, kernels and the loop. Does not know models or training.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable

from repl_rl.concurrency import run_all
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, Writer
from repl_rl.rollout.kernels import kernel_for
from repl_rl.rollout.sampler import LineSampler
from repl_rl.seeds import derive_seed
from repl_rl.tasks.base import DemonstrableTask, Script, make_prompt
from repl_rl.transcript.format import TranscriptFormat, line_of
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.types import Attempt, Problem, Split, Trajectory
from repl_sandbox.types import KernelSource

_UNLIMITED = SamplingConfig(
    max_lines=64, max_line_tokens=4096, max_tokens=65536, max_observation_tokens=16384
)
"""Bytes stand for tokens here: only the kernel's own cap in characters cuts an output."""


async def demonstrate(
    task: DemonstrableTask,
    kernels: KernelSource,
    fmt: TranscriptFormat,
    *,
    count: int,
    seed: int,
    max_in_flight: int,
    on_done: Callable[[], None] = lambda: None,
) -> list[Trajectory]:
    """`count` scripted trajectories on different training problems; tokens in them are bytes."""
    problems = itertools.islice(task.problems(Split.TRAIN, seed=derive_seed(seed, "demo")), count)

    async def one(numbered: tuple[int, Problem]) -> Trajectory:
        index, problem = numbered
        script = task.demonstrate(problem, random.Random(derive_seed(seed, "script", index)))
        trajectory = await _run(task, problem, script, kernels, fmt, derive_seed(seed, index))
        on_done()
        return trajectory

    return await run_all(one, enumerate(problems), at_once=max_in_flight)


async def _run(
    task: DemonstrableTask,
    problem: Problem,
    script: Script,
    kernels: KernelSource,
    fmt: TranscriptFormat,
    seed: int,
) -> Trajectory:
    engine = ScriptedEngine(ByteCodec(), script_writer(script, fmt))
    sampler = LineSampler(engine, ByteCodec(), fmt, _UNLIMITED, context_tokens=1 << 20)
    attempt = Attempt(problem=problem, group_index=0, sibling_index=0, seed=seed)
    async with contextlib.aclosing(await kernel_for(problem, kernels, seed=seed)) as kernel:
        return await sampler.sample(attempt, make_prompt(task, problem, fmt), kernel)


def script_writer(script: Script, fmt: TranscriptFormat) -> Writer:
    """Let a script write lines for `ScriptedEngine`: it gets observations without the prompt."""
    is_first = True

    def write(seen: str) -> str:
        nonlocal is_first
        try:
            if is_first:
                is_first = False
                line = next(script)
            else:
                line = script.send(seen.removesuffix(fmt.primary).removesuffix(fmt.secondary))
        except StopIteration:
            return ""
        return line_of(line)

    return write
