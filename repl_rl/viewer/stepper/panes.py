"""Both outputs of the line at hand, as recorded and as they are here, and how they differ.

    Walk -> (title, Text), (title, Text)

Pure. Does not know widgets.
"""

from __future__ import annotations

from rich.text import Text

from repl_rl.records import Line, LineOutcome
from repl_rl.transcript.format import strip_line
from repl_rl.viewer.replay.live import LiveLine
from repl_rl.viewer.show.marked import INJECTED, SAMPLED
from repl_rl.viewer.stepper.texts import DIFFERS, DIM, milliseconds, shown, styled
from repl_rl.viewer.stepper.walk import Walk


def _title(name: str, outcome: LineOutcome | None) -> str:
    """The title of a pane, in our words and numbers alone."""
    if outcome is None:
        return name
    return f"{name}  {outcome.kind}  {milliseconds(outcome.wall_ms)}"


def recorded_pane(walk: Walk) -> tuple[str, Text]:
    """Title and text of the record at the line at hand."""
    hand, beside = walk.at_hand, walk.beside
    if hand is None:
        return "recorded", styled("Nothing has run yet; n runs line 1.", DIM)
    if beside is None:
        return "recorded", styled("No line is recorded at this place.", DIM)
    value = walk.live.trajectory.value_of(beside)
    if hand.recorded is not None:
        return _title("recorded", beside.outcome), _output(walk, beside, value)
    text = styled(shown(strip_line(beside.source)) + "\n", SAMPLED)
    return _title("replaced", beside.outcome), text.append_text(_output(walk, beside, value))


def live_pane(walk: Walk) -> tuple[str, Text]:
    """Title and text of what the line at hand did here."""
    hand = walk.at_hand
    if hand is None:
        return "live", Text()
    name = _title("live", hand.outcome)
    if hand.recorded is not None:
        found = walk.difference(hand)
        name += "  same" if found is None else f"  {found.cause}"
    return name, _output(walk, hand, hand.value)


def _output(walk: Walk, line: Line | LiveLine, value: str | None) -> Text:
    """Return a line's output, and the value that it handed over.

    Rows that differ from the other side have a colour of their own.
    """
    hand, beside = walk.at_hand, walk.beside
    assert hand is not None, "there are no outputs before the first line"
    text = shown(line.outcome.observation).removesuffix("\n")
    if value is not None:
        word = f"{line.outcome.kind} "
        return Text.assemble((text, INJECTED), (word, DIM), (shown(value), SAMPLED))
    if not text:
        return styled("no output", DIM)
    if walk.difference(hand) is None or beside is None:
        return styled(text, INJECTED)
    other = beside if line is hand else hand
    return _marked(text.split("\n"), shown(other.outcome.observation).split("\n"))


def _marked(rows: list[str], others: list[str]) -> Text:
    text = Text()
    for index, row in enumerate(rows):
        is_same = index < len(others) and others[index] == row
        text.append(("\n" if index else "") + row, INJECTED if is_same else DIFFERS)
    return text


def difference_row(walk: Walk) -> Text:
    """Say how the line at hand differs from its record; empty where it does not."""
    found = None if walk.at_hand is None else walk.difference(walk.at_hand)
    if found is None:
        return Text()
    parts = (found.cause, found.why, found.headline)
    return styled(": ".join(filter(None, parts)), DIFFERS)
