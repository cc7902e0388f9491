"""Laws of the audit's counts: each thing that can go wrong is counted where it went wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from transformers import Qwen3Config

from attempt_kit import an_attempt
from engine_kit import GROUPED, scorer
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.hf.engine import HFEngine
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.models.loading import logprobs
from repl_rl.records import Branch, Finding, OutcomeKind, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.testing.under_test import random_model
from repl_rl.training.audit import Counts, Witness
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

MakeTrajectory = Callable[..., Trajectory]
RollOut = Callable[..., Trajectory]
OK = OutcomeKind.OK_OUTPUT


class Joining(ByteCodec):
    """Bytes, of which a newline and `>` after it are one token, 300."""

    def encode(self, text: str, *, is_trusted: bool = False, is_first: bool = False) -> list[int]:
        ids: list[int] = []
        for byte in text.encode():
            if ids[-1:] == [10] and byte == 62:
                ids[-1] = 300
            else:
                ids.append(byte)
        return ids

    def decode(self, ids: Any, *, is_first: bool = False) -> str:
        return super().decode([byte for i in ids for byte in ((10, 62) if i == 300 else (i,))])


def swap(trajectory: Trajectory, at: int, token: int) -> Trajectory:
    ids = trajectory.completion_ids
    return replace(trajectory, completion_ids=(*ids[:at], token, *ids[at + 1 :]))


def findings(counts: Counts) -> dict[str, Finding]:
    return {finding.name: finding for finding in counts.findings(is_exact=True)}


# Trees


def test_what_siblings_share_is_counted_where_it_was_sampled(
    make_trajectory: MakeTrajectory,
) -> None:
    """The recorded source of the line that they share is none of its tokens, and runs on."""
    shared = (" a b\n", OK, "2\n>>>")
    first = make_trajectory([shared, (" c\n", OK, "3\n>>>")], sibling_index=0)
    line = replace(first.lines[0], source="ab\nx\n")
    first = replace(first, lines=(line, *first.lines[1:]))
    second = make_trajectory([shared, (" d\n", OK, "4\n>>>")], sibling_index=1)
    second = replace(
        second,
        lines=(line, *second.lines[1:]),
        branch=Branch(sibling_index=0, num_lines=1, seed=1),
    )
    counts = Counts()
    for one in (first, second):
        counts.take(one, ByteCodec(), PYTHON)
    assert (counts.trajectories, counts.sampled, counts.lines) == (2, 5 + 3 + 3, 3)
    assert (counts.misread_lines, counts.run_on_lines) == (1, 1)
    assert (counts.observations, counts.misread_observations) == (3, 0)


# Tokens


@pytest.fixture
def watched(roll_out: RollOut) -> tuple[Trajectory, Witness]:
    r"""` 1+1\n`, `2\n>>>`, ` 3\n`, `>>>`, an end: 5, 5, 3, 3 and 1 tokens."""
    witness = Witness()
    engine = witness.watch(ScriptedEngine(ByteCodec(), script(" 1+1\n", " 3\n")))
    kernel = FakeKernel({"1+1": Execution(status=ExecStatus.OK, output="2\n")})
    return roll_out(engine, kernel, SamplingConfig()), witness


Watched = tuple[Trajectory, Witness]


def drifted(trajectory: Trajectory, witness: Witness) -> int:
    counts = Counts()
    counts.take_witnessed(trajectory, witness)
    return counts.drifted


def test_what_the_engine_said_has_not_drifted(watched: Watched) -> None:
    assert drifted(*watched) == 0


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0, 9),  # the first token, and all that was sampled after it
        (4, 9),
        (7, 4),  # an observation: what was sampled after it was sampled after something else
        (11, 4),
        (16, 1),
    ],
)
def test_another_token_is_a_drift_of_its_line_and_of_all_later_ones(
    watched: Watched, at: int, expected: int
) -> None:
    trajectory, witness = watched
    assert drifted(swap(trajectory, at, 33), witness) == expected


def test_another_prompt_is_a_drift_of_every_line(watched: Watched) -> None:
    trajectory, witness = watched
    assert drifted(replace(trajectory, prompt_ids=(62, 62)), witness) == 9


def test_a_drift_is_not_well(watched: Watched) -> None:
    trajectory, witness = watched
    counts = Counts()
    counts.take(trajectory, ByteCodec())
    counts.take_witnessed(swap(trajectory, 11, 33), witness)
    assert findings(counts)["drifted tokens"] == Finding(
        name="drifted tokens", text="4 of 9 sampled in 1 trajectories", passed=False
    )


def test_a_line_of_several_pieces_is_found_piece_by_piece(make_trajectory: MakeTrajectory) -> None:
    r"""` 1+\n` after `>`, of which the last piece has two tokens."""
    trajectory = make_trajectory([(" 1+\n", OK, None)], prompt=">")
    witness = Witness()
    witness.sampled = {(62,): [(32,)], (62, 32): [(50,), (49,)], (62, 32, 49): [(43, 10)]}
    assert drifted(trajectory, witness) == 0
    del witness.sampled[62, 32, 49]
    assert drifted(trajectory, witness) == 2


# Mask


def take(trajectory: Trajectory, codec: ByteCodec | None = None) -> Counts:
    counts = Counts()
    counts.take(trajectory, codec or ByteCodec())
    return counts


def test_a_mask_as_its_lines_tell_it_is_well(make_trajectory: MakeTrajectory) -> None:
    counts = take(make_trajectory([(" x\n", OK, "1\n>>>"), (" y\n", OK, None)]))
    assert (counts.sampled, counts.mask_disagreements) == (6, 0)
    assert findings(counts)["mask disagreements"].passed


def test_a_shifted_mask_disagrees_at_both_ends_of_each_observation(
    make_trajectory: MakeTrajectory,
) -> None:
    """TTTFFFFFTTT, rotated by one: TTTTFFFFFTT."""
    trajectory = make_trajectory([(" x\n", OK, "1\n>>>"), (" y\n", OK, None)])
    mask = trajectory.loss_mask
    counts = take(replace(trajectory, loss_mask=(mask[-1], *mask[:-1])))
    assert counts.mask_disagreements == 2
    assert not findings(counts)["mask disagreements"].passed


def test_lines_with_text_behind_a_newline_are_counted(make_trajectory: MakeTrajectory) -> None:
    counts = take(make_trajectory([(" x\n\n", OK, "1\n>>>"), (" y\n", OK, None)]))
    assert findings(counts)["run-on lines"] == Finding(name="run-on lines", text="1 of 2")


# Log-probabilities


class ManyEnds(ByteCodec):
    """A quarter of the bytes end a line: those of a random model are short."""

    newline_ids = frozenset({10, *range(192, 256)})


@pytest.fixture(scope="module")
def model() -> Any:
    return random_model(lambda: Qwen3Config(**{**GROUPED, "vocab_size": 257}))


@pytest.fixture(scope="module")
def sampled(model: Any) -> Trajectory:
    """Some lines of a random model, every one answered."""
    codec = ManyEnds()

    async def use() -> Trajectory:
        engine = HFEngine(
            model,
            newline_ids=codec.newline_ids,
            eos_ids=codec.eos_ids,
            num_rows=1,
            temperature=0.7,
        )
        sampling = SamplingConfig(max_lines=5, max_line_tokens=40)
        sampler = LineSampler(engine, codec, PYTHON, sampling, context_tokens=512)
        attempt = an_attempt(seed=2)
        kernel = FakeKernel(lambda _: Execution(status=ExecStatus.OK, output="1\n"))
        try:
            return await sampler.sample(attempt, Prompt.plain(">>>"), kernel)
        finally:
            await engine.aclose()

    trajectory = asyncio.run(use())
    assert len(trajectory.lines) > 2
    return trajectory


def scores(trajectory: Trajectory, model: Any, *, temperature: float = 0.7) -> Counts:
    counts = take(trajectory)
    ids, start = [*trajectory.prompt_ids, *trajectory.completion_ids], len(trajectory.prompt_ids)
    counts.take_scores(trajectory, logprobs(scorer(model), ids, start, temperature=temperature))
    return counts


BOUNDARIES, ELSEWHERE = "gap at boundaries", "gap elsewhere"


def test_every_sampled_token_is_scored_and_each_line_has_one_boundary(
    sampled: Trajectory, model: Any
) -> None:
    counts = scores(sampled, model)
    assert len(counts.boundary_gaps) == len(sampled.lines)
    assert len(counts.boundary_gaps + counts.other_gaps) == sum(sampled.loss_mask)


def test_what_was_sampled_has_the_log_probability_of_one_forward(
    sampled: Trajectory, model: Any
) -> None:
    counts = scores(sampled, model)
    assert max(counts.boundary_gaps + counts.other_gaps) < 1e-5
    found = findings(counts)
    assert found[BOUNDARIES].passed
    assert found[ELSEWHERE].passed


@pytest.mark.parametrize(("offset", "name"), [(0, BOUNDARIES), (1, ELSEWHERE)])
def test_a_log_probability_that_is_off_is_told_where_it_stands(
    sampled: Trajectory, model: Any, offset: int, name: str
) -> None:
    logprobs = list(sampled.logprobs)
    logprobs[next(line.start for line in sampled.lines if line.stop - line.start > 1) + offset] -= 3
    counts = scores(replace(sampled, logprobs=tuple(logprobs)), model)
    assert [one.name for one in findings(counts).values() if not one.passed] == [name]
    assert findings(counts)[name].text.startswith("largest 3.0e+00 nats, mean ")


def test_a_log_probability_of_another_temperature_is_off(sampled: Trajectory, model: Any) -> None:
    assert not findings(scores(sampled, model, temperature=1.0))[ELSEWHERE].passed


def test_a_log_probability_that_is_no_number_is_not_well(sampled: Trajectory, model: Any) -> None:
    """Nothing is larger than it: a largest gap would pass over it."""
    logprobs = list(sampled.logprobs)
    logprobs[max(line.start + 1 for line in sampled.lines if line.stop - line.start > 1)] = math.nan
    found = findings(scores(replace(sampled, logprobs=tuple(logprobs)), model))
    assert not found[ELSEWHERE].passed


# Joint tokenisation


def joint(trajectory: Trajectory) -> tuple[int, int]:
    counts = take(trajectory, Joining())
    return counts.joined, counts.observations


def test_an_observation_whose_first_token_would_join_the_line_before_it_is_counted(
    make_trajectory: MakeTrajectory,
) -> None:
    r"""`x\n` and `>>>` have a common token, `x\n` and `1\n>>>` have none."""
    trajectory = make_trajectory([("x\n", OK, ">>>"), ("x\n", OK, "1\n>>>"), ("y", OK, None)])
    assert joint(trajectory) == (1, 2)
    assert findings(take(trajectory, Joining()))["joint tokenisation"] == Finding(
        name="joint tokenisation", text="differs at 50.0% of 2 observations"
    )


def test_an_observation_whose_last_token_would_join_the_line_after_it_is_counted(
    make_trajectory: MakeTrajectory,
) -> None:
    trajectory = make_trajectory([("x", OK, "1\n"), (">", OK, "1\n"), ("y", OK, None)])
    assert joint(trajectory) == (1, 2)


def test_an_observation_that_would_join_on_both_sides_counts_once(
    make_trajectory: MakeTrajectory,
) -> None:
    trajectory = make_trajectory([("x\n", OK, ">\n"), (">", OK, None)])
    assert joint(trajectory) == (1, 1)


def test_an_observation_at_the_very_end_has_no_line_after_it(
    make_trajectory: MakeTrajectory,
) -> None:
    assert joint(make_trajectory([("x\n", OK, ">>>")])) == (1, 1)


def test_an_observation_at_the_very_start_has_no_line_before_it(
    make_trajectory: MakeTrajectory,
) -> None:
    """The last line ends in a newline, and is no neighbour of the first token."""
    plain = make_trajectory([("ab\n", OK, None)])
    line = replace(plain.lines[0], start=1)
    trajectory = replace(
        plain,
        completion_ids=(62, *plain.completion_ids[1:]),
        loss_mask=(False, True, True),
        logprobs=(0.0, -1.0, -1.0),
        lines=(line,),
    )
    assert joint(trajectory) == (0, 1)


def test_nothing_observed_is_a_share_of_nothing() -> None:
    assert findings(Counts())["joint tokenisation"].text == "differs at 0.0% of 0 observations"
