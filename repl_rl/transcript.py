r"""What a transcript looks like, and which tokens of it the model wrote.

    prompt:       banner, `>>> # statement`, ..., `>>>`   (no trailing space: the model samples it)
    line:         ` solve(x**2 - 4, x)\n`                   (sampled, trained)
    observation:  `[-2, 2]\n>>>`                            (injected, never trained)

Floor 2. Knows text and token ids. Does not know kernels, rewards or tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from repl_rl.errors import ConfigError
from repl_rl.types import OutcomeKind, Trajectory

PROBLEM_MARKER = "{{problem}}"
"""Stands alone on a line of a task's prompt; the statement's lines take its place as comments."""

SUBMIT = "submit_final_answer"

SUBMIT_STUB = f"""\
def {SUBMIT}(*args, **kwargs):
    raise RuntimeError("write {SUBMIT}(answer) alone on a line")

"""
"""What a call that submits nothing runs into. A call that does submit never reaches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptFormat:
    """The strings between lines. `python` is the classic CPython REPL."""

    name: str
    banner: str
    """Ends in a newline; `{version}` is the kernel's Python version."""
    primary: str
    """Prompt for a new statement, without a trailing space."""
    secondary: str
    """Prompt inside a statement that is not complete."""

    def render_prompt(self, source_lines: Sequence[str], *, python_version: str) -> str:
        """The text before the first sampled token: banner, a prompt per line, a bare prompt."""
        shown = "".join(f"{self.primary} {line}\n" for line in source_lines)
        return self.banner.format(version=python_version) + shown + self.primary

    def render_observation(self, output: str, kind: OutcomeKind) -> str:
        """The text injected after a line: its output (empty, or ending in a newline), a prompt."""
        return output + (self.secondary if kind is OutcomeKind.INCOMPLETE else self.primary)


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
    return [line for line in lines if not is_thought(line)] + [SUBMIT_STUB]


def strip_line(line: str) -> str:
    """The source in a sampled line: without the space after the prompt and the final newline."""
    return line.removeprefix(" ").removesuffix("\n")


_THOUGHT = re.compile(r"\s*(#.*)?")


def is_thought(source: str) -> bool:
    """True where every physical line is a comment or blank: no kernel sees such a source."""
    return all(_THOUGHT.fullmatch(line) for line in source.split("\n"))


class Span(NamedTuple):
    """`completion_ids[start:stop]`, all sampled or all injected."""

    start: int
    stop: int
    is_sampled: bool
    line_index: int
    """The line that the span is, or that it answers."""


def spans(trajectory: Trajectory) -> Iterator[Span]:
    """Cut a completion into its sampled lines and the observations between them, in order.

    The one source of who wrote what: training mask, token view and metrics all read these spans.
    Example: lines at [0, 5) and [8, 12) of 12 tokens give
    (0, 5, True, 0), (5, 8, False, 0), (8, 12, True, 1).
    """
    end = 0
    for line in trajectory.lines:
        if end < line.start:
            yield Span(end, line.start, False, line.index - 1)
        yield Span(line.start, line.stop, True, line.index)
        end = line.stop
    if end < len(trajectory.completion_ids):
        yield Span(end, len(trajectory.completion_ids), False, len(trajectory.lines) - 1)


def span_mask(trajectory: Trajectory) -> list[bool]:
    """The loss mask as the spans tell it, [T]."""
    return [span.is_sampled for span in spans(trajectory) for _ in range(span.start, span.stop)]
