"""A transcript, row by row: who wrote each piece, and what became of the lines.

    Scored, vocabulary -> [TranscriptRow]: texts as the policy saw them, each with its writer
    [TranscriptRow], width -> `>>> 1/0                    +   runtime_error -0.10`

Without a vocabulary the texts come from lines and observations. Marks stand right of each row, in
colours as well as without. Where `wraps`, a text too long for its column goes on below: what
stands to the right stays in its place. Knows records. Does not know screens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rich.cells import cell_len, chop_cells
from rich.text import Text

from repl_rl.base.terminal import one_row, shorten, signed
from repl_rl.records import Line, OutcomeKind, Scored, Trajectory, Verdict, VerdictKind
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import (
    PYTHON,
    TranscriptFormat,
    next_number,
    source_of,
    spans,
    text_of,
)
from repl_rl.transcript.tokens import Decode
from repl_sandbox.render import clean


class By(StrEnum):
    """Writer of a piece of a row. The value is the style that shows it."""

    PROMPT = "dim"
    SAMPLED = "bold green"
    ERROR = "bold red"
    """Sampled, in a line that failed."""
    INJECTED = "cyan"
    COPIED = "dim green"
    """Sampled for another one, which this one begins as."""


@dataclass(slots=True)
class TranscriptRow:
    """One row, without its newline."""

    pieces: list[tuple[str, By]] = field(default_factory=list)
    ended: list[tuple[Line, float]] = field(default_factory=list)
    """Lines that end in it, each with its reward."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def transcript_rows(scored: Scored, decode: Decode | None) -> Iterator[TranscriptRow]:
    """The transcript, row by row, as the policy saw it.

    The ids give the text that was spliced in. Without their vocabulary, or with another one, the
    REPL prompt that ends the trajectory's prompt gives it. Where no REPL prompt is known either,
    observations stand alone on their rows.
    """
    trajectory = scored.trajectory
    texts = _decoded(trajectory, decode) or span_texts(trajectory)
    row = TranscriptRow()
    for piece, by, line in _pieces(trajectory, texts):
        text = clean(piece)
        body = text.removesuffix("\n")
        for number, part in enumerate(body.split("\n")):
            if number:
                yield row
                row = TranscriptRow()
            if text:  # a blank row has its writer, too
                row.pieces.append((part, by))
        if line is not None:
            row.ended.append((line, scored.reward.line_rewards[line.index]))
        if body != text:
            yield row
            row = TranscriptRow()
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


def span_texts(trajectory: Trajectory) -> list[str]:
    """The text of each span, from lines, observations and the prompt alone."""
    fmt, number = _repl_of(trajectory.opening)
    texts = []
    for span in spans(trajectory):
        if span.is_sampled:
            texts.append(source_of(trajectory, span))
            continue
        if span.line_index < 0:
            texts.append(trajectory.opening)
            continue
        line = trajectory.lines[span.line_index]
        output, kind = line.outcome.observation, line.outcome.kind
        if fmt is None:
            texts.append(_alone(line.source, output))
        else:
            texts.append(fmt.render_observation(output, kind, number=number))
            number = next_number(number, kind)
    return texts


def _alone(source: str, observation: str) -> str:
    """An observation on rows of its own."""
    before = "" if source.endswith("\n") else "\n"
    after = "" if observation.endswith("\n") or not observation else "\n"
    return before + observation + after


def _repl_of(prompt: str) -> tuple[TranscriptFormat | None, int]:
    """The REPL that a prompt ends in, and the number of the statement that it asks for."""
    for fmt in (PYTHON, IPYTHON):
        if (number := fmt.number_at_end(prompt)) is not None:
            return fmt, number
    return None, 1


PROMPT, SAMPLED, ERROR, INJECTED, COPIED = By
_BESIDE = 26
"""Columns of the marks, and of what stands beside them."""
_LEAST = 20
"""Columns of a text, however narrow a terminal is."""
_GIVEN = "prompt"
_WORDS = 22
"""Columns of an outcome with what it earned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked:
    """A row and what stands beside it."""

    left: Text
    mark: Text
    is_prompt: bool = False
    is_empty: bool = False
    """True where a newline alone was sampled in it."""

    @property
    def key(self) -> tuple[bool, str, str]:
        """Equal for rows that look the same; never for one that is empty and one that is not."""
        return self.is_empty, self.left.plain, self.mark.plain


def marked_trajectory(
    scored: Scored, decode: Decode | None = None, *, width: int, wraps: bool = False
) -> Text:
    """The transcript in `width` columns. What a policy or a kernel wrote is never read as markup.

    `decode` turns the ids into text; `transcript_rows` says what happens without it.
    """
    at = max(_LEAST, width - _BESIDE)
    rows = (_marked(row, scored) for row in transcript_rows(scored, decode))
    whole = Text()
    for row in _folded(rows):
        room = max(at, width - len(_GIVEN)) if row.is_prompt else at
        parts = _wrapped(row.left, room - 1) if wraps else [row.left]
        for number, part in enumerate(parts):
            mark = row.mark[:1] if number and not row.is_prompt else row.mark
            whole.append_text(_beside(part, at + 8 * row.is_prompt, mark)).append("\n")
    return whole


def legend(*, has_copies: bool) -> Text:
    """Legend of marks and colours."""
    text = Text.assemble(("+ sampled, trained", SAMPLED), "   ", (". injected", INJECTED))
    return text.append("   = copied", COPIED) if has_copies else text


def _folded(rows: Iterator[_Marked]) -> Iterator[_Marked]:
    """Neighbours that sampled nothing and look the same as one row: `... (empty) x 10`."""
    for (is_empty, *_), alike in itertools.groupby(rows, lambda row: row.key):
        first, *others = alike
        if is_empty and others:
            first.left.append(f" x {len(others) + 1}", "dim")
            others = []
        yield first
        yield from others


def _marked(row: TranscriptRow, scored: Scored) -> _Marked:
    left = Text.assemble(*((piece, by) for piece, by in row.pieces))
    writers = {by for _, by in row.pieces} - {By.PROMPT, By.INJECTED}
    if not writers:
        is_prompt = not any(by is By.INJECTED for _, by in row.pieces)
        mark = Text(_GIVEN, PROMPT) if is_prompt else Text(".", INJECTED)
        return _Marked(left=left, mark=mark, is_prompt=is_prompt)
    sampled = "".join(piece for piece, by in row.pieces if by in writers)
    is_empty = bool(row.ended) and not sampled.strip()
    if is_empty:
        left.rstrip()
        left.append(" (empty)", "dim")
    by = next(iter(writers))
    mark = Text("=" if by is By.COPIED else "+", by)
    if row.ended:
        ended = Text(", ").join(_ended(line, reward, scored) for line, reward in row.ended)
        mark.append("   ").append_text(ended)
    mark.rstrip()
    return _Marked(left=left, mark=mark, is_empty=is_empty)


def _ended(line: Line, reward: float, scored: Scored) -> Text:
    """An outcome, and what the line earned or what became of its submission."""
    kind, worth = line.outcome.kind, _worth(line, reward, scored)
    style = "red" if reward < 0 or worth == "wrong" else "green" if reward or worth else ""
    is_error = kind.traits.is_error
    text = Text(f"{kind:{max(len(kind) + 1, _WORDS - max(8, len(worth)))}}", "red" * is_error)
    text.append(worth, style)
    text.rstrip()
    return text


def _worth(line: Line, reward: float, scored: Scored) -> str:
    """Reward of a line; of a submission without, the verdict."""
    if reward or line.outcome.kind.traits.is_error:
        return signed(reward, "+.2f")
    is_submitted = line.outcome.kind is OutcomeKind.SUBMITTED
    return scored.verdict.kind.word if is_submitted and scored.verdict is not None else ""


def _wrapped(text: Text, room: int) -> list[Text]:
    """Wrap a text in rows of at most `room` columns."""
    if cell_len(text.plain) <= room:
        return [text]
    ends = list(itertools.accumulate(map(len, chop_cells(text.plain, room))))
    return list(text.divide(ends[:-1]))


def _beside(left: Text, at: int, mark: Text) -> Text:
    if not mark:
        return left
    return left.append(" " * max(1, at - cell_len(left.plain))).append_text(mark)


_HOW = {
    VerdictKind.PROVED: "exact",
    VerdictKind.SUPPORTED: "by numbers",
    VerdictKind.REFUTED: "counterexample",
    VerdictKind.MALFORMED: "malformed",
}
_MAX_EVIDENCE = 40
"""Characters."""


def kind_words(kind: VerdictKind | None) -> str:
    """Words for all verdicts of a kind: `right (by numbers)`."""
    if kind is None:
        return "nothing submitted"
    return f"{kind.word} ({_HOW[kind]})" if kind in _HOW else kind.word


def verdict_words(verdict: Verdict | None) -> str:
    """Name the verdict with the evidence against a wrong answer, on one row."""
    if verdict is None or not verdict.kind.is_failed or not verdict.evidence:
        return kind_words(None if verdict is None else verdict.kind)
    evidence = shorten(one_row(verdict.evidence), _MAX_EVIDENCE)
    if verdict.kind is VerdictKind.MALFORMED:
        evidence = f"{_HOW[verdict.kind]}: {evidence}"
    return f"{verdict.kind.word} ({evidence})"
