r"""Format of a transcript: its look, and which tokens of it the model wrote.

    prompt:       banner, `>>> # statement`, ..., `>>>`   (no trailing space: the model samples it)
    line:         ` solve(x**2 - 4, x)\n`                   (sampled, trained)
    observation:  `[-2, 2]\n>>>`                            (injected, never trained)

Knows text and token ids. Does not know kernels, rewards or tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Trajectory
from repl_rl.transcript.tokens import Decode

PROBLEM_MARKER = "{{problem}}"
"""Stands alone on a line of a task's prompt; the statement's lines take its place as comments."""

SUBMIT = "submit_final_answer"

SUBMIT_STUB = f"""\
def {SUBMIT}(*args, **kwargs):
    fault = "takes no keyword: " if kwargs else "" if args else "needs an answer: "
    rule = "write {SUBMIT}(answer) alone on a line"
    stars = ", without a star and within 2000 characters" if args and not kwargs else ""
    raise RuntimeError(fault + rule + stars)

"""
"""Stub for a call that submits nothing. A call that does submit never reaches it. So a call with
positional arguments alone shares its line, has a star or is too long."""


class Part(NamedTuple):
    """A piece of a prompt's text.

    >>> Prompt((Part("What is 1 + 1?"), Part(">>>"))).text
    'What is 1 + 1?>>>'
    """

    text: str
    is_template: bool = False
    """True for a chat template's own text, in which control tokens count as such. In any other text
    they are spelled out."""
    is_ours: bool = True
    """False for text from elsewhere, in which all added tokens are spelled out."""


class Prompt(NamedTuple):
    """Prompt: all that stands before the first sampled token.

    >>> Prompt.plain("1 + 1 =").text
    '1 + 1 ='
    """

    parts: tuple[Part, ...]
    next_number: int = 1
    """Number of the statement that the last prompt asks for."""
    after: tuple[Part, ...] = ()
    """Parts that end a thought and ask for the first line; empty where the prompt itself asks for
    it. The first part is the template's, and holds the marker that ends a thought."""

    @classmethod
    def plain(cls, text: str) -> Prompt:
        """Prompt of this text alone."""
        return cls((Part(text),))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptFormat:
    r"""The strings between lines. `PYTHON` is the classic CPython REPL.

    `{n}` in `primary` and `display_mark` stands for the number of the statement, from 1. A prompt
    ends without a space: the model samples it. An observation should not begin with a newline:
    tokenizers join newlines, so no tokenizer would write that transcript.

        >>> fmt = TranscriptFormat(name="own", banner="", primary="?", secondary="+")
        >>> fmt.prompt("{{problem}}", "What is 1 + 1?", python_version="3.13").text
        '? # What is 1 + 1?\n?'
    """

    name: str
    banner: str
    """Ends in a newline; `{version}` is the kernel's Python version."""
    primary: str
    """Prompt for a new statement, without a trailing space."""
    secondary: str
    """Prompt inside a statement that is not complete."""
    display_mark: str = ""
    """Mark that kernels write before a displayed value, such as `Out[{n}]: `."""
    setup: tuple[str, ...] = ()
    """Sources that a kernel runs before the task's own. A `sys.displayhook` that they set stays."""
    closing: str = ""
    """Text that a chat template writes after a line, up to the first word of the message that
    answers it. Empty where lines and answers share one turn."""
    reopening: str = ""
    """Text that the template writes after that message, up to the first word of the next line."""

    def __post_init__(self) -> None:
        if any(prompt.endswith(" ") for prompt in (self.primary, self.secondary)):
            raise ConfigError(
                f"transcript {self.name!r} has prompts {self.primary!r} and {self.secondary!r}; "
                f"expected none that ends in a space: the model samples it"
            )

    def prompt(self, task_prompt: str, statement: str, *, python_version: str) -> Prompt:
        """Make the prompt that a policy sees before its first line; see `prompt_lines`."""
        lines = prompt_lines(task_prompt, statement)
        text = self.render_prompt(lines, python_version=python_version)
        return Prompt((Part(text),), next_number=len(lines) + 1)

    def with_thinking(self) -> TranscriptFormat:
        """The format with a thought before the first line; ConfigError where there is no place."""
        raise ConfigError(
            f"sampling.max_think_tokens needs transcript 'chat', not {self.name!r}; give "
            f"transcript = 'chat', or set it to 0"
        )

    def render_prompt(self, source_lines: Sequence[str], *, python_version: str) -> str:
        """Banner, a prompt and a line for each of `source_lines`, a bare prompt."""
        banner = self.banner.replace("{version}", python_version)
        typed = [f"{self._numbered(n)} {line}\n" for n, line in enumerate(source_lines, 1)]
        return banner + "".join(typed) + self._numbered(len(source_lines) + 1)

    def render_output(self, output: str, *, number: int) -> str:
        """A kernel's output as the answer to statement `number`."""
        if not self.display_mark:
            return output
        return output.replace(self.display_mark, _fill(self.display_mark, number))

    def render_observation(self, output: str, kind: OutcomeKind, *, number: int = 1) -> str:
        """The text injected after a line of statement `number`: its output, and a prompt.

        `output` is as `render_output` made it, empty or ending in a newline.
        """
        if kind is OutcomeKind.INCOMPLETE:
            return output + self.secondary
        return output + self._numbered(next_number(number, kind))

    def injected(self, observation: str) -> tuple[Part, ...]:
        """Parts that follow a line: `render_observation`'s text, within a message where there are
        turns."""
        answer = Part(observation, is_ours=False)
        if not self.closing:
            return (answer,)
        return (
            Part(self.closing, is_template=True),
            answer,
            Part(self.reopening, is_template=True),
        )

    def is_injected(self, text: str, output: str, kind: OutcomeKind) -> bool:
        """Say whether `text` is what `injected` makes of these, whatever the number."""
        is_open = kind is OutcomeKind.INCOMPLETE
        prompt = re.escape(self.secondary if is_open else self.primary)
        prompt = prompt if is_open else prompt.replace(re.escape("{n}"), r"\d+")
        before, after = re.escape(self.closing + output), re.escape(self.reopening)
        return re.fullmatch(before + prompt + after, text) is not None

    def number_at_end(self, text: str) -> int | None:
        """The number of the statement that a text ends in asking for, 1 where prompts have none.

        None for a text that does not end in the prompt.
        """
        # At most nine digits: a hostile file may hold a number that is too long for `int`.
        prompt = re.escape(self.primary).replace(r"\{n\}", r"(\d{1,9})")
        match = re.search(rf"{prompt}\Z", text)
        if match is None:
            return None
        return int(match[1]) if match.groups() else 1

    def _numbered(self, number: int) -> str:
        return _fill(self.primary, number)


def _fill(text: str, number: int) -> str:
    return text.replace("{n}", str(number))


def next_number(number: int, kind: OutcomeKind) -> int:
    """The number of the next statement after a line of outcome `kind` at `number`."""
    return number + kind.traits.takes_number


PYTHON = TranscriptFormat(
    name="python",
    banner=(
        "Python {version} on linux\n"
        'Type "help", "copyright", "credits" or "license" for more information.\n'
    ),
    primary=">>>",
    secondary="...",
)


def prompt_lines(prompt: str, statement: str) -> list[str]:
    """A task's prompt text with the statement in place of its marker, as source lines.

    Raises ConfigError unless the marker stands alone on exactly one line.
    """
    lines = prompt.strip("\n").split("\n")
    if lines.count(PROBLEM_MARKER) != 1:
        raise ConfigError(
            f"a task's prompt needs {PROBLEM_MARKER} alone on exactly one line, got {prompt!r}"
        )
    at = lines.index(PROBLEM_MARKER)
    return [*lines[:at], *(f"# {line}" for line in statement.split("\n")), *lines[at + 1 :]]


def setup_sources(prompt: str) -> list[str]:
    """Sources that bring a fresh kernel to the state the prompt shows, and the submission stub."""
    lines = [line for line in prompt.strip("\n").split("\n") if line != PROBLEM_MARKER]
    return [line for line in lines if not is_comment(line)] + [SUBMIT_STUB]


def line_of(source: str) -> str:
    """A source as a line of the REPL, which a policy would sample: the inverse of `strip_line`.

    A blank line stays blank; any other begins with the space that follows the prompt.
    """
    return f" {source}\n" if source else "\n"


def strip_line(line: str) -> str:
    """The source in a sampled line: without the space after the prompt and the final newline."""
    return line.removeprefix(" ").removesuffix("\n")


def text_of(source: str, ids: Sequence[int], decode: Decode) -> str | None:
    """The text of a line's tokens; None where they do not read as its source.

    A message of a chat has no space before it, and a token at its end in place of a newline.
    """
    text = decode(ids)
    is_same = source in (text, f" {text}") or source == f" {decode(ids[:-1])}\n"
    return text if is_same else None


_COMMENT = re.compile(r"\s*(#.*)?")


def is_comment(source: str) -> bool:
    """True where every physical line is a comment or blank: no kernel sees such a source."""
    return all(_COMMENT.fullmatch(line) for line in source.split("\n"))


class Span(NamedTuple):
    """`completion_ids[start:stop]`, all sampled or all injected."""

    start: int
    stop: int
    is_sampled: bool
    line_index: int
    """The line that the span is, or that it answers; -1 before all lines."""


def spans(trajectory: Trajectory) -> Iterator[Span]:
    """Cut a completion into its sampled lines and the observations between them, in order.

    The one source of who wrote what: training mask, token view and metrics all read these spans.
    Example: lines at [0, 5) and [8, 12) of 12 tokens give
    (0, 5, True, 0), (5, 8, False, 0), (8, 12, True, 1). A thought is a span of its own, before
    all lines.
    """
    end = trajectory.num_before_lines
    if end:
        yield Span(0, end, True, -1)
    for line in trajectory.lines:
        if end < line.start:
            yield Span(end, line.start, False, line.index - 1)
        yield Span(line.start, line.stop, True, line.index)
        end = line.stop
    if end < len(trajectory.completion_ids):
        yield Span(end, len(trajectory.completion_ids), False, len(trajectory.lines) - 1)


def source_of(trajectory: Trajectory, span: Span) -> str:
    """The recorded text of a sampled span."""
    if span.line_index < 0 and trajectory.thought is not None:
        return trajectory.thought.source
    return trajectory.lines[span.line_index].source


def span_mask(trajectory: Trajectory) -> list[bool]:
    """The loss mask that follows from the spans, [T]."""
    return [span.is_sampled for span in spans(trajectory) for _ in range(span.start, span.stop)]
