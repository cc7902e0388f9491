"""Small chat templates with the structure and the traps of well-known families of models.

Each is written for these tests. Their tokenizer is of bytes, with merges over the edges of
messages: a text that is encoded in pieces has other tokens than the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from chat_templates import quiet_transformers
from repl_rl.transcript.chat import ChatTemplate

_ALTERNATE = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
)

SMOL = (
    r"{% for m in messages %}{% if loop.first and m.role != 'system' %}"
    r"{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    r"{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    r"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A system message of its own where none is given."""

QWEN = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    r"{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' and loop.index0 > ns.last %}"
    r"{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
    r"{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    r"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    r"{% if enable_thinking is defined and enable_thinking is false %}"
    r"{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""Thoughts stand before the last answer alone, and a switch leaves them empty."""

LLAMA = (
    r"{{ bos_token }}{% if not date is defined %}{% set date = strftime_now('%d %b %Y') %}"
    r"{% endif %}{% if messages[0].role == 'system' %}{% set rules = messages[0].content | trim %}"
    r"{% set messages = messages[1:] %}{% else %}{% set rules = '' %}{% endif %}"
    r"{{ '<|start_header_id|>system<|end_header_id|>\n\nToday: ' + date + '\n\n' + rules }}"
    r"{{ '<|eot_id|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m.role }}"
    r"{{ '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    r"{% if add_generation_prompt %}"
    r"{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
"""It begins with its own bos, says what day it is, and trims what is said."""

LLAMA_KEEPS = LLAMA.replace(" | trim + '<|eot", " + '<|eot")

GEMMA = (
    r"{{ bos_token }}{% if messages[0].role == 'system' %}"
    r"{{ raise_exception('no system role') }}{% endif %}" + _ALTERNATE + r"{{ '<start_of_turn>' + "
    r"('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim }}"
    r"{{ '<end_of_turn>\n' }}{% endfor %}"
    r"{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
GEMMA_KEEPS = GEMMA.replace("m.content | trim", "m.content")

MISTRAL = (
    r"{{ bos_token }}{% if messages[0].role == 'system' %}{% set rules = messages[0].content %}"
    r"{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"
    r"{% if m.role == 'user' %}{{ '[INST] ' }}{% if rules is defined and loop.last %}"
    r"{{ rules + '\n\n' }}{% endif %}{{ m.content + '[/INST]' }}{% else %}"
    r"{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
"""What the system says moves on to the user's last message; spaces hide at the edges."""

MISTRAL_TIGHT = MISTRAL.replace("'[INST] '", "'[INST]'").replace("' ' + m", "m")

HARMONY = (
    r"{{ '<|start|>system<|message|>Date: ' + strftime_now('%Y-%m-%d') + '<|end|>' }}"
    r"{% for m in messages %}{% if m.role == 'system' %}"
    r"{{ '<|start|>developer<|message|># Instructions\n\n' + m.content + '\n\n<|end|>' }}"
    r"{% elif m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}"
    r"{% elif loop.last and not add_generation_prompt %}{% if 'thinking' in m %}"
    r"{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}"
    r"{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|return|>' }}{% else %}"
    r"{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% endif %}"
    r"{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
"""Channels: an answer begins later than the template's prompt for one, and ends in two ways."""

_CONTROLS = (
    *("<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"),
)
THOUGHTS = ("<think>", "</think>")
"""Added, but not special."""


def family_tokenizer(template: str, *, has_thoughts: bool = True) -> Any:
    """A tokenizer whose bos and eos are `<s>` and `</s>`."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    space, newline = "\u0120", "\u010a"
    merges = [(newline, newline), (".", newline), (".", newline * 2), (newline, space)]
    merges += [(space, chr(i)) for i in range(33, 127)]
    names = [*letters, *(a + b for a, b in merges)]
    backend = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in _CONTROLS])
    if has_thoughts:
        backend.add_tokens([AddedToken(text, special=False) for text in THOUGHTS])
    tokenizer = quiet_transformers().PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = template
    return tokenizer


def apply_of(template: str) -> ChatTemplate:
    """The tokenizer's own rendering, as text."""
    return partial(family_tokenizer(template).apply_chat_template, tokenize=False)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A template and what a conversation of it has in all its parts."""

    template: str
    head: str
    """Up to the user's first word; {rules} stands for what the system says."""
    ask: str
    """From the user's last word to the assistant's first."""
    turn_ends: tuple[str, ...]
    """Tokens that end an answer."""
    takes_turns: bool = False
    """Whether a longer conversation begins with the shorter one."""


FAMILIES = {
    "smol": Family(
        template=SMOL,
        head="<|im_start|>system\n{rules}<|im_end|>\n<|im_start|>user\n",
        ask="<|im_end|>\n<|im_start|>assistant\n",
        turn_ends=("<|im_end|>",),
        takes_turns=True,
    ),
    "qwen": Family(
        template=QWEN,
        head="<|im_start|>system\n{rules}<|im_end|>\n<|im_start|>user\n",
        ask="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        turn_ends=("<|im_end|>",),
        takes_turns=True,
    ),
    "llama": Family(
        template=LLAMA,
        head="<s><|start_header_id|>system<|end_header_id|>\n\nToday: 01 Jan 2026\n\n{rules}"
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
        ask="<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        turn_ends=("<|eot_id|>",),
    ),
    "gemma": Family(
        template=GEMMA,
        head="<s><start_of_turn>user\n{rules}\n\n",
        ask="<end_of_turn>\n<start_of_turn>model\n",
        turn_ends=("<end_of_turn>",),
    ),
    "mistral": Family(
        template=MISTRAL,
        head="<s>[INST] {rules}\n\n",
        ask="[/INST] ",
        turn_ends=("</s>",),
    ),
    "harmony": Family(
        template=HARMONY,
        head="<|start|>system<|message|>Date: 2026-01-01<|end|>"
        "<|start|>developer<|message|># Instructions\n\n{rules}\n\n<|end|>"
        "<|start|>user<|message|>",
        ask="<|end|><|start|>assistant<|channel|>final<|message|>",
        turn_ends=("<|end|>", "<|return|>"),
        takes_turns=True,
    ),
    "llama, untrimmed": Family(
        template=LLAMA_KEEPS,
        head="<s><|start_header_id|>system<|end_header_id|>\n\nToday: 01 Jan 2026\n\n{rules}"
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
        ask="<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        turn_ends=("<|eot_id|>",),
        takes_turns=True,
    ),
    "gemma, untrimmed": Family(
        template=GEMMA_KEEPS,
        head="<s><start_of_turn>user\n{rules}\n\n",
        ask="<end_of_turn>\n<start_of_turn>model\n",
        turn_ends=("<end_of_turn>",),
        takes_turns=True,
    ),
    "mistral, tight": Family(
        template=MISTRAL_TIGHT,
        head="<s>[INST]{rules}\n\n",
        ask="[/INST]",
        turn_ends=("</s>",),
        takes_turns=True,
    ),
}
