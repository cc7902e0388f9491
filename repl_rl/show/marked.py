"""A transcript and, right of each row, who wrote it and what became of the line.

    Scored, width -> `>>> 1/0                    +   runtime_error -0.10`, row by row

In colours as well as without. Where `wraps`, a text too long for its column goes on below: what
stands to the right stays in its place. Knows records. Does not know screens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from rich.text import Text

from repl_rl.show.transcript_rows import By, Decode, Row, transcript_rows
from repl_rl.terminal import signed
from repl_rl.types import Line, OutcomeKind, Scored

PROMPT, SAMPLED, INJECTED, ERROR, COPIED = "dim", "bold green", "cyan", "bold red", "dim green"
_STYLES = {
    By.PROMPT: PROMPT,
    By.SAMPLED: SAMPLED,
    By.COPIED: COPIED,
    By.INJECTED: INJECTED,
    By.ERROR: ERROR,
}
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
    """Whether a newline alone was sampled in it."""

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


def _marked(row: Row, scored: Scored) -> _Marked:
    left = Text.assemble(*((piece, _STYLES[by]) for piece, by in row.pieces))
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
    mark = Text("=" if by is By.COPIED else "+", _STYLES[by])
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
    """In rows of at most `room` columns."""
    if cell_len(text.plain) <= room:
        return [text]
    ends = list(itertools.accumulate(map(len, chop_cells(text.plain, room))))
    return list(text.divide(ends[:-1]))


def _beside(left: Text, at: int, mark: Text) -> Text:
    if not mark:
        return left
    return left.append(" " * max(1, at - cell_len(left.plain))).append_text(mark)
