"""Learning curves of one or several runs, as pictures.

    name -> Curve of each run -> Axis ..., Stack ... -> Figure -> bytes of a .png or an .svg

The same numbers give the same bytes. No two runs share dashes and marker, no two areas of a panel a
hatch: a picture can be read without colour. Does not know who asks.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MaxNLocator, PercentFormatter

from repl_rl.base.disk import explained
from repl_rl.base.terminal import one_row
from repl_rl.records import OutcomeKind, Tone
from repl_rl.runs.folder import CURVES
from repl_rl.runs.metrics import Curve, Point, read_curve, running_mean

Item = TypeVar("Item")

_WIDTH, _ROW, _DPI = 10.0, 3.6, 160
"""Inches, inches of a row of panels, dots an inch: texts can be read where it is 800 dots wide."""
_NAME_CHARS, _LEGEND_CHARS = 60, 110
_STEPS_A_WINDOW, _LARGEST_WINDOW = 10, 50
_MAX_POINTS = 500
"""Most points of one line: more would make the file large, and show nothing."""
_MARKERS_A_LINE = 7
_MARGIN = 0.03
"""Share of the width of a panel, on both sides of what is drawn."""
_ASIDE = 0.004
"""Share of the width between evaluations of two runs at the same step."""
_STYLE: dict[str, Any] = {  # Any: as matplotlib has it
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "grid.color": "#DDDDDD",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text that can be searched, and read aloud
    "svg.hashsalt": "repl-rl",  # names in the file are the same each time
    "text.parse_math": False,  # a run may be called $x$
}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#000000", "#56B4E9", "#B8860B")
"""After Okabe and Ito (2008), whose palette is made for colour blindness."""
_DASHES = ("-", (0, (6, 2)), (0, (1.2, 1.4)), (0, (7, 2, 1.2, 2)), (0, (3, 1.5, 1, 1.5, 1, 1.5)))
_MARKERS = "os^DvPX"
MAX_CURVES = len(_DASHES) * len(_MARKERS)
"""Most runs of one picture: so often a dash and a marker come together once."""
PENS: list[dict[str, Any]] = [  # Any: as matplotlib has it
    {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "mec": "white",
        "mew": 0.5,
    }
    for number in range(MAX_CURVES)
]
"""Looks of the lines of runs."""
_HATCHES = ("", "////", "\\\\\\\\", "..", "xxx", "---", "o", "|||", "++", "**")
"""Hatches of the areas of a stack, from below."""
_MAX_NAMED = 8
"""Outcomes that have a name: a reader holds no more of them apart."""
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


def save_curve(run: Path) -> list[Path]:
    """Write `RUN/curve.png` and `RUN/curve.svg`; nothing for a run that took no step.

    Raises ConfigError where there is no run, and StorageError where the disk refuses.
    """
    curve = read_curve(run)
    if not curve.steps:
        return []
    (name,) = names_of([run])
    return save({name: curve}, [run / name for name in CURVES])


def save(curves: Mapping[str, Curve], paths: Sequence[Path]) -> list[Path]:
    """Draw the curves of runs, by their names, into .png and .svg files; returns `paths`.

    Raises StorageError where the disk refuses.
    """
    for path in paths:
        picture = saved_bytes(lambda: figure(curves), path.suffix.lower())
        with explained(path):
            path.write_bytes(picture)
    return list(paths)


def saved_bytes(draw: Callable[[], Figure], suffix: str) -> bytes:
    """A figure as a file with this suffix: the same bytes for the same figure."""
    without_date = {"Date": None, "Creator": None} if suffix == ".svg" else {"Software": None}
    with style(), warnings.catch_warnings(), io.BytesIO() as file:
        # A run's name may have letters that its font lacks.
        warnings.filterwarnings("ignore", message="Glyph ")
        draw().savefig(file, format=suffix[1:], metadata=without_date)
        return file.getvalue()


def style() -> AbstractContextManager[None]:
    """Our style while something is drawn; settings of whoever draws have no part in it."""
    return matplotlib.style.context(["default", _STYLE])


def names_of(runs: Sequence[Path]) -> list[str]:
    """A name for each of these folders, the end of its path: as short as tells them apart."""
    paths = [run.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        names = [_short(one_row("/".join(parts[-depth:]))) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {name}" for number, name in enumerate(names, 1)]


def _short(name: str) -> str:
    if name.startswith("_"):
        name = f"./{name}"  # legends leave out what begins so
    return name if len(name) <= _NAME_CHARS else f"...{name[3 - _NAME_CHARS :]}"


# Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Axis along which runs go: steps, tokens or time."""

    key: str
    """Field of `Point`."""
    label: str
    unit: float
    end: float
    """Position of the last point of all runs."""

    def at(self, point: Point) -> float | None:
        """Position of a point; None where the run does not say."""
        value = getattr(point, self.key)
        return None if value is None else value / self.unit


def axes_of(curves: Sequence[Curve]) -> list[Axis]:
    """Steps, tokens where a run has counted them, and time where all runs have measured it."""
    steps = [step for curve in curves for step in curve.steps]
    points = [*steps, *(one for curve in curves for one in curve.evaluations)]
    tokens = max((one.tokens or 0.0 for one in points), default=0.0)
    seconds = max((one.wall_s or 0.0 for one in points), default=0.0)
    axes = [_axis("step", "step", 1, max((one.step for one in points), default=0))]
    if any(one.tokens is not None for one in steps):
        unit = 1e6 if tokens >= 1e7 else 1e3 if tokens >= 1e4 else 1
        name = {1: "tokens", 1e3: "tokens, thousands", 1e6: "tokens, millions"}[unit]
        axes.append(_axis("tokens", name, unit, tokens))
    if all(one.wall_s is not None for one in steps):
        unit = 3600 if seconds >= 4 * 3600 else 60 if seconds >= 600 else 1
        name = {1: "seconds", 60: "minutes", 3600: "hours"}[unit]
        axes.append(_axis("wall_s", f"{name} since the start", unit, seconds))
    return axes


def _axis(key: str, label: str, unit: float, largest: float) -> Axis:
    return Axis(key=key, label=label, unit=unit, end=largest / unit or 1.0)


def training_rates(axis: Axis, curve: Curve, *, window: int = 1) -> tuple[list[float], list[float]]:
    """x and y of the means of the last `window` training rates, at the steps that have both."""
    rates = running_mean([step.numbers.get("solve_rate") for step in curve.steps], window)
    both = [(axis.at(step), rate) for step, rate in zip(curve.steps, rates, strict=True)]
    known = thinned([(x, y) for x, y in both if x is not None and y is not None])
    return [x for x, _ in known], [y for _, y in known]


def thinned(items: Sequence[Item]) -> list[Item]:
    """Every n-th of very many, the last among them."""
    every = math.ceil(len(items) / _MAX_POINTS) or 1
    return list(items[::-every][::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The parts of a whole, from below, at S steps."""

    steps: list[int]  # [S]
    areas: dict[str, list[float]]  # of [S]
    colours: list[str]
    is_share: bool
    """True where the areas are parts of 1; else they are seconds."""


def outcomes(curve: Curve, *, window: int) -> Stack:
    """Shares of the kinds of lines, errors on top; means of the last `window` steps."""
    names = {str(kind): f"line/{kind}/share" for kind in OutcomeKind}
    steps, shares = _smooth(curve, names, window)
    peaks = {name: peak for name in names if (peak := max(shares[name], default=0.0)) > 0.01}
    named = sorted(peaks, key=lambda name: -peaks[name])[:_MAX_NAMED]
    areas = dict[str, list[float]]()
    for is_error, rest in ((False, "other"), (True, "other errors")):
        kinds = [str(kind) for kind in _KINDS if kind.traits.is_error is is_error]
        areas |= {kind: shares[kind] for kind in kinds if kind in named}
        left = [shares[kind] for kind in kinds if kind not in named]
        areas[rest] = [sum(values) for values in zip(*left, strict=True)]
    tones = {str(kind): _TONES[kind.traits.tone] for kind in _KINDS}
    areas = {name: values for name, values in areas.items() if any(values)}
    colours = [tones.get(name, _REST) for name in areas]
    return Stack(steps=steps, areas=areas, colours=colours, is_share=True)


def seconds(curve: Curve, *, window: int) -> Stack:
    """Seconds of a step by what they went into, the longest part below."""
    columns = {name for step in curve.steps for name in step.numbers if name.startswith("time/")}
    names = {column.removeprefix("time/"): column for column in sorted(columns)}
    steps, spent = _smooth(curve, names, window)
    areas = {name: spent[name] for name in sorted(spent, key=lambda name: -sum(spent[name]))}
    areas = {name: values for name, values in areas.items() if any(values)}
    colours = [_PARTS[number % len(_PARTS)] for number in range(len(areas))]
    return Stack(steps=steps, areas=areas, colours=colours, is_share=False)


def _smooth(
    curve: Curve, names: Mapping[str, str], window: int
) -> tuple[list[int], dict[str, list[float]]]:
    """The steps with any of these numbers, and running means of each: area -> metric."""
    steps = [one for one in curve.steps if not one.numbers.keys().isdisjoint(names.values())]
    means = {
        area: running_mean([step.numbers.get(name, 0.0) for step in steps], window)
        for area, name in names.items()
    }
    numbers = [one.step for one in steps]
    return numbers, {area: [mean or 0.0 for mean in values] for area, values in means.items()}


def window_of(curves: Sequence[Curve]) -> int:
    """Number of steps in a running mean: a tenth of the longest run's, 50 at most."""
    longest = max(len(curve.steps) for curve in curves)
    return max(1, min(_LARGEST_WINDOW, longest // _STEPS_A_WINDOW))


# Figures


def figure(curves: Mapping[str, Curve]) -> Figure:
    """One run by all that it measured, or several by their solve rates."""
    if len(curves) > 1:
        return _several(curves)
    ((name, curve),) = curves.items()
    return _one(name, curve)


def _one(name: str, curve: Curve) -> Figure:
    window = window_of([curve])
    mean = _mean_words(window)
    stacks = {
        ("Outcomes of lines", f"share{mean}"): outcomes(curve, window=window),
        ("Time of a step", f"seconds{mean}"): seconds(curve, window=window),
    }
    # An area is drawn between two steps.
    drawable = {key: one for key, one in stacks.items() if one.areas and len(one.steps) > 1}
    drawn, rows = _blank(1 + bool(drawable))
    for panel, axis in _rate_panels(rows, 0, "Solve rate", [curve]):
        if window > 1:
            dots = training_rates(axis, curve)
            panel.plot(*dots, ".", color="#B0B0B0", ms=4, label="training, one step")
        # A dot for each step where nothing else says where the steps are.
        marker = "" if window > 1 else "."
        line = {**PENS[0], "marker": marker, "lw": 2, "label": f"training{mean}"}
        panel.plot(*training_rates(axis, curve, window=window), **line)
        _draw_evaluations(panel, axis, curve, **PENS[1], label=_held_out_label(curve))
    # The evaluations were drawn last, on top, and matter most.
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(
        handles[::-1], labels[::-1], loc="outside upper left", ncols=3, alignment="left",
        title=name, title_fontproperties={"size": 13, "weight": "bold"},
    )  # fmt: skip
    cells = rows[-1].subgridspec(1, max(1, len(drawable)))
    for number, ((title, label), stack) in enumerate(drawable.items()):
        _draw_stack(drawn.add_subplot(cells[0, number], title=title, ylabel=label), stack)
    return drawn


def _mean_words(window: int) -> str:
    return f", mean of the last {window} steps" if window > 1 else ""


def _held_out_label(curve: Curve) -> str:
    ungraded = max((one.ungraded for one in curve.evaluations), default=0)
    left = f", up to {ungraded} not graded" if ungraded else ""
    return f"held-out problems, 95 % interval{left}"


def _several(curves: Mapping[str, Curve]) -> Figure:
    runs = list(curves.values())
    window, is_measured = window_of(runs), any(curve.evaluations for curve in runs)
    drawn, rows = _blank(1 + is_measured)
    if is_measured:
        for panel, axis in _rate_panels(rows, 0, "Held-out solve rate, 95 % intervals", runs):
            for number, curve in enumerate(runs):
                aside = _ASIDE * (number - (len(runs) - 1) / 2)
                _draw_evaluations(panel, axis, curve, **PENS[number], aside=aside)
    title = f"Training solve rate{_mean_words(window)}"
    for panel, axis in _rate_panels(rows, int(is_measured), title, runs):
        for number, (name, curve) in enumerate(curves.items()):
            xs, ys = training_rates(axis, curve, window=window)
            # A few markers, which stand apart from those of the others.
            every = max(1, len(xs) // _MARKERS_A_LINE)
            apart = (every * number // len(runs), every)
            panel.plot(xs, ys, lw=1.6, ms=5.5, **PENS[number], markevery=apart, label=name)
    num_columns = max(1, _LEGEND_CHARS // (12 + max(map(len, curves))))
    drawn.legend(
        *drawn.axes[-1].get_legend_handles_labels(), loc="outside upper left", ncols=num_columns,
        handlelength=4.5,
    )  # fmt: skip
    return drawn


def _blank(num_rows: int) -> tuple[Figure, GridSpec]:
    drawn = Figure(figsize=(_WIDTH, num_rows * _ROW), dpi=_DPI, layout="constrained")
    return drawn, drawn.add_gridspec(num_rows, 1)


def _rate_panels(
    rows: GridSpec, row: int, title: str, curves: Sequence[Curve]
) -> list[tuple[Axes, Axis]]:
    """A panel of rates for each axis, the first as wide as two of the others.

    All have one scale: pictures can be compared.
    """
    axes = axes_of(curves)
    cells = rows[row].subgridspec(1, len(axes), width_ratios=[2, *[1] * (len(axes) - 1)])
    panels = list(cells.subplots(sharey=True, squeeze=False)[0])
    panels[0].set(title=title, ylim=(0, 1))
    panels[0].yaxis.set_major_formatter(PercentFormatter(1))
    for panel, axis in zip(panels, axes, strict=True):
        is_first = panel is panels[0]
        panel.set(xlabel=axis.label, xlim=(-_MARGIN * axis.end, (1 + _MARGIN) * axis.end))
        panel.xaxis.set_major_locator(MaxNLocator(6 if is_first else 4, integer=is_first))
    return list(zip(panels, axes, strict=True))


def _draw_evaluations(
    panel: Axes,
    axis: Axis,
    curve: Curve,
    *,
    aside: float = 0.0,
    **line: Any,  # as matplotlib has it
) -> None:
    """Draw held-out rates, this share of the axis to the right of their steps."""
    measured = [(x, one) for one in curve.evaluations if (x := axis.at(one)) is not None]
    if not measured:
        return
    xs = [x + aside * axis.end for x, _ in measured]
    rates = np.array([one.rate for _, one in measured])
    lows, highs = np.transpose([one.interval or (one.rate, one.rate) for _, one in measured])
    # Lists: matplotlib 3.11 asks `math.isfinite` of an array of one number, of which numpy warns.
    yerr = [list(rates - lows), list(highs - rates)]
    panel.errorbar(xs, rates, yerr, lw=1.4, ms=6, elinewidth=1.3, capsize=3, zorder=4, **line)


def _draw_stack(panel: Axes, stack: Stack) -> None:
    """Draw areas on top of each other, named to their right in the same order."""
    panel.stackplot(
        thinned(stack.steps),
        [thinned(values) for values in stack.areas.values()],
        labels=list(stack.areas),
        colors=stack.colours,
        hatch=_HATCHES[: len(stack.areas)],
        edgecolor="#222222",
        linewidth=0.5,
    )
    panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), handleheight=1.3, reverse=True)
    panel.set_xlabel("step")
    panel.margins(x=0)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.set_ylim(bottom=0)
    if stack.is_share:
        panel.set_ylim(top=1)
        panel.yaxis.set_major_formatter(PercentFormatter(1))
