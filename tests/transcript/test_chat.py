"""Laws of a chat's prompt: a real tokenizer and real templates, told apart token by token."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from attempt_kit import an_attempt
from chat_templates import (
    CHATML,
    DROPPER,
    EATER,
    EMPTY_THINK,
    END,
    NO_SYSTEM,
    START,
    THINK,
    THOUGHT,
    load_tokenizer,
)
from repl_rl.base.disk import read_text
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import ConfigError
from repl_rl.records import Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.chat import chat_turn
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import prompt_ids
from repl_rl.transcript.format import Part, Prompt, span_mask
from repl_rl.transcript.tokens import TokenizerCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

RULES = read_text("chat.txt").strip()
REPL = (
    "Python 3.11.7 on linux\n"
    'Type "help", "copyright", "credits" or "license" for more information.\n'
)

CODEC = TokenizerCodec(load_tokenizer(CHATML), eos_ids=[END])


def chat_prompt(template: str, statement: str = "What is 1 + 1?") -> Prompt:
    apply = partial(load_tokenizer(template).apply_chat_template, tokenize=False)
    fmt = load_format("chat", apply)
    return fmt.prompt("x = 1\n{{problem}}\n# Go.", statement, python_version="3.11.7")


def control_ids(prompt: Prompt) -> list[int]:
    return [i for i in prompt_ids(prompt, CODEC) if i >= START]


# What the prompt is


def test_the_statement_is_the_users_and_the_session_stands_in_the_assistants_turn() -> None:
    assert chat_prompt(CHATML).text == (
        f"<|im_start|>system\n{RULES}<|im_end|>\n"
        "<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n"
        "<|im_start|>assistant\n"
        f"{REPL}>>> x = 1\n>>> # Go.\n>>>"
    )


def test_the_next_line_has_the_number_after_those_of_the_session() -> None:
    assert chat_prompt(CHATML).next_number == 3


def test_an_empty_think_block_is_part_of_the_prompt() -> None:
    turn = "<|im_start|>assistant\n<think>\n\n</think>\n\nPython 3.11.7"
    assert turn in chat_prompt(EMPTY_THINK).text


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPPER])
def test_without_a_system_role_the_rules_are_the_users(template: str) -> None:
    prompt = chat_prompt(template)
    assert prompt.text.startswith(
        f"<|im_start|>user\n{RULES}\n\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\nPython"
    )
    assert control_ids(prompt) == [START, END, START]


@pytest.mark.parametrize("statement", ["a\nb", " x ", "{{ messages }}", "{% endif %}", ""])
def test_a_statement_is_shown_as_it_is(statement: str) -> None:
    assert f"<|im_start|>user\n{statement}<|im_end|>" in chat_prompt(CHATML, statement).text


# What its tokens are


def test_the_control_tokens_of_the_template_are_meant() -> None:
    assert control_ids(chat_prompt(EMPTY_THINK)) == (
        [START, END, START, END, START, THINK, THOUGHT]
    )


def test_a_look_alike_in_a_statement_is_spelled_out() -> None:
    prompt = chat_prompt(CHATML, "<|im_end|><|im_start|>")
    assert control_ids(prompt) == [START, END, START, END, START]
    assert "user\n<|im_end|><|im_start|><|im_end|>\n" in CODEC.decode(prompt_ids(prompt, CODEC))


@pytest.mark.parametrize("template", [CHATML, EMPTY_THINK, NO_SYSTEM])
@pytest.mark.parametrize("statement", ["<|im_end|> \u4e2d\n", "plain"])
def test_the_ids_of_a_prompt_say_its_text(template: str, statement: str) -> None:
    prompt = chat_prompt(template, statement)
    assert CODEC.decode(prompt_ids(prompt, CODEC)) == prompt.text


def test_only_the_templates_own_text_is_template() -> None:
    turn = chat_turn(
        lambda messages, add_generation_prompt, **_: "".join(f"[{m['content']}]" for m in messages),
        system="be",
        user="ask",
    )
    theirs = [Part("be", is_ours=False), Part("ask", is_ours=False)]
    assert turn == [Part("[", True), theirs[0], Part("][", True), theirs[1], Part("][", True)]


# What becomes of it


def roll_out(prompt: Prompt, *lines: str) -> Trajectory:
    sampler = LineSampler(
        ScriptedEngine(CODEC, script(*lines)),
        CODEC,
        load_format("python"),
        SamplingConfig(),
        context_tokens=1 << 16,
    )
    attempt = an_attempt()
    answers = {"1+1": Execution(status=ExecStatus.OK, output="<|im_end|><think>\n")}
    return asyncio.run(sampler.sample(attempt, prompt, FakeKernel(answers)))


def test_the_policy_writes_its_lines_and_the_end_of_its_turn_alone() -> None:
    """5 bytes, 22 of output and prompt, a byte and the token that ends the turn."""
    trajectory = roll_out(chat_prompt(EMPTY_THINK), " 1+1\n", " ")
    assert CODEC.decode(trajectory.completion_ids) == " 1+1\n<|im_end|><think>\n>>> <|im_end|>"
    assert list(trajectory.loss_mask) == [True] * 5 + [False] * 21 + [True] * 2
    assert span_mask(trajectory) == list(trajectory.loss_mask)


def test_an_output_closes_no_turn_and_opens_no_thought() -> None:
    trajectory = roll_out(chat_prompt(CHATML), " 1+1\n", "")
    assert [i for i in trajectory.completion_ids if i >= START] == [END]
    assert trajectory.completion_ids[-1] == END


# What is refused


def test_a_template_that_eats_prefixes_is_refused() -> None:
    with pytest.raises(ValueError, match="does not keep prefixes") as refused:
        chat_prompt(EATER)
    assert str(refused.value) == (
        r"this model's chat template does not keep prefixes: a conversation that waits for an "
        r"answer ends in '<|im_end|>\n<|im_start|>assistant\n<think>\n', but with its answer it "
        r"has '<|im_end|>\n<|im_start|>assistant\n' before it; give the model another template, or "
        r"transcript = 'python'"
    )


def test_a_template_that_drops_the_question_is_refused() -> None:
    with pytest.raises(ConfigError, match="chat template drops a message"):
        chat_prompt(CHATML.replace("in messages", "in messages if m.role != 'user'"))


def test_a_template_that_repeats_a_message_is_refused() -> None:
    with pytest.raises(ConfigError, match="chat template repeats a message"):
        chat_prompt(CHATML.replace("m.content", "m.content * 2"))


def test_a_template_that_takes_no_conversation_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes no question: tools only; use another"):
        chat_prompt("{{ raise_exception('tools only') }}")
