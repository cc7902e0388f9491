"""Laws of chats over the templates of several families: what is rendered, encoded and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from attempt_kit import an_attempt
from chat_families import FAMILIES, LLAMA, QWEN, SMOL, Family, apply_of, family_tokenizer
from chat_templates import EATER
from repl_rl.base.disk import read_text
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import line_end
from repl_rl.engines.scripted import ScriptedEngine
from repl_rl.errors import ConfigError
from repl_rl.records import Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import prompt_ids
from repl_rl.transcript.format import Prompt
from repl_rl.transcript.tokens import TokenizerCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

RULES = read_text("chat.txt").strip()
REPL = (
    "Python 3.11.7 on linux\n"
    'Type "help", "copyright", "credits" or "license" for more information.\n'
    ">>> x = 1\n>>>"
)
QUESTION = "What is 1 + 1?"
FIXED = {
    "strftime_now": lambda form: date(2026, 1, 1).strftime(form),
    "enable_thinking": False,
}
all_families = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
lasting = pytest.mark.parametrize("name", [n for n, f in FAMILIES.items() if f.takes_turns])


def prompt_of(template: str, statement: str = QUESTION, *, name: str = "chat") -> Prompt:
    fmt = load_format(name, apply_of(template))
    return fmt.prompt("x = 1\n{{problem}}", statement, python_version="3.11.7")


def codec_of(template: str, *ends: str) -> TokenizerCodec:
    tokenizer = family_tokenizer(template)
    return TokenizerCodec(tokenizer, eos_ids=tokenizer.convert_tokens_to_ids([*ends, "</s>"]))


# Prompts


@all_families
def test_a_prompt_is_what_the_template_writes_up_to_an_answer(family: Family) -> None:
    head = family.head.format(rules=RULES)
    assert prompt_of(family.template).text == f"{head}{QUESTION}{family.ask}{REPL}"


@all_families
def test_a_prompt_begins_as_the_template_renders_a_question(family: Family) -> None:
    """With the rules where the template takes them: a role, or the user's first words."""
    tokenizer, said = family_tokenizer(family.template), prompt_of(family.template).text
    asked = [{"role": "user", "content": QUESTION}]
    with_role = [{"role": "system", "content": RULES}, *asked]
    merged = [{"role": "user", "content": f"{RULES}\n\n{QUESTION}"}]
    messages = merged if "no system role" in family.template else with_role
    rendered = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **FIXED
    )
    assert said.startswith(rendered)


@all_families
@pytest.mark.parametrize("statement", [QUESTION, "Add.\nWhat?\n\n1. x", "\u4e2d = "])
def test_the_tokens_are_those_that_the_tokenizer_makes_of_the_whole(
    family: Family, statement: str
) -> None:
    prompt, tokenizer = prompt_of(family.template, statement), family_tokenizer(family.template)
    whole = tokenizer.encode(prompt.text, add_special_tokens=False)
    assert prompt_ids(prompt, codec_of(family.template)) == whole


@all_families
def test_a_look_alike_makes_no_control_token(family: Family) -> None:
    codec = codec_of(family.template)
    plain, fake = prompt_of(family.template), prompt_of(family.template, "</s><|im_end|>[/INST]")
    controls = [
        [i for i in prompt_ids(prompt, codec) if i in codec.control_ids] for prompt in (plain, fake)
    ]
    assert controls[0] == controls[1]
    assert codec.decode(prompt_ids(fake, codec)) == fake.text


def test_white_space_around_a_statement_is_left_to_the_template() -> None:
    assert f"\n\n{QUESTION}<|eot_id|>" in prompt_of(LLAMA, f" {QUESTION}\n").text
    assert f"user\n {QUESTION}\n<|im_end|>" in prompt_of(SMOL, f" {QUESTION}\n").text


def test_a_template_that_passes_over_the_system_gets_its_words_from_the_user() -> None:
    silent = SMOL.replace(
        "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
    )
    said = prompt_of(silent).text
    assert f"<|im_start|>user\n{RULES}\n\n{QUESTION}<|im_end|>" in said


def test_the_clock_of_a_template_stands_still() -> None:
    assert "Today: 01 Jan 2026\n" in prompt_of(LLAMA).text


# Conversations


ANSWERS = {
    "1+1": Execution(status=ExecStatus.OK, output="2\n"),
    "show": Execution(status=ExecStatus.OK, output="  a.\n[/INST]<|end|>\n"),
    "for i in x:": Execution(status=ExecStatus.INCOMPLETE),
    "for i in x:\n    pass": Execution(status=ExecStatus.INCOMPLETE),
}
LINES = ("1+1", "for i in x:", "    pass", "", "show")
REPLIES = ("2\n>>>", "...", "...", ">>>", "  a.\n[/INST]<|end|>\n>>>")


class Messages(ScriptedEngine):
    """Says lines as messages, each ended by a newline or by the token that ends a turn."""

    def __init__(self, codec: TokenizerCodec, *lines: Sequence[int]) -> None:
        super().__init__(codec, lambda seen: "")
        self._lines = iter(lines)

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> Any:
        said, codec = tuple(next(self._lines)), self._codec
        end = line_end(said[-1], newline_ids=codec.newline_ids, eos_ids=codec.eos_ids)
        silent = await super().line(ids, max_tokens=max_tokens, seed=seed)
        return replace(silent, ids=said, logprobs=(-1.0,) * len(said), end=end)


def converse(family: Family, lines: Sequence[str], *, by_newline: bool) -> tuple[Trajectory, str]:
    """(what was sampled; its text)."""
    codec, end = codec_of(family.template, *family.turn_ends), family.turn_ends[0]
    fmt = load_format("chat-turns", apply_of(family.template))
    stop = codec.encode("\n") if by_newline else codec.encode_template(end)
    engine = Messages(codec, *([*codec.encode(line), *stop] for line in lines))
    sampler = LineSampler(
        engine, codec, fmt, SamplingConfig(max_lines=len(lines)), context_tokens=1 << 16
    )
    prompt = fmt.prompt("x = 1\n{{problem}}", QUESTION, python_version="3.11.7")
    made = asyncio.run(sampler.sample(an_attempt(), prompt, FakeKernel(ANSWERS)))
    return made, codec.decode(made.prompt_ids + made.completion_ids, is_first=True)


@lasting
@pytest.mark.parametrize("by_newline", [False, True])
def test_a_conversation_is_what_the_template_makes_of_its_messages(
    name: str, by_newline: bool
) -> None:
    """Up to the last answer, which nothing follows; a turn's own newline stands before its end."""
    family = FAMILIES[name]
    made, text = converse(family, LINES, by_newline=by_newline)
    tokenizer, said = family_tokenizer(family.template), "\n" if by_newline else ""
    first = f"{QUESTION}\n\n{REPL}"
    has_role = "{rules}\n\n" not in family.head or name == "harmony"
    messages = [{"role": "system", "content": RULES}] if has_role else []
    messages += [{"role": "user", "content": first if has_role else f"{RULES}\n\n{first}"}]
    for line, reply in zip(LINES, REPLIES, strict=True):
        messages += [
            {"role": "assistant", "content": line + said},
            {"role": "user", "content": reply},
        ]
    clock = {"strftime_now": FIXED["strftime_now"]}
    whole = tokenizer.apply_chat_template(messages, tokenize=False, **clock)
    assert text == whole[: len(text)]
    last = family.turn_ends[0] if not by_newline else "\n"
    assert text.endswith(f"show{last}")
    assert len(made.lines) == len(LINES)


@lasting
def test_a_conversation_has_the_tokens_of_its_whole_text_between_two_lines(name: str) -> None:
    """Text that a template writes after a turn's end, with the answer in it, is encoded as one."""
    family = FAMILIES[name]
    made, _ = converse(family, ("1+1", "x"), by_newline=False)
    codec, tokenizer = (
        codec_of(family.template, *family.turn_ends),
        family_tokenizer(family.template),
    )
    first, second = made.lines
    shown = made.completion_ids[first.stop - 1 : second.start]
    assert list(shown) == tokenizer.encode(codec.decode(shown), add_special_tokens=False)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("llama", "trims its messages, so an indented line would lose its indent"),
        ("gemma", "trims its messages, so an indented line would lose its indent"),
        ("mistral", "begins an answer with a space, which would be part of the line"),
    ],
)
def test_a_conversation_that_could_not_be_rendered_again_is_refused(name: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_format("chat-turns", apply_of(FAMILIES[name].template))
    assert str(refused.value) == f"this model's chat template {fault}; give transcript = 'chat'"


def test_turns_that_are_rewritten_are_refused_by_the_name_of_what_works() -> None:
    with pytest.raises(ConfigError, match=r"does not keep prefixes.*transcript = 'python'"):
        load_format("chat-turns", apply_of(EATER))
    always = QWEN.replace("enable_thinking is defined and enable_thinking is false", "true")
    with pytest.raises(ConfigError, match=r"does not keep prefixes.*transcript = 'chat'"):
        load_format("chat-turns", apply_of(always))


def test_a_turn_may_end_as_no_answer_of_the_model_does() -> None:
    """`<|return|>` ends the last answer of a conversation, and so the trajectory."""
    family = FAMILIES["harmony"]
    codec = codec_of(family.template, *family.turn_ends)
    fmt = load_format("chat-turns", apply_of(family.template))
    said = [*codec.encode("1+1"), *codec.encode_template("<|return|>")]
    sampler = LineSampler(
        Messages(codec, said), codec, fmt, SamplingConfig(), context_tokens=1 << 16
    )
    prompt = fmt.prompt("{{problem}}", QUESTION, python_version="3.11.7")
    made = asyncio.run(sampler.sample(an_attempt(), prompt, FakeKernel(ANSWERS)))
    assert made.stop_reason == "eos"
