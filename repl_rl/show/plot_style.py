"""What tells lines and areas of a picture apart: on a screen, on paper, to whoever sees no colour.

    number of a run -> Pen;  names of parts -> Fill ...;  style() for all that is drawn

No two pens share dashes and marker, no two fills hatch and grey. Does not know what is drawn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from repl_rl.types import OutcomeKind, Tone

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType  # matplotlib 3.11 or newer

SUFFIXES = (".png", ".svg")
"""Of the files that pictures are drawn into."""

Dashes: TypeAlias = tuple[int, tuple[float, ...] | None]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#000000", "#56B4E9", "#B8860B")
"""After Okabe and Ito (2008), whose palette is made for colour blindness."""
_DASHES: tuple[Dashes, ...] = (
    (0, None),
    (0, (6, 2)),
    (0, (1.2, 1.4)),
    (0, (7, 2, 1.2, 2)),
    (0, (3, 1.5, 1, 1.5, 1, 1.5)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES = ("", "////", "\\\\\\\\", "..", "xxx", "---", "o", "|||", "++", "**")

_TONES = {
    Tone.SUBMITTED: (0, ("#6DBE9B",)),
    Tone.RAN: (1, ("#B9D9EF",)),
    Tone.THOUGHT: (0, ("#F5EFD9",)),
    Tone.REPEATED: (5, ("#DAB9D7",)),
    Tone.ERROR: (0, ("#CF6A32", "#E39A68")),
}
"""Where the hatches of its kinds begin, and their colours in turn: all light enough for a black
hatch, and in the order of a picture dark beside light."""
_PARTS = ("#6DBE9B", "#CFE6F6", "#E8B04E", "#F5EFD9", "#D3AFD0", "#FFFFFF", "#CF6A32")
POINT = "#B0B0B0"

MAX_PENS = len(_DASHES) * len(_MARKERS)

_STYLE: dict[RcKeyType, Any] = {  # Any: as matplotlib has it
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.labelcolor": "#222222",
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.size": 10,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text that can be searched, and read aloud
    "svg.hashsalt": "repl-rl",  # names in the file are the same each time
    "text.parse_math": False,  # a run may be called $x$
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pen:
    """How one line is drawn."""

    colour: str
    dashes: Dashes
    marker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """How one area is drawn."""

    colour: str
    hatch: str


def pen(number: int) -> Pen:
    """The pen of run `number`, from 0; below `MAX_PENS` no two share dashes and marker."""
    return Pen(
        colour=_COLOURS[number % len(_COLOURS)],
        dashes=_DASHES[number % len(_DASHES)],
        marker=_MARKERS[number % len(_MARKERS)],
    )


def fill_of_kind(kind: OutcomeKind) -> Fill:
    """The same in every picture, and another for each kind; the colour says the tone."""
    alike = [one for one in OutcomeKind if one.traits.tone is kind.traits.tone]
    begin, colours = _TONES[kind.traits.tone]
    number = alike.index(kind)
    return Fill(
        colour=colours[number % len(colours)], hatch=_HATCHES[(begin + number) % len(_HATCHES)]
    )


def fill_of_part(number: int) -> Fill:
    """The fill of part `number` of a whole, from 0."""
    return Fill(colour=_PARTS[number % len(_PARTS)], hatch=_HATCHES[number % len(_HATCHES)])


def fill_of_rest(*, is_error: bool) -> Fill:
    """The fill of what is too small for a name."""
    return Fill(colour="#FFFFFF", hatch="XX" if is_error else "/")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Our style while something is drawn; settings of whoever draws have no part in it."""
    import matplotlib  # here, as pens and fills can be had without it

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield
