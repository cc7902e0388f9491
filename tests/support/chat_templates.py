"""Chat templates as models ship them, and a tokenizer of bytes that has their control tokens."""

from __future__ import annotations

import warnings
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

START, END, THINK, THOUGHT = 256, 257, 258, 259
"""Ids of the control tokens, after those of the 256 bytes."""

TURNS = r"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
CHATML = TURNS + (
    r"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
EMPTY_THINK = (
    r"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    r"{% if m.role == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    r"{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    r"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NO_SYSTEM = (
    r"{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    r"{% endif %}" + CHATML
)
EATER = CHATML.replace(r"assistant\n' }}{% endif %}", r"assistant\n<think>\n' }}{% endif %}")
DROPPER = CHATML.replace("in messages", "in messages if m.role != 'system'")


def load_tokenizer(template: str) -> Any:
    """Bytes, four control tokens and no merges; those of thoughts are not special, as in Qwen3."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(f"<|im_{side}|>", special=True) for side in ("start", "end")]
    )
    backend.add_tokens([AddedToken(text, special=False) for text in ("<think>", "</think>")])
    tokenizer = quiet_transformers().PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>"
    )
    tokenizer.chat_template = template
    return tokenizer


def quiet_transformers() -> Any:
    """The module; importing it is not what is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers
