"""Laws of lines that are begun while a kernel is at work: what is sampled never depends on them."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from attempt_kit import an_attempt
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import SampledLine, Weights, line_end
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.format import Prompt, TranscriptFormat
from repl_rl.transcript.outcomes import silent_kind
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.types import Lemma, OutcomeKind, Problem, StopReason, Trajectory
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


def distribution(ids: Sequence[int]) -> dict[int, float]:
    """Of the next token; it depends on all before it: prompts, outputs and lines."""
    if ids[-1] in (ASSIGN, SHOW):
        return {NEWLINE: 1.0}
    weight = 1 + sum(i * (at + 1) for at, i in enumerate(ids)) % 7
    return {ASSIGN: weight / 10, SHOW: (8 - weight) / 10, EOS: 0.2}


@dataclass
class Chooser:
    """Samples by asking `draw` at every token, keyed by the seed of the line and the place in it.

    A line takes several turns of the event loop, as a real one does.
    """

    draw: dict[tuple[int, int], float]
    steps: int = 1
    num_sampled: int = 0
    asked: list[tuple[int, ...]] = field(default_factory=list)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        self.asked.append(tuple(ids))
        new: list[int] = []
        logprobs: list[float] = []
        while len(new) < max_tokens and not set(new) & {NEWLINE, EOS}:
            for _ in range(self.steps):
                await asyncio.sleep(0)
            options = distribution([*ids, *new])
            below = itertools.accumulate(options.values())
            drawn = self.draw.get((seed, len(new)), 0.0)
            token = next(i for i, top in zip(options, below, strict=True) if drawn < top)
            new.append(token)
            logprobs.append(math.log(options[token]))
            self.num_sampled += 1
        end = line_end(new[-1], newline_ids=CODEC.newline_ids, eos_ids=CODEC.eos_ids)
        return SampledLine(ids=tuple(new), logprobs=tuple(logprobs), end=end, policy_version=0)

    async def sync(self, weights: Weights, *, version: int) -> None: ...

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...


SILENT = Execution(status=ExecStatus.OK)
SPOKEN = Execution(status=ExecStatus.OK, output="1\n")
FAILED = Execution(status=ExecStatus.ERROR, output="E\n", error_type="NameError")


class SlowKernel(FakeKernel):
    """Takes `turns` of the event loop for an answer; every `fails_at`-th assignment fails."""

    def __init__(self, turns: int, fails_at: int) -> None:
        super().__init__(self._say)
        self._turns, self._fails_at, self._num_assigned = turns, fails_at, 0

    async def run(self, source: str) -> Execution:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        return await super().run(source)

    def _say(self, source: str) -> Execution:
        if source == "x":
            return SPOKEN
        self._num_assigned += 1
        return SILENT if self._num_assigned % self._fails_at else FAILED


SAMPLING = SamplingConfig(max_lines=3, max_line_tokens=4, max_tokens=100)


def roll_out(
    draw: dict[tuple[int, int], float],
    monkeypatch: pytest.MonkeyPatch,
    *,
    speculate: bool,
    turns: int = 3,
    steps: int = 1,
    fails_at: int = 1000,
) -> tuple[Trajectory, LineSampler, Chooser]:
    # The number of a line stands for its seed, so that a table of draws can be written down.
    monkeypatch.setattr("repl_rl.rollout.episode.derive_seed", lambda _, index: index)
    engine = Chooser(draw, steps=steps)
    config = replace(SAMPLING, speculate=speculate)
    sampler = LineSampler(engine, CODEC, FORMAT, config, context_tokens=1000)
    attempt = an_attempt()
    return (
        asyncio.run(sampler.sample(attempt, Prompt.plain(">"), SlowKernel(turns, fails_at))),
        sampler,
        engine,
    )


# One draw a line decides it: below 0.1 an assignment is sure, above 0.8 an end.
DRAWS = [i / 10 + 0.05 for i in range(10)]


@pytest.mark.slow
def test_the_distribution_of_trajectories_is_that_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every table of draws, so every trajectory with its exact probability: 10 ** 3 of them."""
    shares: dict[bool, dict[Trajectory, float]] = {True: {}, False: {}}
    for speculate in (True, False):
        found: dict[Trajectory, float] = defaultdict(float)
        for draws in itertools.product(DRAWS, repeat=3):
            table = {(index, 0): draw for index, draw in enumerate(draws)}
            trajectory, _, _ = roll_out(table, monkeypatch, speculate=speculate, fails_at=2)
            found[trajectory] += 10**-3
        shares[speculate] = found
    assert shares[True] == shares[False]
    for trajectory, share in shares[True].items():
        assert share == pytest.approx(math.exp(sum(trajectory.logprobs)))
    assert sum(shares[True].values()) == pytest.approx(1.0)


@pytest.mark.parametrize("turns", [0, 1, 4, 40])
@pytest.mark.parametrize("steps", [1, 5])
def test_a_kernel_may_be_faster_or_slower_than_the_guess(
    turns: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {(0, 0): 0.01, (1, 0): 0.75, (2, 0): 0.01}
    guessing, _, _ = roll_out(table, monkeypatch, speculate=True, turns=turns, steps=steps)
    plain, _, _ = roll_out(table, monkeypatch, speculate=False, turns=turns, steps=steps)
    assert guessing == plain


def test_a_silent_line_is_a_hit_and_samples_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {(0, 0): 0.01, (1, 0): 0.01, (2, 0): 0.99}
    trajectory, sampler, engine = roll_out(table, monkeypatch, speculate=True)
    assert CODEC.decode(trajectory.completion_ids) == " x = 1\n> x = 1\n>"
    assert trajectory.stop_reason is StopReason.EOS
    assert (sampler.num_guesses, sampler.num_hits) == (2, 2)
    assert engine.num_sampled == sum(trajectory.loss_mask) == 5


def test_a_line_that_fails_wastes_what_was_sampled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {(0, 0): 0.01, (1, 0): 0.99}
    trajectory, sampler, engine = roll_out(table, monkeypatch, speculate=True, fails_at=1)
    assert CODEC.decode(trajectory.completion_ids) == " x = 1\nE\n>"
    assert (sampler.num_guesses, sampler.num_hits) == (1, 0)
    assert engine.asked[1] == (*b">", ASSIGN, NEWLINE, *b">")  # the guess
    assert engine.asked[2] == (*b">", ASSIGN, NEWLINE, *b"E\n>")
    assert engine.num_sampled > sum(trajectory.loss_mask)


def test_nothing_is_begun_ahead_after_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {(index, 0): 0.01 for index in range(3)}
    trajectory, sampler, _ = roll_out(table, monkeypatch, speculate=True)
    assert trajectory.stop_reason is StopReason.MAX_LINES
    assert sampler.num_guesses == 2


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("x = 1", OutcomeKind.OK_SILENT),
        ("x, y = 1, 2", OutcomeKind.OK_SILENT),
        ("x[0] += 1", OutcomeKind.OK_SILENT),
        ("import math", OutcomeKind.OK_SILENT),
        ("from math import pi", OutcomeKind.OK_SILENT),
        ("for i in a:", OutcomeKind.INCOMPLETE),
        ("def f():\n    return 1", OutcomeKind.INCOMPLETE),
        ("def f():\n    return 1\n", OutcomeKind.OK_SILENT),
        ('have("a", x)', OutcomeKind.CLAIMED),
        ('have("a", print(1))', OutcomeKind.CLAIMED),
        ('have("a", x); x', None),
        ("x", None),
        ("x == 1", None),
        ("f(key=1)", None),
        ("solve(x**2 - 1, x)", None),
        ("x = print(1)", None),
    ],
)
def test_what_a_source_is_taken_for(source: str, kind: OutcomeKind | None) -> None:
    assert silent_kind(source) is kind


CLAIMING = (' have("a", x)', ' have("a", y)', ' have("b", fails)', " x", ' have("b", x)', " y")


@pytest.mark.parametrize("speculate", [True, False])
def test_claims_are_the_same_whether_lines_are_begun_ahead_or_not(speculate: bool) -> None:
    """Of six lines three look silent and are, and two of the claims fail."""
    problem = Problem(id="p", statement="p", lemmas=(Lemma(name="a"), Lemma(name="b")))
    attempt = replace(an_attempt(), problem=problem)

    def answer(source: str) -> Execution:
        if "have" in source or source == "fails":
            return FAILED
        return Execution(status=ExecStatus.OK, value=f"<{source}>")

    codec = ByteCodec()
    sampler = LineSampler(
        ScriptedEngine(codec, script(*(f"{line}\n" for line in CLAIMING))),
        codec,
        FORMAT,
        SamplingConfig(max_lines=len(CLAIMING), speculate=speculate),
        context_tokens=1000,
    )
    found = asyncio.run(sampler.sample(attempt, Prompt.plain(">"), FakeKernel(answer)))
    assert codec.decode(found.completion_ids) == (
        ' have("a", x)\n> have("a", y)\nE\n> have("b", fails)\nE\n> x\n> have("b", x)\n> y\n'
    )
    assert [(claim.line, claim.name, claim.value) for claim in found.claims] == [
        (0, "a", "<x>"),
        (4, "b", "<x>"),
    ]
