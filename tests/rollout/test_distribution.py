"""The law of sampling: a trajectory comes as often as the model says."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from attempt_kit import an_attempt
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import SampledLine, Weights, line_end
from repl_rl.records import Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.format import Prompt, TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

NEWLINE, EOS = 10, 256
ASSIGN, SHOW = ord("a"), ord("s")
TEXTS = {ASSIGN: " x = 1", SHOW: " x"}


class OneByteLines(ByteCodec):
    """`a` decodes to an assignment and `s` to an expression: a token a source."""

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        return "".join(TEXTS.get(i, chr(i)) for i in ids if i < EOS)


CODEC = OneByteLines()
FORMAT = TranscriptFormat(name="tiny", banner="", primary=">", secondary=".")
SAMPLING = SamplingConfig(max_lines=3, max_line_tokens=4, max_tokens=100)


def distribution(ids: Sequence[int]) -> dict[int, float]:
    """Distribution of the next token; it depends on all before it: prompts, outputs and lines."""
    if ids[-1] in (ASSIGN, SHOW):
        return {NEWLINE: 1.0}
    weight = 1 + sum(i * (at + 1) for at, i in enumerate(ids)) % 7
    return {ASSIGN: weight / 10, SHOW: (8 - weight) / 10, EOS: 0.2}


@dataclass
class Chooser:
    """Samples by asking `draw` for the first token of a line, keyed by the seed of the line."""

    draw: dict[int, float]
    num_sampled: int = 0

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        new: list[int] = []
        logprobs: list[float] = []
        while len(new) < max_tokens and not set(new) & {NEWLINE, EOS}:
            options = distribution([*ids, *new])
            below = itertools.accumulate(options.values())
            drawn = 0.0 if new else self.draw[seed]
            token = next(i for i, top in zip(options, below, strict=True) if drawn < top)
            new.append(token)
            logprobs.append(math.log(options[token]))
        end = line_end(new[-1], newline_ids=CODEC.newline_ids, eos_ids=CODEC.eos_ids)
        return SampledLine(ids=tuple(new), logprobs=tuple(logprobs), end=end, policy_version=0)

    async def sync(self, weights: Weights, *, version: int) -> None: ...

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...


class Failing(FakeKernel):
    """Shows a value, and fails at every second assignment."""

    def __init__(self) -> None:
        super().__init__(self._say)
        self._num_assigned = 0

    def _say(self, source: str) -> Execution:
        if source == "x":
            return Execution(status=ExecStatus.OK, output="1\n")
        self._num_assigned += 1
        if self._num_assigned % 2:
            return Execution(status=ExecStatus.OK)
        return Execution(status=ExecStatus.ERROR, output="E\n", error_type="NameError")


# One draw a line decides it: below 0.1 an assignment is sure, above 0.8 an end.
DRAWS = [i / 10 + 0.05 for i in range(10)]


@pytest.mark.slow
def test_the_distribution_of_trajectories_is_that_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every table of draws, so every trajectory with its exact probability: 10 ** 3 of them."""
    # The number of a line stands for its seed, so that a table of draws can be written down.
    monkeypatch.setattr("repl_rl.rollout.episode.derive_seed", lambda _, index: index)
    shares: dict[Trajectory, float] = defaultdict(float)
    for draws in itertools.product(DRAWS, repeat=3):
        engine = Chooser(dict(enumerate(draws)))
        sampler = LineSampler(engine, CODEC, FORMAT, SAMPLING, context_tokens=1000)
        made = asyncio.run(sampler.sample(an_attempt(), Prompt.plain(">"), Failing()))
        shares[made] += 10**-3
    for trajectory, share in shares.items():
        assert share == pytest.approx(math.exp(sum(trajectory.logprobs)))
    assert sum(shares.values()) == pytest.approx(1.0)
