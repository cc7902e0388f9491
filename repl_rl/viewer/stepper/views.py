"""Text of a walk: its head, and the transcript around the line at hand.

    Walk, columns, rows -> Text

Pure. Only rows that are seen are made, so a trajectory of 10,000 lines costs no more than one of
ten. Does not know keys or widgets.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import chop_cells
from rich.text import Text

from repl_rl.records import Scored
from repl_rl.transcript.format import strip_line
from repl_rl.viewer.replay.live import LiveLine
from repl_rl.viewer.show.marked import ERROR, INJECTED, PROMPT, SAMPLED, kind_words
from repl_rl.viewer.stepper.texts import (
    DIFFERS,
    DIM,
    TITLE,
    cleaned,
    clipped,
    first_rows,
    fitted,
    number,
    stacked,
    styled,
)
from repl_rl.viewer.stepper.walk import Walk, opens_a_block

_OUTPUT_ROWS = 3
"""Rows of an output in the transcript; the panes have it whole."""
_SOURCE_ROWS = 3
_AT_HAND_ROWS = 6
"""Rows of the source of the line at hand, which is wrapped; a longer source is cut."""
_KIND, _NUMBER, _BRACKETED = 13, 7, 9
_MAX_PROMPT = 16
NARROW = 70
"""Columns below which outputs stand one above the other, and advantages are left out."""


def head(walk: Walk, *, position: str, width: int) -> Text:
    """Two rows: the trajectory with the current line, and the problem."""
    item, live = walk.item, walk.live
    sibling = item.siblings.index(item.id) + 1 if item.id in item.siblings else 0
    first = Text.assemble(
        (clipped(item.id, 40), TITLE),
        f"   line {live.at}{'*' if live.is_branch else f'/{len(walk.recorded)}'}",
        f"   sibling {sibling} of {len(item.siblings)}",
    )
    first = fitted(first, width - len(position))
    first.append(position, DIM)
    statement = " ".join(cleaned(item.ledger.scored.problem.statement, 1000).split())
    return stacked([first, fitted(Text(statement), width)])


def transcript(walk: Walk, *, width: int, height: int) -> Text:
    """A row of names, then the lines around the one at hand: what ran, and what is ahead."""
    height = max(1, height - 1)
    num_ahead = 0 if walk.live.is_branch else len(walk.recorded) - walk.live.at
    room = height - min(height // 3, num_ahead)
    rows: list[Text] = []
    for index in range(walk.live.at - 1, -1, -1):
        # Where a line does not fit whole, the panes still have its output.
        rows = [*_block(walk, index, width)[:room], *rows]
        if len(rows) >= room:
            break
    else:
        rows = [*_prompt_rows(walk, width), *rows]
    rows = rows[-room:]
    stop = walk.live.at + min(num_ahead, height - len(rows))
    rows += [_ahead(walk, index, width) for index in range(walk.live.at, stop)]
    return stacked([_names(walk, width), *rows])


def _names(walk: Walk, width: int) -> Text:
    """Return a row with the reward earned in all, and the names of the columns."""
    scored = walk.item.ledger.scored
    earned = f"{judged(scored, briefly=walk.live.is_branch)} {number(scored.reward.total)}"
    left = Text.assemble((earned, TITLE))
    if walk.live.is_branch:
        left.append("   here ", DIM)
        left.append(_here(walk), TITLE)
    cells = [f"   {'outcome':<{_KIND}}", f"{'reward':>{_reward_columns(walk)}}"]
    cells += [f"{'here':>{_NUMBER}}"] if walk.live.is_branch else []
    cells += [f"{'advant.':>{_NUMBER}}"] if width >= NARROW else []
    return _row(left, styled(" ".join(cells), DIM), width)


def judged(scored: Scored, *, briefly: bool = False) -> str:
    """Right or wrong, and how that is known where there is room for it."""
    if scored.verdict is None:
        return "no answer"
    return scored.verdict.kind.word if briefly else kind_words(scored.verdict.kind)


def _here(walk: Walk) -> str:
    if walk.worth is None:
        return "not scored"
    if walk.worth.scored is None:
        return f"{number(walk.worth.total)} so far"
    return f"{judged(walk.worth.scored, briefly=True)} {number(walk.worth.total)}"


def _row(left: Text, right: Text, width: int) -> Text:
    return fitted(left, width - right.cell_len).append_text(right)


def _gutter(walk: Walk, index: int) -> Text:
    """The number of a line, in reverse at the one at hand, `*` after one that is not recorded."""
    digits = len(str(max(len(walk.recorded), walk.live.at)))
    lines = walk.live.lines
    is_own = index < len(lines) and lines[index].recorded is None
    style = "reverse bold" if index == walk.live.at - 1 else DIM
    text = styled(f" {index + 1:>{digits}}{'*' if is_own else ' '}", style)
    return Text.assemble(text, " ")


def _block(walk: Walk, index: int, width: int) -> list[Text]:
    """A line that ran here, and the first rows of what it printed."""
    line = walk.live.lines[index]
    gutter = _gutter(walk, index)
    indent = " " * gutter.cell_len
    style = ERROR if line.outcome.kind.traits.is_error else SAMPLED
    prompt = _prompt_before(walk, index)
    start, columns = gutter.append(f"{prompt} ", PROMPT), _columns(walk, index, width)
    room = width - start.cell_len
    sources = first_rows(strip_line(line.source), max_rows=_SOURCE_ROWS, max_chars=width)
    if line is walk.at_hand:
        sources = _wrapped(line, room=room, first_room=room - columns.cell_len)
    first = start.copy().append(sources[0] if sources else "", style)
    rows = [_row(first, columns, width)]
    more = (" " * start.cell_len + source for source in sources[1:])
    rows += [fitted(styled(row, style), width) for row in more]
    answer = [Text(indent).append_text(row) for row in _answer(line, width)]
    surprise = walk.surprise(line)
    said = "" if surprise is None else f"  surprise {surprise:.2f}"
    return rows + [
        _row(row, styled("" if number else said, DIM), width) for number, row in enumerate(answer)
    ]


def _wrapped(line: LiveLine, *, room: int, first_room: int) -> list[str]:
    """Return the source in rows of `room` columns, the first of them shorter."""
    max_chars = _AT_HAND_ROWS * max(1, room)
    source = first_rows(strip_line(line.source), max_rows=_AT_HAND_ROWS, max_chars=max_chars)
    rows: list[str] = []
    for text in source:
        columns = room if rows else first_room
        piece = next(iter(chop_cells(text, columns)), "") if columns > 1 else ""
        rows += [piece, *chop_cells(text[len(piece) :], max(2, room))]
    last = "".join(rows[_AT_HAND_ROWS - 1 :])
    return [*rows[: _AT_HAND_ROWS - 1], last] if last else rows


def _answer(line: LiveLine, width: int) -> Iterator[Text]:
    """The output of a line; a long one as its first row and its last, which names an error."""
    output = line.outcome.observation.removesuffix("\n")
    num_rows = output.count("\n") + 1
    first = first_rows(output, max_rows=_OUTPUT_ROWS, max_chars=width)
    if num_rows <= _OUTPUT_ROWS:
        yield from (styled(row, INJECTED) for row in first)
        return
    last = output.rpartition("\n")[2]
    yield styled(first[0], INJECTED)
    yield styled(f"... {num_rows - 2} more rows ...", DIM)
    yield styled("".join(first_rows(last, max_rows=1, max_chars=width)), INJECTED)


def _ahead(walk: Walk, index: int, width: int) -> Text:
    """A recorded line that has not run here."""
    before = walk.recorded[index - 1] if index else None
    fmt = walk.scene.fmt
    prompt = fmt.secondary if opens_a_block(before) else fmt.primary.replace("{n}", " ")
    source = first_rows(strip_line(walk.recorded[index].source), max_rows=1, max_chars=width)
    left = Text.assemble(_gutter(walk, index), (f"{prompt} {''.join(source)}", DIM))
    right = _columns(walk, index, width)
    right.stylize(DIM)
    return _row(left, right, width)


def _columns(walk: Walk, index: int, width: int) -> Text:
    """Outcome and rewards of a line: the recorded reward and, on a branch, the one here."""
    live = walk.live.lines[index] if index < walk.live.at else None
    recorded = walk.item.ledger.entries[index] if index < len(walk.recorded) else None
    line = live if live is not None else walk.recorded[index]
    is_other = live is not None and walk.difference(live) is not None
    kind = line.outcome.kind
    text = Text.assemble((" ! " if is_other else "   ", DIFFERS))
    text.append(f"{kind:<{_KIND}}", DIFFERS if is_other else "red" if kind.traits.is_error else "")
    is_own = live is not None and live.recorded is None
    reward = None if recorded is None else recorded.reward
    text.append_text(_signed(reward, _reward_columns(walk), is_replaced=is_own))
    if walk.live.is_branch:
        rewards = () if walk.worth is None else walk.worth.line_rewards
        text.append_text(_signed(rewards[index] if index < len(rewards) else None))
    if width >= NARROW:
        # A line of a branch was in no update.
        text.append_text(_signed(None if recorded is None or is_own else recorded.advantage))
    return text


def _reward_columns(walk: Walk) -> int:
    return _BRACKETED if walk.live.is_branch else _NUMBER


def _signed(value: float | None, columns: int = _NUMBER, *, is_replaced: bool = False) -> Text:
    """Return a number, in brackets if it belongs to a line that another has replaced."""
    cell = "" if value is None else number(value) if value else "0"
    if is_replaced and cell:
        return styled(f" {f'({cell})':>{columns}}", DIM)
    style = "red" if (value or 0) < 0 else "green" if value else DIM
    return styled(f" {cell:>{columns}}", style)


def _prompt_before(walk: Walk, index: int) -> str:
    before = walk.live.lines[index - 1].text_after if index else walk.live.trajectory.prompt_text
    return clipped(before.rpartition("\n")[2], _MAX_PROMPT)


def _prompt_rows(walk: Walk, width: int) -> list[Text]:
    """All of the prompt but its last row, on which the first line stands."""
    rows = cleaned(walk.live.trajectory.prompt_text).split("\n")[:-1]
    return [fitted(styled("  " + row[:width], PROMPT), width) for row in rows]
