"""Foreign text made fit for a cell, a row or a pane. Nothing of it is ever read as markup.

Pure. Knows characters and colours. Does not know trajectories.
"""

from __future__ import annotations

from rich.text import Text

from repl_sandbox.render import clean, truncate

_MAX_CHARS = 20_000
"""Most characters of a text for a pane: more than any kernel's cap, less than what a hostile file
may hold."""
DIM, DIFFERS, TITLE, KEY = "dim", "yellow", "bold", "bold"


def styled(text: str, style: str) -> Text:
    """A piece whose style applies to it alone, in the terminal's own colours.

    The style of a whole `Text` would spread to what is appended to it, and Textual would read its
    name as that of a web colour.
    """
    return Text.assemble((text, style))


def cleaned(text: str, max_chars: int = _MAX_CHARS) -> str:
    """Without control characters and tabs, its middle left out beyond `max_chars`."""
    return clean(truncate(text, max_chars)).expandtabs()


def clipped(text: str, max_chars: int) -> str:
    """The beginning of a text, on one row."""
    return clean(text[:max_chars]).replace("\n", " ").expandtabs()


def first_rows(text: str, *, max_rows: int, max_chars: int) -> list[str]:
    """The first rows of a text, each cut; a newline at the end makes no row."""
    rows = text[: max_rows * max_chars].removesuffix("\n").split("\n", max_rows)[:max_rows]
    return [clean(row[:max_chars]).expandtabs() for row in rows] if text else []


def number(value: float | None) -> str:
    """Seven columns at most."""
    if value is None:
        return "none"
    return f"{value:+.3f}" if abs(value) < 100 else f"{value:+.0e}"


def milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


def fitted(text: Text, width: int) -> Text:
    """Exactly `width` columns."""
    text.truncate(max(0, width), overflow="ellipsis", pad=True)
    return text


def stacked(rows: list[Text]) -> Text:
    """Rows as one text that is not wrapped."""
    return Text("\n", no_wrap=True, end="").join(rows)
