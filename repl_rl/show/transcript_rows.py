r"""The transcript of a stored trajectory, row by row, with the writer of each piece.

    Scored, decode -> Row, Row, ...

What a policy or a kernel wrote is cleaned here. Does not know colours or screens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import (
    PYTHON,
    TranscriptFormat,
    next_number,
    source_of,
    spans,
    text_of,
)
from repl_rl.types import Line, Scored, Trajectory
from repl_sandbox.render import clean

Decode = Callable[[Sequence[int]], str]
"""Turns ids into text by the vocabulary that made them."""


class By(Enum):
    """Who wrote a piece of a row."""

    PROMPT = "prompt"
    SAMPLED = "sampled"
    ERROR = "error"
    """Sampled, in a line that failed."""
    INJECTED = "injected"
    COPIED = "copied"
    """Sampled for another one, which this one begins as."""


@dataclass(slots=True)
class Row:
    """One row, without its newline."""

    pieces: list[tuple[str, By]] = field(default_factory=list)
    ended: list[tuple[Line, float]] = field(default_factory=list)
    """Lines that end in it, each with its reward."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def transcript_rows(scored: Scored, decode: Decode | None) -> Iterator[Row]:
    """The transcript, row by row, as the policy saw it.

    The ids give the text that was spliced in. Without their vocabulary, or with another one, the
    REPL prompt that ends the trajectory's prompt gives it. Where no REPL prompt is known either,
    observations stand alone on their rows.
    """
    trajectory = scored.trajectory
    texts = _decoded(trajectory, decode) or _rendered(trajectory)
    row = Row()
    for piece, by, line in _pieces(trajectory, texts):
        text = clean(piece)
        body = text.removesuffix("\n")
        for number, part in enumerate(body.split("\n")):
            if number:
                yield row
                row = Row()
            if text:  # a blank row has its writer, too
                row.pieces.append((part, by))
        if line is not None:
            row.ended.append((line, scored.reward.line_rewards[line.index]))
        if body != text:
            yield row
            row = Row()
    if row.pieces or row.ended:
        yield row


def _pieces(trajectory: Trajectory, texts: Sequence[str]) -> Iterator[tuple[str, By, Line | None]]:
    """Texts in order, each with its writer and the line that ends with it."""
    yield trajectory.prompt_text, By.PROMPT, None
    for span, text in zip(spans(trajectory), texts, strict=True):
        if not span.is_sampled:
            yield text, By.INJECTED, None
            continue
        if span.line_index < 0:
            yield text, By.SAMPLED, None
            continue
        line = trajectory.lines[span.line_index]
        if line.start < trajectory.num_copied:
            yield text, By.COPIED, line
        elif line.outcome.kind.traits.is_error:
            yield text, By.ERROR, line
        else:
            yield text, By.SAMPLED, line


def _decoded(trajectory: Trajectory, decode: Decode | None) -> list[str] | None:
    """The text of each span; None without a vocabulary, or with another one."""
    if decode is None:
        return None
    texts = []
    for span in spans(trajectory):
        ids = trajectory.completion_ids[span.start : span.stop]
        source = source_of(trajectory, span)
        text = text_of(source, ids, decode) if span.is_sampled else decode(ids)
        if text is None:
            return None
        texts.append(text)
    return texts


def _rendered(trajectory: Trajectory) -> list[str]:
    """The text of each span, from lines, observations and the prompt alone."""
    thought = trajectory.thought
    fmt, number = _repl_of(trajectory.prompt_text if thought is None else thought.shown)
    texts = []
    for span in spans(trajectory):
        if thought is not None and span.line_index < 0:
            texts.append(thought.source if span.is_sampled else thought.shown)
            continue
        line = trajectory.lines[span.line_index]
        shown, kind = line.outcome.observation, line.outcome.kind
        if span.is_sampled:
            texts.append(line.source)
        elif fmt is None:
            texts.append(_alone(line.source, shown))
        else:
            texts.append(fmt.render_observation(shown, kind, number=number))
            number = next_number(number, kind)
    return texts


def _alone(source: str, observation: str) -> str:
    """An observation on rows of its own."""
    before = "" if source.endswith("\n") else "\n"
    after = "" if observation.endswith("\n") or not observation else "\n"
    return before + observation + after


def _repl_of(prompt: str) -> tuple[TranscriptFormat | None, int]:
    """The REPL that a prompt ends in, and the number of the statement that it asks for."""
    if prompt.endswith(PYTHON.primary):
        return PYTHON, 1
    # At most nine digits: `int` refuses a number that is too long.
    shown = re.escape(IPYTHON.primary).replace(r"\{n\}", r"(\d{1,9})")
    found = re.search(rf"{shown}\Z", prompt)
    return (IPYTHON, int(found[1])) if found else (None, 1)
