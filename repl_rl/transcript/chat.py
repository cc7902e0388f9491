"""A REPL in a chat: the session in one turn of an assistant, or a message for each line.

    chat template -> TranscriptFormat -> Prompt

Knows chat templates. Does not know tokens, kernels, tasks or models.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jinja2 import TemplateError

from repl_rl.errors import ConfigError
from repl_rl.texts import read_text
from repl_rl.transcript.format import PROBLEM_MARKER, PYTHON, Part, Prompt, TranscriptFormat


class ChatTemplate(Protocol):
    """`tokenizer.apply_chat_template`, as text."""

    def __call__(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool
    ) -> str: ...


CHATS = ("chat", "chat-turns")
"""Names of the formats here. The lines in them are those of a plain REPL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat(TranscriptFormat):
    """A REPL inside one turn of an assistant, for models that were tuned on chats.

    The statement is the user's message. The assistant's turn begins with banner, the task's own
    lines and `>>>`, all part of the prompt, and the policy goes on from there; outputs are spliced
    into the same turn. What the template writes before the assistant's words (an empty think block,
    say) is part of the prompt, too.
    """

    template: ChatTemplate
    system: str

    def prompt(self, task_prompt: str, statement: str, *, python_version: str) -> Prompt:
        """Raises ConfigError, a ValueError, for a template that eats prefixes."""
        session, next_number = self._session(task_prompt, python_version)
        turn = chat_turn(self.template, system=self.system, user=statement)
        return Prompt((*turn, Part(session)), next_number=next_number)

    def _session(self, task_prompt: str, python_version: str) -> tuple[str, int]:
        """(banner, the task's own lines and a prompt; the number of the statement it asks for)."""
        lines = [line for line in task_prompt.strip("\n").split("\n") if line != PROBLEM_MARKER]
        return self.render_prompt(lines, python_version=python_version), len(lines) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurnsFormat(ChatFormat):
    """A conversation: each line is a message of the assistant, each answer one of the user.

    The user's first message is the statement and the session up to `>>>`. A line ends at a newline
    or at the token that ends a turn. The template is the source of every control token between two
    lines, except the one that the policy sampled itself.
    """

    def prompt(self, task_prompt: str, statement: str, *, python_version: str) -> Prompt:
        """See `TranscriptFormat.prompt`."""
        session, next_number = self._session(task_prompt, python_version)
        user = f"{statement}\n\n{session}"
        (text,), texts = _conversations(self.template, system=self.system, user=user, lengths=[1])
        return Prompt(tuple(_cut(text, texts)), next_number=next_number)


def chat_turn(template: ChatTemplate, *, system: str, user: str) -> list[Part]:
    """A template's text up to the first word of the assistant, in parts that mark control tokens.

    Raises ConfigError if an answer changes the text before it: the policy would be trained after
    one text and used after another.
    """
    (open_turn, whole), texts = _conversations(template, system=system, user=user, lengths=[1, 2])
    before, found, _ = whole.partition(_WORDS[1])
    if not found or not before.startswith(open_turn):
        raise _eats_prefixes(open_turn, before)
    return _cut(before, texts)


def between_turns(template: ChatTemplate, *, system: str) -> tuple[str, str]:
    """What a template writes (between an answer and the user's next words, after those).

    Raises ConfigError unless a longer conversation begins with the shorter one, and the template
    writes the same at each turn: a trajectory is one growing list of tokens.
    """
    texts, _ = _conversations(template, system=system, user="", lengths=[1, 3, 5])
    found = []
    for shorter, longer, answer, reply in zip(
        texts, texts[1:], _WORDS[1::2], _WORDS[2::2], strict=False
    ):
        before, _, after = longer.partition(answer)
        if before != shorter:
            raise _eats_prefixes(shorter, before)
        closing, _, reopening = after.partition(reply)
        found.append((closing, reopening))
    first, second = found
    if first != second or not all(first):
        raise ConfigError(
            f"this model's chat template writes {''.join(first)[:60]!r} between two turns and "
            f"{''.join(second)[:60]!r} between the next; take transcript 'chat'"
        )
    return first


def _eats_prefixes(waiting: str, answered: str) -> ConfigError:
    ends = [text.rpartition(_WORDS[0])[2][-60:] for text in (waiting, answered)]
    return ConfigError(
        f"this model's chat template eats prefixes: a conversation that waits for an answer "
        f"ends in {ends[0]!r}, the same one with its answer has {ends[1]!r} before it; give "
        f"the model a template that keeps them, or take transcript 'python'"
    )


_RULES = "\ue000s\ue001"
_WORDS = [f"\ue000{name}\ue001" for name in ("q", "a", "o", "b", "p")]
"""Placeholders for the messages of a conversation, the user's first."""


def _conversations(
    template: ChatTemplate, *, system: str, user: str, lengths: Sequence[int]
) -> tuple[list[str], dict[str, str]]:
    """(conversations of so many messages, made of placeholders; the texts of the first ones).

    Raises ConfigError for a template that takes no question.
    """
    try:
        texts = {_RULES: system, _WORDS[0]: user}
        return [_render(template, _RULES, _WORDS[:length]) for length in lengths], texts
    except TemplateError:  # some know no role but the user's and the assistant's
        pass
    try:
        texts = {_WORDS[0]: f"{system}\n\n{user}"}
        return [_render(template, "", _WORDS[:length]) for length in lengths], texts
    except TemplateError as error:
        raise ConfigError(
            f"this model's chat template takes no question: {error}; use another transcript"
        ) from None


def _render(template: ChatTemplate, system: str, words: Sequence[str]) -> str:
    """A conversation; it waits for an answer if the user has the last word."""
    messages = [{"role": "system", "content": system}] if system else []
    roles = itertools.cycle(("user", "assistant"))
    messages += [{"role": role, "content": text} for role, text in zip(roles, words, strict=False)]
    return template(messages, add_generation_prompt=len(words) % 2 == 1)


def _cut(text: str, texts: Mapping[str, str]) -> list[Part]:
    """Fill placeholders in a template's text; fillings are plain text, whatever they look like."""
    parts = [Part(text, is_template=True)]
    for placeholder, filling in texts.items():
        head, found, tail = parts.pop().text.partition(placeholder)
        if not found or placeholder in tail:
            fault = "repeats" if found else "drops"
            raise ConfigError(
                f"this model's chat template {fault} a message; use another transcript"
            )
        parts += [
            Part(head, is_template=True),
            Part(filling, is_ours=False),
            Part(tail, is_template=True),
        ]
    return parts


def chat_format(template: ChatTemplate | None) -> ChatFormat:
    """The format `chat` of a model; ConfigError for one without a chat template."""
    return ChatFormat(**_chat(template, "chat"))


def chat_turns_format(template: ChatTemplate | None) -> ChatTurnsFormat:
    """The format `chat-turns`; ConfigError also for a template that `between_turns` refuses."""
    parts = _chat(template, "chat-turns")
    closing, reopening = between_turns(parts["template"], system=parts["system"])
    return ChatTurnsFormat(**parts, closing=closing, reopening=reopening)


def _chat(template: ChatTemplate | None, name: str) -> dict[str, Any]:
    if template is None:
        raise ConfigError(
            f"transcript = {name!r} takes a model whose tokenizer has a chat template"
        )
    return {
        "name": name,
        "banner": PYTHON.banner,
        "primary": PYTHON.primary,
        "secondary": PYTHON.secondary,
        "template": template,
        "system": read_text("chat.txt").strip(),
    }
