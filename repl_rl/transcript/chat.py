"""A REPL in a chat: the session in one turn of an assistant, or a message for each line.

    chat template -> TranscriptFormat -> Prompt

A template is judged by what it writes for placeholders, never by its family. Knows chat templates.
Does not know tokens, kernels, tasks or models.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from jinja2 import TemplateError

from repl_rl.base.disk import read_text
from repl_rl.errors import ConfigError
from repl_rl.transcript.format import PROBLEM_MARKER, PYTHON, Part, Prompt, TranscriptFormat

Read = TypeVar("Read")


class ChatTemplate(Protocol):
    """`tokenizer.apply_chat_template`, as text."""

    def __call__(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        add_generation_prompt: bool,
        **settings: object,
    ) -> str: ...


_SWITCHES = ("enable_thinking", "thinking")
"""Names that templates give to the setting by which a model thinks before it answers."""
_DAY = date(2026, 1, 1)
_RULES = "\ue000s\ue001"
_THOUGHT = "\ue000t\ue001"
_OPEN, _CLOSE = "<think>", "</think>"
_WORDS = [f"\ue000{name}\ue001" for name in ("q", "a", "o", "b", "p", "c", "r")]
"""Placeholders for the messages of a conversation, the user's first."""


def switched(template: ChatTemplate, *, thinks: bool) -> ChatTemplate:
    """The template with its switch for thoughts on or off; as it is where it has none."""
    for name in _SWITCHES:
        try:
            if _question(template, {name: True}) != _question(template, {name: False}):
                return partial(template, **{name: thinks})  # type: ignore[arg-type]  # by name
        except TemplateError:
            return template
    return template


def _question(template: ChatTemplate, settings: Mapping[str, object]) -> str:
    question = [{"role": "user", "content": _WORDS[0]}]
    return template(question, add_generation_prompt=True, **settings)


def chat_turn(
    template: ChatTemplate, *, system: str, user: str, has_replies: bool = False
) -> list[Part]:
    """A template's text up to the first word of the assistant, in parts that mark control tokens.

    With `has_replies` it is that of an answer with others behind it. Raises ConfigError if an
    answer changes the text before it: the policy would be trained after one text and used after
    another.
    """

    def read(chat: _Opening) -> list[Part]:
        open_turn, whole = (chat.rendered(template, count) for count in (1, 2 + has_replies))
        return chat.filled(_before_answer(open_turn, whole, _WORDS[1]))

    return _accepted(read, system, user)


class _EatsPrefixesError(ConfigError):
    """An answer, or what follows it, changes the text before it."""


def thought_turn(template: ChatTemplate, *, system: str, user: str) -> tuple[list[Part], str]:
    """(a template's text up to the first word of a thought, what it writes after the last one).

    The second goes on to the first word of the answer. A template that shows no thoughts, or drops
    them, has those that most models know: `<think>` and `</think>`.
    """

    def read(chat: _Opening) -> tuple[list[Part], str]:
        open_turn = chat.rendered(template, 1)
        opening, closing = _thought_marks(template, chat, open_turn)
        return chat.filled(open_turn + opening), closing

    return _accepted(read, system, user)


def _thought_marks(template: ChatTemplate, chat: _Opening, open_turn: str) -> tuple[str, str]:
    fields = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), _THOUGHT)
    answer = {"role": "assistant", "content": _WORDS[1], **fields}
    whole = template([*chat.messages(1), answer], add_generation_prompt=False)
    before, has_thought, rest = whole.partition(_THOUGHT)
    closing, is_answered, _ = rest.partition(_WORDS[1])
    if has_thought and is_answered and closing.strip() and before.startswith(open_turn):
        return before[len(open_turn) :], closing
    is_open = open_turn.rstrip().endswith(_OPEN)
    return "" if is_open else f"{_OPEN}\n", f"\n{_CLOSE}\n\n"


def after_answers(template: ChatTemplate) -> list[str]:
    """Texts that follow an answer at the end of a conversation, and where it goes on.

    Empty for a template that takes no answer.
    """
    chat = _Opening({_WORDS[0]: ""})
    try:
        ended, going_on = (chat.rendered(template, count) for count in (2, 3))
    except TemplateError:
        return []
    after = [whole.partition(_WORDS[1])[2] for whole in (ended, going_on)]
    return [text.partition("\ue000")[0] for text in after]


def _before_answer(open_turn: str, whole: str, answer: str, *, instead: str = "python") -> str:
    """The text up to an answer, which may go on after what a template writes to ask for one."""
    before, is_answered, _ = whole.partition(answer)
    if is_answered and before.startswith(open_turn):
        return before
    ends = [text.rpartition(_WORDS[0])[2][-60:] for text in (open_turn, before)]
    raise _EatsPrefixesError(
        f"this model's chat template does not keep prefixes: a conversation that waits for an "
        f"answer ends in {ends[0]!r}, but with its answer it has {ends[1]!r} before it; give the "
        f"model another template, or transcript = {instead!r}"
    )


def between_turns(template: ChatTemplate, *, system: str) -> tuple[str, str]:
    """Texts that a template writes (between an answer and the user's next words, after those).

    Raises ConfigError unless a longer conversation begins with the shorter one, as it was said, and
    the template writes the same at each turn: a trajectory is one growing list of tokens.
    """
    try:
        chat_turn(template, system=system, user="")
    except ConfigError:
        instead = "python"
    else:
        instead = "chat"
    return _accepted(partial(_between, template, instead=instead), system, "")


def _between(template: ChatTemplate, chat: _Opening, *, instead: str) -> tuple[str, str]:
    texts = [chat.rendered(template, count) for count in (1, 3, 5, 7)]
    leads = [
        _before_answer(shorter, longer, answer, instead=instead)[len(shorter) :]
        for shorter, longer, answer in zip(texts, texts[1:], _WORDS[1::2], strict=False)
    ]
    # The last turn ends where the next answer would begin.
    marks = _marks(texts[-1] + leads[-1])
    different = [mark for mark in marks if mark != marks[0]]
    if different or not all(marks[0]):
        other = different[0] if different else marks[0]
        raise ConfigError(
            f"this model's chat template writes {''.join(marks[0])[:60]!r} between two turns and "
            f"{''.join(other)[:60]!r} between the next; give transcript = 'chat'"
        )
    _check_edges(chat.rendered(template, 5, pad=" "), leads[0])
    return marks[0]


def _marks(whole: str) -> list[tuple[str, str]]:
    """(what stands between an answer and its reply, from there to the next answer), at each."""
    marks = []
    for answer, reply in zip(_WORDS[1::2], _WORDS[2::2], strict=True):
        closing, _, rest = whole.partition(answer)[2].partition(reply)
        marks.append((closing, rest.partition("\ue000")[0]))
    return marks


def _check_edges(padded: str, lead: str) -> None:
    """ConfigError where white space at the ends of messages is lost, or joins a template's own."""
    if not all(f" {word} " in padded for word in _WORDS[1:4]):
        fault = "trims its messages, so an indented line would lose its indent"
    elif lead.endswith(" "):
        fault = "begins an answer with a space, which would be part of the line"
    else:
        return
    raise ConfigError(f"this model's chat template {fault}; give transcript = 'chat'")


class _Opening(NamedTuple):
    """Opening of a conversation, with a system's message or without, its words as placeholders."""

    texts: Mapping[str, str]
    """Texts that placeholders stand for. The system's stands only where it has a message."""

    def rendered(self, template: ChatTemplate, count: int, *, pad: str = "") -> str:
        """A conversation of so many messages; it waits for an answer if the user spoke last."""
        return template(self.messages(count, pad=pad), add_generation_prompt=count % 2 == 1)

    def messages(self, count: int, *, pad: str = "") -> list[dict[str, str]]:
        """So many of them, and the system's; `pad` stands around all but the first."""
        words = [self._edged(_WORDS[0]), *(f"{pad}{word}{pad}" for word in _WORDS[1:count])]
        system = [{"role": "system", "content": _RULES}] if _RULES in self.texts else []
        roles = itertools.cycle(("user", "assistant"))
        turns = [{"role": role, "content": word} for role, word in zip(roles, words, strict=False)]
        return [*system, *turns]

    def _edged(self, word: str) -> str:
        """A placeholder between the white space of its text, which a template may take off."""
        text = self.texts[word]
        core = text.strip()
        before, _, after = text.partition(core) if core else ("", "", "")
        return f"{before}{word}{after}"

    def filled(self, text: str) -> list[Part]:
        """A template's text with its words, which are plain text, whatever they look like."""
        parts = [Part(text, is_template=True)]
        for placeholder, filling in self.texts.items():
            head, is_there, tail = parts.pop().text.partition(placeholder)
            if not is_there or placeholder in tail:
                fault = "repeats" if is_there else "drops"
                raise ConfigError(
                    f"this model's chat template {fault} a message; use another transcript"
                )
            parts += [
                Part(head, is_template=True),
                Part(filling.strip() or filling, is_ours=False),
                Part(tail, is_template=True),
            ]
        return parts


def _accepted(read: Callable[[_Opening], Read], system: str, user: str) -> Read:
    """Return what `read` finds with the first beginning that the template takes.

    Some templates know no role but the user's and the assistant's, pass over the system's message,
    or move it on to the user's last one. Raises ConfigError for a template that takes neither.
    """
    faults: list[ConfigError] = []
    why: TemplateError | None = None
    for opening in (
        _Opening({_RULES: system, _WORDS[0]: user}),
        _Opening({_WORDS[0]: f"{system}\n\n{user}"}),  # the system's words as the user's first
    ):
        try:
            return read(opening)
        except TemplateError as error:
            why = error
        except ConfigError as error:
            faults.append(error)
    if faults:
        # A message of the system's own that moves on changes the text, whatever else is amiss.
        others = (fault for fault in faults if not isinstance(fault, _EatsPrefixesError))
        raise next(others, faults[0])
    raise ConfigError(
        f"this model's chat template takes no question: {why}; use another transcript"
    )


def _system() -> str:
    return read_text("chat.txt").strip()


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

    name: str = "chat"
    banner: str = PYTHON.banner
    primary: str = PYTHON.primary
    secondary: str = PYTHON.secondary
    system: str = field(default_factory=_system)
    template: ChatTemplate
    thinks: bool = False
    """True where the prompt ends where a thought begins; banner and `>>>` come after it."""

    def with_thinking(self) -> ChatFormat:
        """Switch on a template's thoughts: see `TranscriptFormat.with_thinking`."""
        return replace(self, template=switched(self.template, thinks=True), thinks=True)

    def prompt(self, task_prompt: str, statement: str, *, python_version: str) -> Prompt:
        """Raises ConfigError, a ValueError, for a template that eats prefixes."""
        session, next_number = self._session(task_prompt, python_version)
        if self.thinks:
            turn, closing = thought_turn(self.template, system=self.system, user=statement)
            after = (Part(closing, is_template=True), Part(session))
            return Prompt(tuple(turn), next_number=next_number, after=after)
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

    name: str = "chat-turns"

    def with_thinking(self) -> ChatFormat:
        """Refused: templates drop the thoughts of turns gone by, which rewrites what was said."""
        TranscriptFormat.with_thinking(self)
        return self

    def prompt(self, task_prompt: str, statement: str, *, python_version: str) -> Prompt:
        """Make the prompt of one user's turn: see `TranscriptFormat.prompt`."""
        session, next_number = self._session(task_prompt, python_version)
        user = f"{statement}\n\n{session}"
        turn = chat_turn(self.template, system=self.system, user=user, has_replies=True)
        return Prompt(tuple(turn), next_number=next_number)


def chat_format(template: ChatTemplate | None) -> ChatFormat:
    """The format `chat` of a model; ConfigError for one without a chat template."""
    timeless = _timeless(template, "chat")
    return ChatFormat(template=switched(timeless, thinks=False))


def chat_turns_format(template: ChatTemplate | None) -> ChatTurnsFormat:
    """The format `chat-turns`; ConfigError also for a template that `between_turns` refuses.

    A switch for thoughts is left as it is where a template that is told to leave them out writes
    before the last answer what it does not write before those gone by.
    """
    timeless = _timeless(template, "chat-turns")
    quiet = switched(timeless, thinks=False)
    try:
        closing, reopening = between_turns(quiet, system=_system())
    except ConfigError:
        quiet = timeless
        closing, reopening = between_turns(quiet, system=_system())
    return ChatTurnsFormat(template=quiet, closing=closing, reopening=reopening)


def _timeless(template: ChatTemplate | None, name: str) -> ChatTemplate:
    """The template, with a clock that stands still: a prompt is the same on every day."""
    if template is None:
        raise ConfigError(
            f"transcript = {name!r} needs a model whose tokenizer has a chat template"
        )
    return partial(template, strftime_now=_DAY.strftime)
