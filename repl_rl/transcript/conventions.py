"""Calling conventions beside the plain REPL: IPython's prompts, one turn of a chat, one's own.

    name -> TranscriptFormat

Knows prompts and chat templates. Does not know kernels, tasks or models.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jinja2 import TemplateError

from repl_rl.errors import ConfigError
from repl_rl.plugins import load_named
from repl_rl.texts import read_text
from repl_rl.transcript.format import (
    PROBLEM_MARKER,
    PYTHON,
    Part,
    Prompt,
    TranscriptFormat,
)

_DISPLAY = """\
def _display(value, *, mark):
    import builtins
    if value is not None:
        # By their module: in the kernel's own namespace a line may call something else `repr`.
        text = builtins.repr(value)
        builtins.print(mark, text, sep="\\n" if "\\n" in text else "")
        builtins._ = value

import sys, functools
sys.displayhook = functools.partial(_display, mark="Out[{n}]: ")
del _display, sys, functools
"""

IPYTHON = TranscriptFormat(
    name="ipython",
    banner=(
        "Python {version}\n"
        "Type 'copyright', 'credits' or 'license' for more information\n"
        "IPython -- An enhanced Interactive Python. Type '?' for help.\n"
    ),
    primary="In [{n}]:",
    secondary="   ...:",
    display_mark="Out[{n}]: ",
    setup=(_DISPLAY,),
)
"""`ipython --nosep`: no blank lines between statements. The language is plain Python, without
magics; tracebacks are CPython's."""


class ChatTemplate(Protocol):
    """`tokenizer.apply_chat_template`, as text."""

    def __call__(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool
    ) -> str: ...


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
        lines = [line for line in task_prompt.strip("\n").split("\n") if line != PROBLEM_MARKER]
        opening = self.render_prompt(lines, python_version=python_version)
        turn = chat_turn(self.template, system=self.system, user=statement)
        return Prompt((*turn, Part(opening)), next_number=len(lines) + 1)


def chat_turn(template: ChatTemplate, *, system: str, user: str) -> list[Part]:
    """A template's text up to the first word of the assistant, its control tokens told apart.

    Raises ConfigError if the text before an answer is not that of a conversation without it: a
    policy trained after one would be used after the other.
    """
    rules, question, answer = "\ue000s\ue001", "\ue000q\ue001", "\ue000a\ue001"
    texts = {rules: system, question: user}
    try:
        open_turn, whole = _render(template, rules, question, answer)
    except TemplateError:  # some know no role but the user's and the assistant's
        texts = {question: f"{system}\n\n{user}"}
        try:
            open_turn, whole = _render(template, "", question, answer)
        except TemplateError as error:
            raise ConfigError(
                f"this model's chat template takes no question: {error}; use another transcript"
            ) from None
    before, found, _ = whole.partition(answer)
    if not found or not before.startswith(open_turn):
        waiting, answered = (text.rpartition(question)[2][-60:] for text in (open_turn, before))
        raise ConfigError(
            f"this model's chat template eats prefixes: a conversation that waits for an answer "
            f"ends in {waiting!r}, the same one with its answer has {answered!r} before it; give "
            f"the model a template that keeps them, or take transcript 'python'"
        )
    return _cut(before, texts)


def _render(template: ChatTemplate, system: str, user: str, answer: str) -> tuple[str, str]:
    """A conversation that waits for an answer, and the same one answered."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": user})
    answered = [*messages, {"role": "assistant", "content": answer}]
    return (
        template(messages, add_generation_prompt=True),
        template(answered, add_generation_prompt=False),
    )


def _cut(text: str, texts: Mapping[str, str]) -> list[Part]:
    """Fill places in a template's text: what stands there is plain text, whatever it looks like."""
    parts = [Part(text, is_template=True)]
    for place, filling in texts.items():
        head, found, tail = parts.pop().text.partition(place)
        if not found or place in tail:
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
    if template is None:
        raise ConfigError("transcript = 'chat' takes a model whose tokenizer has a chat template")
    return ChatFormat(
        name="chat",
        banner=PYTHON.banner,
        primary=PYTHON.primary,
        secondary=PYTHON.secondary,
        template=template,
        system=read_text("chat.txt").strip(),
    )


FormatMaker = Callable[[ChatTemplate | None], TranscriptFormat]


def find_format(name: str) -> TranscriptFormat | FormatMaker:
    """The format of a name in the entry point group `repl_rl.transcripts`, or `module:attribute`.

    It may be a function that makes one of a model's chat template. Raises ConfigError where the
    name stands for neither.
    """
    found = load_named(name, group="repl_rl.transcripts")
    if isinstance(found, TranscriptFormat):
        return found
    if not inspect.isfunction(found):
        raise ConfigError(f"{name!r} is a {type(found).__name__}; expected a TranscriptFormat")
    maker: FormatMaker = found
    return maker


def made_format(
    found: TranscriptFormat | FormatMaker, template: ChatTemplate | None
) -> TranscriptFormat:
    """The format itself; ConfigError where it takes a template and there is none."""
    return found if isinstance(found, TranscriptFormat) else found(template)


def load_format(name: str, template: ChatTemplate | None = None) -> TranscriptFormat:
    """See `find_format` and `made_format`."""
    return made_format(find_format(name), template)
