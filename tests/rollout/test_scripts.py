"""Text of scripts has the tokens that a model of the same vocabulary would see and sample."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from attempt_kit import an_attempt
from chat_templates import CHATML, END, load_tokenizer
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import SampledLine, line_end
from repl_rl.errors import ConfigError
from repl_rl.records import StopReason, Trajectory
from repl_rl.rollout.builder import fault
from repl_rl.rollout.sampler import LineSampler, ScriptSampler, fixed_script
from repl_rl.tasks.base import Script
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import Prompt, TranscriptFormat, line_of, strip_line
from repl_rl.transcript.tokens import TokenizerCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

TOKENIZER = load_tokenizer(CHATML)
CODEC = TokenizerCodec(TOKENIZER, eos_ids=[END])
LINES = ("# think", "x = 2", "for i in [1]:", "    i", "", "x * 3", "submit_final_answer(6)")
ANSWERS = {
    "x * 3": Execution(status=ExecStatus.OK, output="6\n"),
    "6": Execution(status=ExecStatus.OK, output="", value="6"),
}


def fmt_of(name: str) -> TranscriptFormat:
    return load_format(name, partial(TOKENIZER.apply_chat_template, tokenize=False))


def prompt_of(fmt: TranscriptFormat) -> Prompt:
    return fmt.prompt("from sympy import *\n{{problem}}", "What is 2 * 3?", python_version="3.11")


def scripted(fmt: TranscriptFormat, lines: Sequence[str], **limits: Any) -> Trajectory:
    sampler = ScriptSampler(
        lambda _: fixed_script(lines),
        Encoding(fmt, CODEC),
        SamplingConfig(**limits),
        context_tokens=4096,
    )
    return asyncio.run(sampler.sample(an_attempt(), prompt_of(fmt), FakeKernel(ANSWERS)))


class Saying:
    """An engine of a model that is sure of these lines."""

    num_sampled = 0

    def __init__(self, lines: Sequence[Sequence[int]]) -> None:
        self._lines = iter(lines)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        said = tuple(next(self._lines))
        end = line_end(said[-1], newline_ids=CODEC.newline_ids, eos_ids=CODEC.eos_ids)
        return SampledLine(ids=said, logprobs=(0.0,) * len(said), end=end, policy_version=0)


@pytest.mark.parametrize("name", ["python", "ipython", "chat", "chat-turns"])
def test_a_script_has_the_tokens_of_a_model_that_says_its_lines(name: str) -> None:
    fmt = fmt_of(name)
    if fmt.closing:  # a message ends at the token that ends its turn
        said = [[*CODEC.encode(line), END] for line in LINES]
    else:
        said = [CODEC.encode(line_of(line)) for line in LINES]
    engine: Saying = Saying(said)
    sampler = LineSampler(
        engine,  # type: ignore[arg-type]  # only asked for lines
        CODEC,
        fmt,
        SamplingConfig(),
        context_tokens=4096,
    )
    sampled = asyncio.run(sampler.sample(an_attempt(), prompt_of(fmt), FakeKernel(ANSWERS)))
    found = scripted(fmt, LINES)
    assert found.stop_reason is StopReason.SUBMITTED
    assert found.prompt_ids == sampled.prompt_ids
    assert found.completion_ids == sampled.completion_ids
    assert found.loss_mask == sampled.loss_mask
    assert tuple(strip_line(line.source) for line in found.lines) == LINES
    assert fault(found) is None


def test_a_script_that_submits_nothing_ends_as_a_policy_that_gives_up() -> None:
    assert scripted(fmt_of("python"), ["x = 2"]).stop_reason is StopReason.EOS


def test_a_line_longer_than_a_policys_is_cut() -> None:
    found = scripted(fmt_of("python"), ["x = 22222", "x"], max_line_tokens=5)
    assert found.stop_reason is StopReason.MAX_LINE_TOKENS
    assert [line.source for line in found.lines] == [" x = "]


def test_a_script_hears_what_the_interpreter_answers() -> None:
    heard = []

    def script() -> Script:
        heard.append((yield "x = 2"))
        heard.append((yield "x * 3"))

    fmt = fmt_of("python")
    sampler = ScriptSampler(
        lambda _: script(), Encoding(fmt, CODEC), SamplingConfig(), context_tokens=4096
    )
    asyncio.run(sampler.sample(an_attempt(), prompt_of(fmt), FakeKernel(ANSWERS)))
    assert heard == ["", "6\n"]


def test_a_line_with_a_newline_inside_is_refused() -> None:
    with pytest.raises(ConfigError, match="continues after a newline"):
        scripted(fmt_of("python"), ["x = 2\nx"])


def test_a_script_without_a_line_is_refused_and_so_is_one_that_fails() -> None:
    with pytest.raises(ConfigError, match="has no line; yield at least one"):
        scripted(fmt_of("python"), [])

    def script() -> Script:
        yield "x = 2"
        raise LookupError("no more")

    fmt = fmt_of("python")
    sampler = ScriptSampler(
        lambda _: script(), Encoding(fmt, CODEC), SamplingConfig(), context_tokens=4096
    )
    with pytest.raises(ConfigError, match=r"test_scripts.py:\d+: LookupError: no more"):
        asyncio.run(sampler.sample(an_attempt(), prompt_of(fmt), FakeKernel(ANSWERS)))
