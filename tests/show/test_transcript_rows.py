"""Laws of a shown transcript: it is what the policy saw, whatever its format, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from attempt_kit import an_attempt
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import Line, LineOutcome, OutcomeKind, Scored, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import PYTHON, TranscriptFormat
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.show.marked import By, transcript_rows
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

MakeScored = Callable[..., Scored]
MakeTrajectory = Callable[..., Trajectory]
CODEC = ByteCodec()
CALC = TranscriptFormat(name="calc", banner="", primary="calc>", secondary="  ..>")
LINES = (" x = 1\n", " # why\n", " for i in x:\n", " x + 1\n", " 1/0\n", " x")


def played(fmt: TranscriptFormat) -> Trajectory:
    """Assignment, comment, open statement, its end, an error, a line that was cut."""
    kernel = FakeKernel(
        {
            "x = 1": Execution(status=ExecStatus.OK),
            "for i in x:": Execution(status=ExecStatus.INCOMPLETE),
            "for i in x:\nx + 1": Execution(status=ExecStatus.OK, output="2\n"),
            "1/0": Execution(
                status=ExecStatus.ERROR,
                output="ZeroDivisionError: by zero\n",
                error_type="ZeroDivisionError",
            ),
        }
    )
    limits = SamplingConfig(max_lines=len(LINES))
    engine = ScriptedEngine(CODEC, script(*LINES))
    sampler = LineSampler(engine, CODEC, fmt, limits, context_tokens=1 << 16)
    prompt = fmt.prompt("{{problem}}", "What?", python_version="3.11")
    attempt = an_attempt()
    return asyncio.run(sampler.sample(attempt, prompt, kernel))


def seen(trajectory: Trajectory) -> str:
    """Text that the policy saw and wrote: all ids, decoded."""
    return CODEC.decode([*trajectory.prompt_ids, *trajectory.completion_ids])


def text(scored: Scored, decode: Callable[[Sequence[int]], str] | None) -> str:
    return "\n".join(row.text for row in transcript_rows(scored, decode))


@pytest.mark.parametrize("fmt", [PYTHON, IPYTHON, CALC], ids=lambda fmt: fmt.name)
def test_with_its_vocabulary_a_transcript_is_what_the_policy_saw(
    make_scored: MakeScored, fmt: TranscriptFormat
) -> None:
    trajectory = played(fmt)
    assert text(make_scored(trajectory, 1.0), CODEC.decode) == seen(trajectory)


@pytest.mark.parametrize("decode", [None, lambda ids: "another"], ids=["none", "another"])
@pytest.mark.parametrize("fmt", [PYTHON, IPYTHON], ids=lambda fmt: fmt.name)
def test_without_its_vocabulary_a_known_repl_is_told_by_its_prompt(
    make_scored: MakeScored, fmt: TranscriptFormat, decode: Callable[[Sequence[int]], str] | None
) -> None:
    trajectory = played(fmt)
    assert text(make_scored(trajectory, 1.0), decode) == seen(trajectory)


def test_without_a_vocabulary_no_prompt_is_made_up(make_scored: MakeScored) -> None:
    assert text(make_scored(played(CALC), 1.0), None) == (
        "calc> # What?\ncalc> x = 1\n # why\n for i in x:\n x + 1\n2\n 1/0\n"
        "ZeroDivisionError: by zero\n x"
    )


def test_an_answer_inside_a_row_stays_inside_it(make_scored: MakeScored) -> None:
    """Prose with calls in it: no newline ends what was sampled, none begins the answer."""
    sources, answers = ["So <fn>2 + 3</fn>", ", or <fn>7</fn>"], [" = 5", " = 7.\n"]
    ids: list[int] = []
    mask: list[bool] = []
    lines: list[Line] = []
    for index, (source, answer) in enumerate(zip(sources, answers, strict=True)):
        outcome = LineOutcome(kind=OutcomeKind.OK_OUTPUT, observation=answer[3:4])
        stop = len(ids) + len(source)
        lines.append(Line(index=index, source=source, start=len(ids), stop=stop, outcome=outcome))
        ids += (source + answer).encode()
        mask += [True] * len(source) + [False] * len(answer)
    trajectory = replace(
        played(PYTHON),
        prompt_text="Add.\n",
        lines=tuple(lines),
        completion_ids=tuple(ids),
        loss_mask=tuple(mask),
        logprobs=(0.0,) * len(ids),
    )
    first, second = transcript_rows(make_scored(trajectory, 1.0, [0.0, -0.1]), CODEC.decode)
    assert (first.text, second.text) == ("Add.", "So <fn>2 + 3</fn> = 5, or <fn>7</fn> = 7.")
    assert [by for _, by in second.pieces] == [By.SAMPLED, By.INJECTED] * 2
    assert [(line.index, reward) for line, reward in second.ended] == [(0, 0.0), (1, -0.1)]


def test_a_line_of_several_rows_ends_in_the_last_of_them(
    make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory([(" f(\n1)\n", OutcomeKind.RUNTIME_ERROR, "no\n>>>")])
    rows = list(transcript_rows(make_scored(trajectory, 0.0), CODEC.decode))
    assert [row.text for row in rows] == [">>> f(", "1)", "no", ">>>"]
    assert [len(row.ended) for row in rows] == [0, 1, 0, 0]
    assert [row.pieces[-1][1] for row in rows] == [By.ERROR, By.ERROR, By.INJECTED, By.INJECTED]
