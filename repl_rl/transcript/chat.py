"""A REPL in a chat: the session in one turn of an assistant, or a message for each line.

    chat template -> TranscriptFormat -> Prompt

Knows chat templates. Does not know tokens, kernels, tasks or models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from repl_rl.base.disk import read_text
from repl_rl.errors import ConfigError
from repl_rl.transcript.format import PROBLEM_MARKER, PYTHON, Part, Prompt, TranscriptFormat
from repl_rl.transcript.templates import ChatTemplate as ChatTemplate
from repl_rl.transcript.templates import between_turns as between_turns
from repl_rl.transcript.templates import chat_turn as chat_turn
from repl_rl.transcript.templates import switched, thought_turn, timeless

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
    thinks: bool = False
    """Whether the prompt ends where a thought begins; banner and `>>>` come after it."""

    def thoughtful(self) -> ChatFormat:
        """Switch on a template's thoughts: see `TranscriptFormat.thoughtful`."""
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

    def thoughtful(self) -> ChatFormat:
        """Refused: templates drop the thoughts of turns gone by, which rewrites what was said."""
        TranscriptFormat.thoughtful(self)
        return self

    def prompt(self, task_prompt: str, statement: str, *, python_version: str) -> Prompt:
        """Make the prompt of one user's turn: see `TranscriptFormat.prompt`."""
        session, next_number = self._session(task_prompt, python_version)
        user = f"{statement}\n\n{session}"
        turn = chat_turn(self.template, system=self.system, user=user, has_replies=True)
        return Prompt(tuple(turn), next_number=next_number)


def chat_format(template: ChatTemplate | None) -> ChatFormat:
    """The format `chat` of a model; ConfigError for one without a chat template."""
    found = _timeless(template, "chat")
    return ChatFormat(**_parts("chat"), template=switched(found, thinks=False))


def chat_turns_format(template: ChatTemplate | None) -> ChatTurnsFormat:
    """The format `chat-turns`; ConfigError also for a template that `between_turns` refuses.

    A switch for thoughts is left as it is where a template that is told to leave them out writes
    before the last answer what it does not write before those gone by.
    """
    found = _timeless(template, "chat-turns")
    parts = _parts("chat-turns")
    quiet = switched(found, thinks=False)
    try:
        closing, reopening = between_turns(quiet, system=parts["system"])
    except ConfigError:
        quiet = found
        closing, reopening = between_turns(quiet, system=parts["system"])
    return ChatTurnsFormat(**parts, template=quiet, closing=closing, reopening=reopening)


def _timeless(template: ChatTemplate | None, name: str) -> ChatTemplate:
    if template is None:
        raise ConfigError(
            f"transcript = {name!r} takes a model whose tokenizer has a chat template"
        )
    return timeless(template)


def _parts(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "banner": PYTHON.banner,
        "primary": PYTHON.primary,
        "secondary": PYTHON.secondary,
        "system": read_text("chat.txt").strip(),
    }
