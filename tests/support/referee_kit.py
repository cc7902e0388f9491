"""A referee whose policy submits at once: what its script says for the state before that line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import LineEnd, SampledLine
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import Problem, Reward, Scored, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.tasks.base import make_prompt
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.replay.branch import Referee
from repl_rl.viewer.replay.scene import Scene
from repl_sandbox.types import KernelSource

CODEC = ByteCodec()
TASK: Any = SimpleNamespace(name="t", prompt="{{problem}}")
PROMPT = make_prompt(TASK, Problem(id="p", statement="What is 1 + 1?"), PYTHON).text
"""What the problem of `make_scored` is asked with."""


class Submits(ScriptedEngine):
    """Submits the next digit of a state; a state is how many lines stand before."""

    def __init__(self, digits: Mapping[int, str]) -> None:
        super().__init__(CODEC, script())
        self._digits: dict[int, Iterator[str]] = {at: iter(text) for at, text in digits.items()}

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        num_lines = CODEC.decode(ids).count(">>>") - PROMPT.count(">>>")
        written = CODEC.encode(f" submit_final_answer({next(self._digits[num_lines])})\n")
        return SampledLine(
            ids=tuple(written),
            logprobs=(0.0,) * len(written),
            end=LineEnd.NEWLINE,
            policy_version=0,
        )


class TwoIsRight:
    """An answer of 2 earns 1, any other 0."""

    async def score(self, trajectory: Trajectory, problem: Problem) -> Scored:
        reward = Reward(
            line_rewards=(0.0,) * len(trajectory.lines),
            outcome_reward=float(trajectory.submission == "2"),
        )
        return Scored(trajectory=trajectory, problem=problem, verdict=None, reward=reward)


def referee_of(scene: Scene, kernels: KernelSource, digits: Mapping[int, str]) -> Referee:
    """Continuations run one after another, so that the digits of a state come in their order."""
    config = SamplingConfig(engine_timeout_s=60.0)
    sampler = LineSampler(Submits(digits), CODEC, PYTHON, config, context_tokens=1 << 16)
    return Referee(
        sampler,
        Encoding(PYTHON, CODEC),
        TASK,
        scene,
        source="m",
        at_once=1,
        kernels=kernels,
        scorer=TwoIsRight(),
    )
