"""Series that pictures of runs show, and pens that tell them apart on a screen and without colour.

    Curve ... -> Axis ..., points;  Curve -> Stack of Areas;  number of a run -> Pen

Pure. No two pens share dashes and marker, no two areas of a stack a hatch. Does not know how a
point is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from repl_rl.records import OutcomeKind, Tone
from repl_rl.runs.metrics import Curve, RunProgress, columns, running_mean

SUFFIXES = (".png", ".svg")
"""Suffixes of the files that pictures are drawn into."""
HATCHES = ("", "////", "\\\\\\\\", "..", "xxx", "---", "o", "|||", "++", "**")
"""Hatches of the areas of a stack, from below."""

_MAX_POINTS = 500
"""Most points of one line: more would make the file large, and show nothing."""
_TOKENS = (
    (1e4, 1.0, "tokens"),
    (1e7, 1e3, "tokens, thousands"),
    (math.inf, 1e6, "tokens, millions"),
)
_SECONDS = ((600, 1.0, "seconds"), (4 * 3600, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
"""(end, unit, name): values whose largest is below the end are shown in this unit."""

_AT_MOST = 8
"""Areas that have a name: a reader holds no more of them apart."""
_TIME = "time/"
_REST = "#FFFFFF"
_TONES = {
    Tone.SUBMITTED: "#6DBE9B",
    Tone.RAN: "#B9D9EF",
    Tone.THOUGHT: "#F5EFD9",
    Tone.REPEATED: "#DAB9D7",
    Tone.ERROR: "#E39A68",
}
"""From below, all light enough for a black hatch."""
_KINDS = sorted(OutcomeKind, key=lambda kind: list(_TONES).index(kind.traits.tone))
_PARTS = ("#6DBE9B", "#CFE6F6", "#E8B04E", "#F5EFD9", "#D3AFD0", "#FFFFFF", "#CF6A32")

Dashes: TypeAlias = tuple[int, tuple[float, ...] | None]
Item = TypeVar("Item")
Measure = Callable[[RunProgress], float | None]

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
MAX_PENS = len(_DASHES) * len(_MARKERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pen:
    """Colour, dashes and marker of one line."""

    colour: str
    dashes: Dashes
    marker: str


def pen(number: int) -> Pen:
    """The pen of run `number`, from 0; below `MAX_PENS` no two share dashes and marker."""
    return Pen(
        colour=_COLOURS[number % len(_COLOURS)],
        dashes=_DASHES[number % len(_DASHES)],
        marker=_MARKERS[number % len(_MARKERS)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Axis along which a run goes: steps, tokens or time."""

    label: str
    unit: float
    measure: Measure
    end: float
    """Position of the last point of all runs."""

    def at(self, place: RunProgress) -> float | None:
        """Position of a point; None where the run does not say."""
        found = self.measure(place)
        return None if found is None else found / self.unit


def axes_of(curves: Sequence[Curve]) -> list[Axis]:
    """Steps, then tokens and time where runs have measured them.

    The time is that on the wall if every run has it at every step, else that of steps alone.
    """
    steps = [step.place for curve in curves for step in curve.steps]
    places = [*steps, *(one.place for curve in curves for one in curve.evaluations)]
    found = [_scaled(lambda place: place.step, places, ((math.inf, 1.0, "step"),))]
    if any(place.tokens is not None for place in steps):
        found.append(_scaled(lambda place: place.tokens, places, _TOKENS))
    if all(place.wall_s is not None for place in steps):
        found.append(_scaled(lambda place: place.wall_s, places, _SECONDS, " since the start"))
    elif any(place.steps_s is not None for place in steps):
        found.append(_scaled(lambda place: place.steps_s, places, _SECONDS, " in steps"))
    return found


def _scaled(
    measure: Measure,
    places: Sequence[RunProgress],
    units: Sequence[tuple[float, float, str]],
    what: str = "",
) -> Axis:
    largest = max(0.0, *(measure(place) or 0.0 for place in places))
    unit, name = next((unit, name) for end, unit, name in units if largest < end)
    return Axis(label=name + what, unit=unit, measure=measure, end=largest / unit or 1.0)


def points(
    axis: Axis, places: Sequence[RunProgress], values: Sequence[float | None]
) -> tuple[list[float], list[float]]:
    """x and y of what is known of both, every n-th of very many, the last among them."""
    both = [(axis.at(place), value) for place, value in zip(places, values, strict=True)]
    known = thinned([(x, y) for x, y in both if x is not None and y is not None])
    return [x for x, _ in known], [y for _, y in known]


def thinned(items: Sequence[Item]) -> list[Item]:
    """Every n-th of very many, the last among them."""
    every = -(-len(items) // _MAX_POINTS) or 1
    return list(items[::-every][::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """One part of a whole, S steps."""

    name: str
    values: tuple[float, ...]  # [S]
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The parts of a whole, from below."""

    steps: tuple[int, ...]  # [S]
    areas: tuple[Area, ...]
    is_share: bool
    """True where they add up to 1; else they are seconds."""


def outcomes(curve: Curve, *, window: int) -> Stack:
    """Shares of the kinds of lines, errors on top; means of the last `window` steps."""
    names = {str(kind): f"line/{kind}/share" for kind in OutcomeKind}
    steps, shares = _smooth(curve, names, window)
    named = _named(shares, at_least=0.01)
    areas = list[Area]()
    for is_error in (False, True):
        kinds = [kind for kind in _KINDS if kind.traits.is_error is is_error]
        areas += [
            _area(kind, shares[kind], _TONES[kind.traits.tone]) for kind in kinds if kind in named
        ]
        left = [shares[kind] for kind in kinds if kind not in named]
        areas += _rest("other errors" if is_error else "other", left)
    return Stack(steps=tuple(steps), areas=tuple(areas), is_share=True)


def seconds(curve: Curve, *, window: int) -> Stack:
    """Seconds of a step by what they went into, the longest part below."""
    found = {name for one in curve.steps for name in one.numbers if name.startswith(_TIME)}
    names = {name.removeprefix(_TIME): name for name in sorted(found)}
    steps, spent = _smooth(curve, names, window)
    named = sorted(_named(spent, at_least=0.0), key=lambda name: (-sum(spent[name]), name))
    areas = [_area(name, spent[name], _PARTS[at % len(_PARTS)]) for at, name in enumerate(named)]
    left = [values for name, values in spent.items() if name not in named]
    return Stack(steps=tuple(steps), areas=(*areas, *_rest("other", left)), is_share=False)


def _smooth(
    curve: Curve, names: Mapping[str, str], window: int
) -> tuple[list[int], dict[str, list[float]]]:
    """Steps, and running means of the numbers `names`: name of an area -> name of a metric."""
    steps, found = columns(curve.steps, list(names.values()))
    means = ((area, running_mean(found[name], window)) for area, name in names.items())
    return steps, {name: [mean or 0.0 for mean in values] for name, values in means}


def _named(values: Mapping[str, Sequence[float]], *, at_least: float) -> set[str]:
    """Names of the series that rise highest at some step, and above `at_least`."""
    peaks = {name: max(row, default=0.0) for name, row in values.items()}
    high = sorted((name for name in peaks if peaks[name] > at_least), key=lambda name: -peaks[name])
    return set(high[:_AT_MOST])


def _area(name: str, values: Sequence[float], colour: str) -> Area:
    return Area(name=str(name), values=tuple(values), colour=colour)


def _rest(name: str, left: Sequence[Sequence[float]]) -> list[Area]:
    """One area of all these, none where they are 0 throughout."""
    values = tuple(map(sum, zip(*left, strict=True)))
    return [_area(name, values, _REST)] if any(values) else []
