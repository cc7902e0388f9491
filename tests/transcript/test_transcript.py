"""Laws of the transcript: what is shown, and who wrote which token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attempt_kit import an_attempt
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import (
    PYTHON,
    SUBMIT_STUB,
    Prompt,
    is_comment,
    line_of,
    prompt_lines,
    setup_sources,
    span_mask,
    spans,
    strip_line,
)
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

MakeTrajectory = Callable[..., Trajectory]
CODEC = ByteCodec()


# Prompt


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("()", "needs an answer: write submit_final_answer(answer) alone on a line"),
        ("(answer=1)", "takes no keyword: write submit_final_answer(answer) alone on a line"),
        ("(1, a=1)", "takes no keyword: write submit_final_answer(answer) alone on a line"),
        (
            "(*[1])",
            "write submit_final_answer(answer) alone on a line, "
            "without a star and within 2000 characters",
        ),
    ],
)
def test_a_call_that_submits_nothing_says_why(call: str, message: str) -> None:
    names: dict[str, Any] = {}
    exec(SUBMIT_STUB, names)
    with pytest.raises(RuntimeError) as raised:
        eval(f"submit_final_answer{call}", names)
    assert str(raised.value) == message


def test_a_prompt_is_banner_lines_and_a_bare_prompt() -> None:
    assert PYTHON.render_prompt(["x = 1", "# Why?"], python_version="3.11.7") == (
        "Python 3.11.7 on linux\n"
        'Type "help", "copyright", "credits" or "license" for more information.\n'
        ">>> x = 1\n"
        ">>> # Why?\n"
        ">>>"
    )


def test_every_line_of_a_statement_is_a_comment_in_place_of_the_marker() -> None:
    assert prompt_lines("x = 1\n{{problem}}\n# go\n", "Solve\nx = 2") == [
        "x = 1",
        "# Solve",
        "# x = 2",
        "# go",
    ]


def test_braces_of_a_statement_are_shown_as_they_are() -> None:
    lines = prompt_lines("{{problem}}", "{1, 2} {version} {{problem}}")
    assert "# {1, 2} {version} {{problem}}" in PYTHON.render_prompt(lines, python_version="3.11")


@pytest.mark.parametrize("prompt", ["x = 1", "{{problem}}\n{{problem}}", "# {{problem}}", ""])
def test_a_prompt_needs_the_marker_alone_on_exactly_one_line(prompt: str) -> None:
    with pytest.raises(ConfigError, match="alone on exactly one line"):
        prompt_lines(prompt, "Solve")


def test_a_kernel_is_set_up_by_the_code_of_the_prompt_and_the_stub() -> None:
    prompt = "from sympy import *\n# a hint\n\n{{problem}}\nx = 1\n"
    assert setup_sources(prompt) == ["from sympy import *", "x = 1", SUBMIT_STUB]


@pytest.mark.parametrize(
    ("kind", "prompt"),
    [
        (OutcomeKind.OK_OUTPUT, "2\n>>>"),
        (OutcomeKind.SYNTAX_ERROR, "2\n>>>"),
        (OutcomeKind.INCOMPLETE, "2\n..."),
    ],
)
def test_an_observation_ends_in_the_prompt_of_its_outcome(kind: OutcomeKind, prompt: str) -> None:
    assert PYTHON.render_observation("2\n", kind) == prompt


@pytest.mark.parametrize(
    ("line", "source"),
    [(" x\n", "x"), ("  x\n", " x"), ("x", "x"), ("\n", ""), (" \n", ""), (" x\n\n", "x\n")],
)
def test_a_line_loses_one_space_and_one_newline(line: str, source: str) -> None:
    assert strip_line(line) == source


@pytest.mark.parametrize(("source", "line"), [("x", " x\n"), ("  x", "   x\n"), ("", "\n")])
def test_a_source_becomes_the_line_that_a_policy_would_write(source: str, line: str) -> None:
    assert line_of(source) == line
    assert strip_line(line) == source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", True),
        ("   ", True),
        ("# a", True),
        ("  # a\n\n# b", True),
        ("x  # a", False),
        ("# a\nx", False),
        ("'# a'", False),
    ],
)
def test_a_thought_is_comments_and_blanks_alone(source: str, expected: bool) -> None:
    assert is_comment(source) is expected


# Spans


def test_spans_alternate_between_lines_and_what_answers_them(
    make_trajectory: MakeTrajectory,
) -> None:
    ok = OutcomeKind.OK_OUTPUT
    trajectory = make_trajectory([(" 1+1\n", ok, "2\n>>>"), (" 3\n", ok, "3\n>>>")])
    assert [tuple(span) for span in spans(trajectory)] == [
        (0, 5, True, 0),
        (5, 10, False, 0),
        (10, 13, True, 1),
        (13, 18, False, 1),
    ]


def test_lines_without_an_observation_between_them_stand_side_by_side(
    make_trajectory: MakeTrajectory,
) -> None:
    ok = OutcomeKind.OK_OUTPUT
    trajectory = make_trajectory([("a\n", ok, None), ("b\n", ok, None)])
    assert [tuple(span) for span in spans(trajectory)] == [(0, 2, True, 0), (2, 4, True, 1)]


def roll_out(lines: list[str], output: str, max_tokens: int) -> Trajectory:
    def answer(source: str) -> Execution:
        if source.endswith(":"):
            return Execution(status=ExecStatus.INCOMPLETE)
        return Execution(status=ExecStatus.OK, output=output)

    sampler = LineSampler(
        ScriptedEngine(CODEC, script(*lines)),
        CODEC,
        PYTHON,
        SamplingConfig(max_lines=6, max_tokens=max_tokens, max_line_tokens=16),
        context_tokens=4096,
    )
    attempt = an_attempt()
    return asyncio.run(sampler.sample(attempt, Prompt.plain(">>>"), FakeKernel(answer)))


LINES = st.lists(st.text(" abcxyz0#:'\n\u00e9\u4e2d", max_size=9).map(lambda line: line + "\n"))
OUTPUTS = st.sampled_from(["", "1\n", "\u4e2d\u6587\n", "a\nb\n"])
trajectories = st.builds(roll_out, LINES, OUTPUTS, st.integers(min_value=2, max_value=80))


@settings(max_examples=40)
@given(trajectories)
def test_spans_cover_every_token_once(trajectory: Trajectory) -> None:
    covered = [i for span in spans(trajectory) for i in range(span.start, span.stop)]
    assert covered == list(range(len(trajectory.completion_ids)))


@settings(max_examples=40)
@given(trajectories)
def test_the_mask_of_the_spans_is_the_mask_of_the_trajectory(trajectory: Trajectory) -> None:
    assert span_mask(trajectory) == list(trajectory.loss_mask)


@settings(max_examples=40)
@given(trajectories)
def test_the_three_lists_of_a_trajectory_have_one_length(trajectory: Trajectory) -> None:
    length = len(trajectory.completion_ids)
    assert (len(trajectory.loss_mask), len(trajectory.logprobs)) == (length, length)


@settings(max_examples=40)
@given(trajectories)
def test_decoded_spans_are_the_transcript(trajectory: Trajectory) -> None:
    """Every sampled span is its line's source, every injected one its observation and a prompt."""
    for span in spans(trajectory):
        line = trajectory.lines[span.line_index]
        text = CODEC.decode(trajectory.completion_ids[span.start : span.stop])
        shown = PYTHON.render_observation(line.outcome.observation, line.outcome.kind)
        assert text == (line.source if span.is_sampled else shown)


@settings(max_examples=40)
@given(trajectories)
def test_decoding_piece_by_piece_gives_the_whole_text(trajectory: Trajectory) -> None:
    ids = trajectory.completion_ids
    pieces = "".join(CODEC.decode(ids[span.start : span.stop]) for span in spans(trajectory))
    assert CODEC.decode(trajectory.prompt_ids) + pieces == CODEC.decode(trajectory.prompt_ids + ids)


def test_the_mask_of_a_token_weighs_the_position_that_predicts_it(
    make_trajectory: MakeTrajectory,
) -> None:
    """A model that knows the prompt `>` reads `>a\\n2>b\\n`: position s-1 predicts token s."""
    ok = OutcomeKind.OK_OUTPUT
    trajectory = make_trajectory([("a\n", ok, "2>"), ("b\n", ok, None)], prompt=">")
    ids = trajectory.prompt_ids + trajectory.completion_ids
    labels = [-100] * len(ids)
    for span in spans(trajectory):
        if span.is_sampled:
            for s in range(span.start, span.stop):
                labels[len(trajectory.prompt_ids) + s] = trajectory.completion_ids[s]
    shifted = labels[1:]  # what a causal model compares its output at each position with
    trained = [(chr(ids[at]), chr(label)) for at, label in enumerate(shifted) if label != -100]
    assert trained == [(">", "a"), ("a", "\n"), (">", "b"), ("b", "\n")]


def test_what_somebody_writes_is_one_line_of_text() -> None:
    encoding = Encoding(PYTHON, ByteCodec())
    assert encoding.typed_ids("1+1") == list(b" 1+1\n")
    assert encoding.typed_ids("") == list(b"\n")
    with pytest.raises(ConfigError, match=r"^'a\\nb' holds a newline; expected one line$"):
        encoding.typed_ids("a\nb")
    with pytest.raises(ConfigError, match=r"^'\\ud800' holds a surrogate without its other half"):
        encoding.typed_ids("\ud800")
