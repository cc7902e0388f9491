"""What solve rates are drawn against: steps, tokens and seconds, each in a unit that can be read.

    Curve ... -> Axis ...;  Axis, Curve -> points

Pure. Does not know how a point is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from repl_rl.runs.metrics import Curve, Place

_MAX_POINTS = 500
"""Of one line: more would make the file large, and show nothing."""
_TOKENS = (
    (1e4, 1.0, "tokens"),
    (1e7, 1e3, "tokens, thousands"),
    (math.inf, 1e6, "tokens, millions"),
)
_SECONDS = ((600, 1.0, "seconds"), (4 * 3600, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
"""(end, unit, name): values whose largest is below the end are shown in this unit."""

Item = TypeVar("Item")
Measure = Callable[[Place], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Which way a run goes."""

    label: str
    unit: float
    measure: Measure
    end: float
    """Where the last point of all runs is drawn."""

    def at(self, place: Place) -> float | None:
        """Where a point is drawn; None where the run does not say."""
        found = self.measure(place)
        return None if found is None else found / self.unit


def axes_of(curves: Sequence[Curve]) -> list[Axis]:
    """Steps, then tokens and time where runs have measured them.

    The time is that on the wall if every run has it at every step, else that of steps alone.
    """
    steps = [step.place for curve in curves for step in curve.steps]
    places = [*steps, *(one.place for curve in curves for one in curve.evaluations)]
    found = [_scaled(_step, places, ((math.inf, 1.0, "step"),))]
    if any(place.tokens is not None for place in steps):
        found.append(_scaled(_tokens, places, _TOKENS))
    if all(place.wall_s is not None for place in steps):
        found.append(_scaled(_wall_s, places, _SECONDS, " since the start"))
    elif any(place.steps_s is not None for place in steps):
        found.append(_scaled(_steps_s, places, _SECONDS, " in steps"))
    return found


def _step(place: Place) -> float:
    return place.step


def _tokens(place: Place) -> float | None:
    return place.tokens


def _wall_s(place: Place) -> float | None:
    return place.wall_s


def _steps_s(place: Place) -> float | None:
    return place.steps_s


def _scaled(
    measure: Measure,
    places: Sequence[Place],
    units: Sequence[tuple[float, float, str]],
    what: str = "",
) -> Axis:
    largest = max(0.0, *(measure(place) or 0.0 for place in places))
    unit, name = next((unit, name) for end, unit, name in units if largest < end)
    return Axis(label=name + what, unit=unit, measure=measure, end=largest / unit or 1.0)


def points(
    axis: Axis, places: Sequence[Place], values: Sequence[float | None]
) -> tuple[list[float], list[float]]:
    """x and y of what is known of both, every n-th of very many, the last among them."""
    both = [(axis.at(place), value) for place, value in zip(places, values, strict=True)]
    known = thinned([(x, y) for x, y in both if x is not None and y is not None])
    return [x for x, _ in known], [y for _, y in known]


def thinned(items: Sequence[Item]) -> list[Item]:
    """Every n-th of very many, the last among them."""
    every = -(-len(items) // _MAX_POINTS) or 1
    return list(items[::-every][::-1])
