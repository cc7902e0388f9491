"""What a whole is made of, step by step: a few areas, named, with what is left in one of its own.

    Curve -> Stack of line outcomes, Stack of the seconds of a step

Pure. Does not know how an area is drawn, only with what fill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repl_rl.runs.metrics import Curve, columns, running_mean
from repl_rl.show.plot_style import Fill, fill_of_kind, fill_of_part, fill_of_rest
from repl_rl.types import OutcomeKind, Tone

_AT_MOST = 8
"""Areas that have a name: a reader holds no more of them apart."""
_TIME = "time/"
_FROM_BELOW = (Tone.SUBMITTED, Tone.RAN, Tone.THOUGHT, Tone.REPEATED, Tone.ERROR)
_KINDS = sorted(OutcomeKind, key=lambda kind: _FROM_BELOW.index(kind.traits.tone))


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """One part of a whole, S steps."""

    name: str
    values: tuple[float, ...]  # [S]
    fill: Fill


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
        areas += [_area(kind, shares[kind], fill_of_kind(kind)) for kind in kinds if kind in named]
        left = [shares[kind] for kind in kinds if kind not in named]
        areas += _rest("other errors" if is_error else "other", left, is_error=is_error)
    return Stack(steps=tuple(steps), areas=tuple(areas), is_share=True)


def seconds(curve: Curve, *, window: int) -> Stack:
    """Seconds of a step by what they went into, the longest part below."""
    found = {name for one in curve.steps for name in one.numbers if name.startswith(_TIME)}
    names = {name.removeprefix(_TIME): name for name in sorted(found)}
    steps, spent = _smooth(curve, names, window)
    named = sorted(_named(spent, at_least=0.0), key=lambda name: (-sum(spent[name]), name))
    areas = [_area(name, spent[name], fill_of_part(at)) for at, name in enumerate(named)]
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
    """Those that rise highest at some step, and above `at_least`."""
    peaks = {name: max(row, default=0.0) for name, row in values.items()}
    high = sorted((name for name in peaks if peaks[name] > at_least), key=lambda name: -peaks[name])
    return set(high[:_AT_MOST])


def _area(name: str, values: Sequence[float], fill: Fill) -> Area:
    return Area(name=str(name), values=tuple(values), fill=fill)


def _rest(name: str, left: Sequence[Sequence[float]], *, is_error: bool = False) -> list[Area]:
    """One area of all these, none where they are 0 throughout."""
    values = tuple(map(sum, zip(*left, strict=True)))
    return [_area(name, values, fill_of_rest(is_error=is_error))] if any(values) else []
