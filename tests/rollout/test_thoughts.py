"""Laws of thoughts: what is sampled before the first line, and what asks for that line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attempt_kit import an_attempt
from chat_families import (
    FAMILIES,
    GEMMA,
    HARMONY,
    QWEN,
    SMOL,
    apply_of,
    family_tokenizer,
)
from chat_templates import EATER
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.credit.advantages import (
    advantage_rows,
    largest_gap,
    line_ratios,
    load_credit,
    weigh_lines,
)
from repl_rl.engines.base import SampledLine, line_end
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, Reward, Scored, StopReason, Trajectory
from repl_rl.rollout.builder import fault
from repl_rl.rollout.env import open_env
from repl_rl.rollout.plan import make_plan
from repl_rl.rollout.sampler import LineSampler
from repl_rl.runs.trajectory_file import append, read_trajectories
from repl_rl.training.audit import Counts, Witness
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import prompt_ids
from repl_rl.transcript.format import Prompt, Span, TranscriptFormat, span_mask, spans
from repl_rl.transcript.tokens import TokenizerCodec
from repl_rl.viewer.replay.scene import token_texts
from repl_rl.viewer.show.marked import transcript_rows
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

QUESTION = "What is 1 + 1?"
SESSION = (
    "Python 3.11.7 on linux\n"
    'Type "help", "copyright", "credits" or "license" for more information.\n'
    ">>>"
)
ANSWERS = {"1+1": Execution(status=ExecStatus.OK, output="2\n")}


def codec_of(template: str) -> TokenizerCodec:
    tokenizer = family_tokenizer(template)
    return TokenizerCodec(tokenizer, eos_ids=tokenizer.convert_tokens_to_ids(["</s>"]))


def thinking(template: str) -> TranscriptFormat:
    return load_format("chat", apply_of(template)).with_thinking()


def prompt_of(template: str) -> Prompt:
    return thinking(template).prompt("{{problem}}", QUESTION, python_version="3.11.7")


class Tokens(ScriptedEngine):
    """Samples these texts with the control tokens in them, whatever it is asked."""

    def __init__(self, codec: TokenizerCodec, *texts: str) -> None:
        super().__init__(codec, script())
        self.rest = [tuple(codec.encode_template(text)) for text in texts]
        self.asked: list[tuple[tuple[int, ...], int, int]] = []

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        self.asked.append((tuple(ids), max_tokens, seed))
        said, codec = self.rest.pop(0), self._codec
        if len(said) > max_tokens:
            self.rest.insert(0, said[max_tokens:])
        kept = said[:max_tokens]
        end = line_end(kept[-1], newline_ids=codec.newline_ids, eos_ids=codec.eos_ids)
        logprobs = tuple(-0.5 - i for i in range(len(kept)))
        return SampledLine(ids=kept, logprobs=logprobs, end=end, policy_version=3)


def roll_out(template: str, *texts: str, watch: Any = None, **limits: Any) -> Trajectory:
    codec, fmt = codec_of(template), thinking(template)
    engine: Any = Tokens(codec, *texts)
    engine = engine if watch is None else watch.watch(engine)
    config = SamplingConfig(**{"max_think_tokens": 64, "max_lines": 1, **limits})
    sampler = LineSampler(engine, codec, fmt, config, context_tokens=1 << 16)
    made = asyncio.run(sampler.sample(an_attempt(), prompt_of(template), FakeKernel(ANSWERS)))
    assert fault(made) is None
    return made


def by_mask(made: Trajectory, template: str, *, sampled: bool) -> str:
    pairs = zip(made.completion_ids, made.loss_mask, strict=True)
    return codec_of(template).decode([i for i, is_sampled in pairs if is_sampled == sampled])


# What stands around a thought


@pytest.mark.parametrize(
    ("template", "opening", "closing"),
    [
        (QWEN, "assistant\n<think>\n", "\n</think>\n\n"),
        (
            HARMONY,
            "<|start|>assistant<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
        (EATER, "assistant\n<think>\n", "\n</think>\n\n"),
        (SMOL, "assistant\n<think>\n", "\n</think>\n\n"),
        (GEMMA, "<start_of_turn>model\n<think>\n", "\n</think>\n\n"),
    ],
)
def test_a_template_says_where_a_thought_begins_and_ends(
    template: str, opening: str, closing: str
) -> None:
    prompt = prompt_of(template)
    assert prompt.text.endswith(opening)
    assert [part.text for part in prompt.after] == [closing, SESSION]


def test_a_switch_is_on_for_a_thought() -> None:
    shown = QWEN.replace("is false", "is true").replace(r"<think>\n\n</think>\n\n", r"<think>\n")
    assert prompt_of(shown).text.endswith("assistant\n<think>\n")
    off = load_format("chat", apply_of(shown))
    assert "<think>\n\n</think>" in off.prompt("{{problem}}", "?", python_version="3").text


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_prompt_before_a_thought_has_the_tokens_of_its_whole_text(family: Any) -> None:
    prompt, tokenizer = prompt_of(family.template), family_tokenizer(family.template)
    whole = tokenizer.encode(prompt.text, add_special_tokens=False)
    assert prompt_ids(prompt, codec_of(family.template)) == whole


# What is sampled


def test_a_thought_ends_with_its_marker_and_the_session_follows() -> None:
    """Tokens that the engine samples behind the marker are dropped."""
    made = roll_out(QWEN, "Add.\n", "Ok\n", "</think>\n\n", " 1+1\n")
    assert made.thought is not None
    assert made.thought.source == "Add.\nOk\n</think>"
    assert made.thought.shown == f"\n\n{SESSION}"
    assert by_mask(made, QWEN, sampled=True) == "Add.\nOk\n</think> 1+1\n"
    assert by_mask(made, QWEN, sampled=False) == f"\n\n{SESSION}"
    assert [line.source for line in made.lines] == [" 1+1\n"]
    assert made.policy_version == 3


def test_the_text_of_a_conversation_is_the_templates() -> None:
    made = roll_out(QWEN, "Add.\n", "</think>x\n", " 1+1\n")
    text = codec_of(QWEN).decode(made.prompt_ids + made.completion_ids)
    answer = {"content": f"{SESSION} 1+1\n", "reasoning_content": "Add."}
    asked = [
        {"role": "system", "content": prompt_of(QWEN).parts[1].text},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", **answer},
    ]
    rendered = family_tokenizer(QWEN).apply_chat_template(asked, tokenize=False)
    assert rendered.startswith(text)


def test_a_thought_in_a_channel_ends_with_its_message() -> None:
    said = "<|end|><|start|>assistant<|channel|>final<|message|>no\n"
    made = roll_out(HARMONY, "Add.\n", said, " 1+1\n")
    assert by_mask(made, HARMONY, sampled=True) == "Add.\n<|end|> 1+1\n"
    shown = by_mask(made, HARMONY, sampled=False)
    assert shown == f"<|start|>assistant<|channel|>final<|message|>{SESSION}"


def test_a_marker_that_is_no_token_is_known_by_its_text() -> None:
    tokenizer = family_tokenizer(SMOL, has_thoughts=False)
    codec = TokenizerCodec(tokenizer, eos_ids=tokenizer.convert_tokens_to_ids(["</s>"]))
    fmt, limits = thinking(SMOL), SamplingConfig(max_think_tokens=64, max_lines=1)
    engine = Tokens(codec, "Add.\n", "so</think>\n\n", " 1+1\n")
    sampler = LineSampler(engine, codec, fmt, limits, context_tokens=1 << 16)
    made = asyncio.run(sampler.sample(an_attempt(), prompt_of(SMOL), FakeKernel(ANSWERS)))
    assert made.thought is not None
    assert (made.thought.source, made.thought.stop) == ("Add.\nso</think>", 14)
    assert made.thought.shown == f"\n\n{SESSION}"


def test_at_the_limit_the_marker_is_injected() -> None:
    made = roll_out(QWEN, "abcdef\n", max_think_tokens=4, max_lines=1, max_line_tokens=3)
    assert made.thought is not None
    assert (made.thought.source, made.thought.stop) == ("abcd", 4)
    assert by_mask(made, QWEN, sampled=False) == f"\n</think>\n\n{SESSION}"


def test_an_end_of_sequence_ends_a_thought_and_is_dropped() -> None:
    made = roll_out(QWEN, "ab</s>", " 1+1\n")
    assert by_mask(made, QWEN, sampled=True) == "ab 1+1\n"
    assert made.thought is not None
    assert made.thought.shown.startswith("\n</think>\n\n")


def test_a_policy_may_think_nothing() -> None:
    made = roll_out(QWEN, "</s>", " 1+1\n")
    assert made.thought is not None
    assert (made.thought.source, made.thought.stop) == ("", 0)
    assert next(iter(spans(made))).is_sampled is False


def test_a_thought_counts_as_tokens_and_leaves_room_for_a_line() -> None:
    needed = len(codec_of(QWEN).encode(SESSION)) + 3  # "\n", the marker, a blank line
    made = roll_out(QWEN, "abcdef\n", " \n", max_tokens=needed + 5, max_line_tokens=3)
    assert made.thought is not None
    assert made.thought.stop == 4
    assert len(made.completion_ids) == needed + 5
    assert made.stop_reason is StopReason.MAX_TOKENS


def test_a_thought_without_room_for_a_line_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"end a thought and ask for a line, but a trajectory has 20"
    ):
        roll_out(QWEN, "a\n", max_tokens=20)


def test_pieces_of_a_thought_have_seeds_of_their_own() -> None:
    witness = Witness()
    roll_out(QWEN, "a\n", "b\n", "</think>\n", " 1+1\n", watch=witness)
    engine: Any = witness.engine
    assert len({seed for _, _, seed in engine.asked}) == 4
    assert [most for _, most, _ in engine.asked[:3]] == [64, 62, 60]


# What becomes of it


def a_thought(*texts: str) -> Trajectory:
    return roll_out(QWEN, *(texts or ("Add.\n", "</think>\n\n", " 1+1\n")))


def scored_as(made: Trajectory, outcome: float, *lines: float, sibling: int = 0) -> Scored:
    return Scored(
        trajectory=replace(made, sibling_index=sibling),
        problem=Problem(id=made.problem_id, statement=QUESTION),
        verdict=None,
        reward=Reward(line_rewards=lines, outcome_reward=outcome),
    )


def test_a_thought_is_a_span_of_its_own_that_is_trained() -> None:
    made = a_thought()
    first, after, line = spans(made)
    assert first == Span(0, 5, True, -1)
    assert (after.is_sampled, after.line_index, line.line_index) == (False, -1, 0)
    assert span_mask(made) == list(made.loss_mask)
    assert made.logprobs[:6] == (-0.5, -1.5, -2.5, -3.5, -0.5, 0.0)


def test_a_thought_answers_for_the_outcome_and_for_no_line() -> None:
    """Outcomes 1 and 0, each 0.5 from their mean; the line's credit is half of 0.3 on top."""
    made = a_thought()
    siblings = [scored_as(made, 1.0, 0.0), scored_as(made, 0.0, -0.3, sibling=1)]
    config = GRPOConfig(scale="none", line_credit_weight=1.0)
    rows = advantage_rows(siblings, load_credit(config))
    start = made.lines[0].start
    assert [row[0] for row in rows] == pytest.approx([0.5, -0.5])
    assert [row[start] for row in rows] == pytest.approx([0.65, -0.65])
    assert all(value == 0.0 for row in rows for value in row[5:start])


def test_tokens_of_a_thought_are_weighed_one_by_one() -> None:
    made = a_thought()
    fresh = [
        value + 0.5 * is_sampled
        for value, is_sampled in zip(made.logprobs, made.loss_mask, strict=True)
    ]
    fresh[0] = made.logprobs[0] + 3.0
    weighed = weigh_lines(
        made,
        [1.0] * len(fresh),
        line_ratios(made, fresh),
        cap=2.0,
        trainer_T=fresh,
    )
    assert weighed[:3] == pytest.approx([2.0, 1.6487213, 1.6487213])
    assert largest_gap(made, fresh) == pytest.approx(3.0)


def test_a_thought_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "step.jsonl"
    item = scored_as(a_thought(), 1.0, 0.0)
    append(path, [item])
    assert [*read_trajectories(path)] == [item]


@pytest.mark.parametrize("has_vocabulary", [False, True])
def test_a_thought_is_shown_where_it_stood(has_vocabulary: bool) -> None:
    decode = codec_of(QWEN).decode if has_vocabulary else None
    rows = [row.text for row in transcript_rows(scored_as(a_thought(), 1.0, 0.0), decode)]
    at = rows.index("<think>")
    assert rows[at : at + 4] == ["<think>", "Add.", "</think>", ""]
    assert rows[-1] == ">>> 1+1"


def test_each_token_of_a_thought_has_its_text() -> None:
    made = a_thought()
    texts = token_texts(made, codec_of(QWEN).decode)
    assert texts is not None
    assert texts[:6] == ("A", "d", "d", ".\n", "</think>", "\n\n")


def test_an_audit_finds_a_thought_as_it_was_sampled() -> None:
    witness, counts = Witness(), Counts()
    made = roll_out(QWEN, "Add.\n", "</think>\n\n", " 1+1\n", watch=witness)
    counts.take(made, codec_of(QWEN), thinking(QWEN))
    counts.take_witnessed(made, witness)
    assert (counts.misread_lines, counts.misread_observations, counts.drifted) == (0, 0, 0)
    other = replace(made, completion_ids=(65, *made.completion_ids[1:]))
    counts.take_witnessed(other, witness)
    assert counts.drifted > 0


def test_a_cancelled_thought_leaves_a_trajectory_without_lines() -> None:
    from repl_rl.rollout.builder import RolloutCancelled

    codec = codec_of(QWEN)

    class Hanging(Tokens):
        async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
            raise asyncio.CancelledError

    sampler = LineSampler(
        Hanging(codec),
        codec,
        thinking(QWEN),
        SamplingConfig(max_think_tokens=9),
        context_tokens=1 << 16,
    )
    with pytest.raises(RolloutCancelled) as cancelled:
        asyncio.run(sampler.sample(an_attempt(), prompt_of(QWEN), FakeKernel({})))
    assert cancelled.value.trajectory.lines == ()


# What is refused


@pytest.mark.parametrize("name", ["python", "chat-turns"])
def test_only_a_chat_of_one_turn_has_a_place_for_thoughts(name: str) -> None:
    fmt = load_format(name, apply_of(SMOL) if name == "chat-turns" else None)
    with pytest.raises(ConfigError, match=f"needs transcript 'chat'.*not '{name}'"):
        fmt.with_thinking()


def test_a_plan_refuses_thoughts_that_nobody_would_sample() -> None:
    overrides = ["sampling.max_think_tokens=8", "model=PATH"]
    with pytest.raises(ConfigError, match="needs transcript 'chat'"):
        make_plan(resolve(overrides=overrides))

    async def opened() -> None:
        async with open_env(transcript="chat", template=apply_of(SMOL), overrides=overrides[:1]):
            raise AssertionError

    with pytest.raises(ConfigError, match="an environment asks for lines alone"):
        asyncio.run(opened())


def test_without_a_budget_a_thought_is_closed_at_once() -> None:
    made = roll_out(QWEN, " 1+1\n", max_think_tokens=0)
    assert made.thought is not None
    assert made.thought.stop == 0
    assert by_mask(made, QWEN, sampled=False) == f"\n</think>\n\n{SESSION}"
