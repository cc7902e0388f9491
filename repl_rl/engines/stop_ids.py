"""Which ids end a sequence, by all that a model's files say.

    generation config, config, tokenizer, chat template -> ids

Knows tokenizers. Does not know lines: where a line ends is the codec's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from repl_rl.transcript.templates import after_answers
from repl_rl.transcript.tokens import control_tokens

_CALL = "<|call|>"
"""Ends a turn of a model of channels that calls a tool. No template shows it in an answer."""


def end_ids(generation: Any, config: Any, tokenizer: Any) -> list[int]:
    """All ids that end a sequence, in order: no file of a model need name them all.

    Any: a GenerationConfig, a PreTrainedConfig and a tokenizer of any model.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    named = [one.eos_token_id for one in (generation, config, text, tokenizer)]
    found = {i for ids in named for i in (ids if isinstance(ids, list) else [ids])}
    return sorted({*found, *_turn_ends(tokenizer)} - {None})


def _turn_ends(tokenizer: Any) -> Iterator[int]:
    """The control token that a chat template writes behind an answer, wherever that stands."""
    if not isinstance(tokenizer.chat_template, str):
        return
    controls = control_tokens(tokenizer)
    for text in after_answers(partial(tokenizer.apply_chat_template, tokenize=False)):
        first = tokenizer.encode(text.lstrip(), add_special_tokens=False)[:1]
        yield from (i for i in first if i in controls)
    if "<|channel|>" in tokenizer.chat_template:
        yield from (i for i, token in controls.items() if str(token) == _CALL)
