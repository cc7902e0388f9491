"""Ids that end a sequence: those that a model's files name, and those that its template writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chat_families import FAMILIES, Family, family_tokenizer
from repl_rl.models.loading import end_ids

NONE = SimpleNamespace(eos_token_id=None)


def texts_of(tokenizer: Any, generation: Any = NONE, config: Any = NONE) -> set[str]:
    return set(tokenizer.convert_ids_to_tokens(end_ids(generation, config, tokenizer)))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_template_shows_what_ends_a_turn(family: Family) -> None:
    """In a conversation that goes on, and at its end; `<|call|>` is in no answer."""
    calls = {"<|call|>"} if "<|return|>" in family.turn_ends else set()
    found = texts_of(family_tokenizer(family.template))
    assert found == {"</s>", *family.turn_ends} | calls


def test_all_files_of_a_model_are_heard() -> None:
    generation = SimpleNamespace(eos_token_id=[5, 7])
    config = SimpleNamespace(eos_token_id=9)
    tokenizer = SimpleNamespace(eos_token_id=None, chat_template=None)
    assert end_ids(generation, config, tokenizer) == [5, 7, 9]


def test_the_config_of_a_models_text_is_heard() -> None:
    config = SimpleNamespace(eos_token_id=None, text_config=SimpleNamespace(eos_token_id=[3, 1]))
    config.get_text_config = lambda: config.text_config
    tokenizer = SimpleNamespace(eos_token_id=2, chat_template=None)
    assert end_ids(NONE, config, tokenizer) == [1, 2, 3]


def test_a_word_behind_an_answer_ends_nothing() -> None:
    template = "{% for m in messages %}{{ m.content + ' Next: ' }}{% endfor %}"
    assert texts_of(family_tokenizer(template)) == {"</s>"}


def test_a_template_that_takes_no_answer_shows_nothing() -> None:
    assert texts_of(family_tokenizer("{{ raise_exception('no') }}")) == {"</s>"}
