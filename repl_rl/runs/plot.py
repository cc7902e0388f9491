"""Learning curves of one or several runs, as pictures.

    name -> Curve of each run -> Figure -> bytes of a .png or an .svg

The same numbers give the same bytes. `plot_series` says what is shown. Does not know who asks.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.gridspec import GridSpec, SubplotSpec
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.transforms import offset_copy

from repl_rl.base.disk import explained
from repl_rl.base.terminal import one_row
from repl_rl.runs.metrics import Curve, read_curve, running_mean
from repl_rl.runs.plot_series import (
    HATCHES,
    SUFFIXES,
    Axis,
    Pen,
    Stack,
    axes_of,
    outcomes,
    pen,
    points,
    seconds,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType  # matplotlib 3.11 or newer

_WIDTH, _ROW, _DPI = 10.0, 3.6, 160
"""Inches, inches of a row of panels, dots an inch: texts can be read where it is 800 dots wide."""
_NAME_CHARS = 60
_STEPS_A_WINDOW, _LARGEST_WINDOW = 10, 50
_POINT = "#B0B0B0"
_MARKERS_A_LINE = 7
_ASIDE_PT = 3.0
"""Distance between evaluations of several runs at the same step."""
_LEGEND_CHARS = 110
_MARGIN = 0.03
"""Share of the width of a panel, on both sides of what is drawn."""
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


def save_curve(run: Path) -> list[Path]:
    """Write `RUN/curve.png` and `RUN/curve.svg`; nothing for a run that took no step.

    Raises ConfigError where there is no run, and StorageError where the disk refuses.
    """
    curve = read_curve(run)
    if not curve.steps:
        return []
    (name,) = names_of([run])
    return save({name: curve}, [run / f"curve{suffix}" for suffix in SUFFIXES])


def save(curves: Mapping[str, Curve], paths: Sequence[Path]) -> list[Path]:
    """Draw the curves of runs, by their names, into files of these `SUFFIXES`; returns `paths`.

    Raises StorageError where the disk refuses.
    """
    for path in paths:
        drawn = picture(curves, path.suffix.lower())
        with explained(path):
            path.write_bytes(drawn)
    return list(paths)


def picture(curves: Mapping[str, Curve], suffix: str) -> bytes:
    """Draw the curves as the bytes of a file with this suffix."""
    return saved_bytes(lambda: figure(curves), suffix)


def saved_bytes(draw: Callable[[], Figure], suffix: str) -> bytes:
    """A figure as a file with this suffix: the same bytes for the same figure."""
    without_date = {"Date": None, "Creator": None} if suffix == ".svg" else {"Software": None}
    with style(), warnings.catch_warnings(), io.BytesIO() as file:
        # A run's name may have letters that its font lacks.
        warnings.filterwarnings("ignore", message="Glyph ")
        draw().savefig(file, format=suffix[1:], metadata=without_date)
        return file.getvalue()


def names_of(runs: Sequence[Path]) -> list[str]:
    """A name for each of these folders, the end of its path: as short as tells them apart."""
    paths = [run.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        names = [_short(one_row("/".join(parts[-depth:]))) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {name}" for number, name in enumerate(names, 1)]


def _short(name: str) -> str:
    return name if len(name) <= _NAME_CHARS else f"...{name[3 - _NAME_CHARS :]}"


def figure(curves: Mapping[str, Curve]) -> Figure:
    """One run by all that it measured, or several by their solve rates."""
    if len(curves) > 1:
        return _several(curves)
    ((name, curve),) = curves.items()
    return _one(name, curve)


def window_of(curves: Sequence[Curve]) -> int:
    """Number of steps in a running mean: a tenth of the longest run's, 50 at most."""
    longest = max(len(curve.steps) for curve in curves)
    return max(1, min(_LARGEST_WINDOW, longest // _STEPS_A_WINDOW))


def _one(name: str, curve: Curve) -> Figure:
    window, axes = window_of([curve]), axes_of([curve])
    measured = {
        "Outcomes of lines": outcomes(curve, window=window),
        "Time of a step": seconds(curve, window=window),
    }
    # An area is drawn between two steps.
    stacks = {title: one for title, one in measured.items() if one.areas and len(one.steps) > 1}
    drawn, rows = _blank(1 + bool(stacks))
    for at, axis in _places(rows, 0, axes):
        panel = drawn.add_subplot(at)
        _rates_of_one(panel, axis, curve, window)
        _as_rates(panel, axis, title="Solve rate" if axis is axes[0] else "")
    _legend_of_one(drawn, name)
    cells = rows[-1].subgridspec(1, max(1, len(stacks)))
    for number, (title, stack) in enumerate(stacks.items()):
        _stacked(drawn.add_subplot(cells[0, number]), title, stack, window)
    return drawn


def _several(curves: Mapping[str, Curve]) -> Figure:
    found = list(curves.values())
    window, axes = window_of(found), axes_of(found)
    of = f", mean of the last {window} steps" if window > 1 else ""
    titles = [f"Training solve rate{of}"]
    if any(curve.evaluations for curve in found):
        titles.insert(0, "Held-out solve rate, 95 % intervals")
    drawn, rows = _blank(len(titles))
    for row, title in enumerate(titles):
        for at, axis in _places(rows, row, axes):
            panel = drawn.add_subplot(at)
            if title is titles[-1]:
                _training_of_each(panel, axis, found, window)
            else:
                _held_out_of_each(panel, axis, found)
            _as_rates(panel, axis, title=title if axis is axes[0] else "")
    _legend_of_each(drawn, list(curves))
    return drawn


def _blank(num_rows: int) -> tuple[Figure, GridSpec]:
    drawn = Figure(figsize=(_WIDTH, num_rows * _ROW), dpi=_DPI, layout="constrained")
    return drawn, drawn.add_gridspec(num_rows, 1)


def _places(rows: GridSpec, row: int, axes: Sequence[Axis]) -> Iterator[tuple[SubplotSpec, Axis]]:
    """A place in the row for each axis, the first as wide as two of the others."""
    cells = rows[row].subgridspec(1, len(axes), width_ratios=[2, *[1] * (len(axes) - 1)])
    for number, axis in enumerate(axes):
        yield cells[0, number], axis


def _rates_of_one(panel: Axes, axis: Axis, curve: Curve, window: int) -> None:
    """The training's rate by step and in the mean, and the held-out one with its intervals."""
    places = [step.place for step in curve.steps]
    rates = [step.numbers.get("solve_rate") for step in curve.steps]
    if window > 1:
        panel.plot(
            *points(axis, places, rates), ".", color=_POINT, ms=4, label="training, one step"
        )
    xs, ys = points(axis, places, running_mean(rates, window))
    label = f"training, mean of the last {window} steps" if window > 1 else "training"
    # A dot for each step where nothing else says where the steps are.
    marker = "" if window > 1 else "."
    panel.plot(xs, ys, color=pen(0).colour, lw=2, marker=marker, ms=8, label=label)
    _evaluations(panel, axis, curve, pen(1), label=_held_out_label(curve))


def _held_out_label(curve: Curve) -> str:
    ungraded = max((one.ungraded for one in curve.evaluations), default=0)
    left = f", up to {ungraded} not graded" if ungraded else ""
    return f"held-out problems, 95 % interval{left}"


def _held_out_of_each(panel: Axes, axis: Axis, curves: Sequence[Curve]) -> None:
    """The held-out rates of runs, side by side where they have one step."""
    for number, curve in enumerate(curves):
        aside_pt = _ASIDE_PT * (number - (len(curves) - 1) / 2)
        _evaluations(panel, axis, curve, pen(number), aside_pt=aside_pt)


def _evaluations(
    panel: Axes, axis: Axis, curve: Curve, by: Pen, *, label: str = "", aside_pt: float = 0.0
) -> None:
    """Drawn `aside_pt` to the right of their places."""
    shown = [(x, one) for one in curve.evaluations if (x := axis.at(one.place)) is not None]
    if not shown:
        return
    ends = [(one.rate, one.interval or (one.rate, one.rate)) for _, one in shown]
    panel.errorbar(
        [x for x, _ in shown],
        [rate for rate, _ in ends],
        yerr=[[rate - low for rate, (low, _) in ends], [high - rate for rate, (_, high) in ends]],
        lw=1.4,
        ms=6,
        mew=0.6,
        **_line(by),
        elinewidth=1.3,
        capsize=3,
        zorder=4,
        label=label,
        transform=offset_copy(
            panel.transData, panel.get_figure(root=True), x=aside_pt, units="points"
        ),
    )


def _line(by: Pen) -> dict[str, Any]:  # Any: as matplotlib has it
    return {"color": by.colour, "ls": by.dashes, "marker": by.marker, "mec": "white"}


def _training_of_each(panel: Axes, axis: Axis, curves: Sequence[Curve], window: int) -> None:
    """Running means, each with a few markers that stand apart from those of the others."""
    for number, curve in enumerate(curves):
        by, places = pen(number), [step.place for step in curve.steps]
        rates = [step.numbers.get("solve_rate") for step in curve.steps]
        xs, ys = points(axis, places, running_mean(rates, window))
        every = max(1, len(xs) // _MARKERS_A_LINE)
        panel.plot(
            xs,
            ys,
            lw=1.6,
            ms=5.5,
            mew=0.5,
            **_line(by),
            markevery=(every * number // len(curves), every),
        )


def _as_rates(panel: Axes, axis: Axis, *, title: str) -> None:
    """Finish a panel of rates; one without a title stands to the right of one that has it.

    All have one scale: pictures can be compared.
    """
    panel.set_title(title)
    panel.set_ylim(0, 1)
    panel.set_xlim(-_MARGIN * axis.end, (1 + _MARGIN) * axis.end)
    panel.set_xlabel(axis.label)
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    panel.tick_params(labelleft=bool(title))
    panel.xaxis.set_major_locator(MaxNLocator(6 if title else 4, integer=bool(title)))


def _stacked(panel: Axes, title: str, stack: Stack, window: int) -> None:
    """Areas on top of each other, named to their right in the same order."""
    areas = panel.stackplot(
        thinned(stack.steps),
        [thinned(area.values) for area in stack.areas],
        colors=[area.colour for area in stack.areas],
        hatch=HATCHES[: len(stack.areas)],
        edgecolor="#222222",
        linewidth=0.5,
    )
    names = [area.name for area in stack.areas]
    legend = panel.legend(
        areas[::-1], ["part"] * len(names), loc="center left", bbox_to_anchor=(1, 0.5),
        handleheight=1.3,
    )  # fmt: skip
    _name(legend, names[::-1])
    of = f", mean of the last {window} steps" if window > 1 else ""
    panel.set_title(title)
    panel.set_xlabel("step")
    panel.set_ylabel(("share" if stack.is_share else "seconds") + of)
    panel.margins(x=0)
    panel.set_ylim(bottom=0)
    if stack.is_share:
        panel.set_ylim(top=1)
        panel.yaxis.set_major_formatter(PercentFormatter(1))
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _legend_of_one(drawn: Figure, name: str) -> None:
    """Above the panels: what is drawn, below the name of the run."""
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    # The evaluations were drawn last, on top, and matter most.
    legend = drawn.legend(handles[::-1], labels[::-1], loc="outside upper left", ncols=3)
    legend.set_title(name, prop=FontProperties(size=13, weight="bold"))
    legend.set_alignment("left")


def _legend_of_each(drawn: Figure, names: Sequence[str]) -> None:
    """Above the panels: which line is which run."""
    pens = [pen(number) for number in range(len(names))]
    lines = [Line2D([], [], lw=1.6, ms=6, **_line(by)) for by in pens]
    num_columns = max(1, _LEGEND_CHARS // (12 + max(map(len, names))))
    labels = ["run"] * len(names)
    legend = drawn.legend(
        lines, labels, loc="outside upper left", ncols=num_columns, handlelength=4.5
    )
    _name(legend, names)


def _name(legend: Legend, names: Sequence[str]) -> None:
    """Set the names here, because a legend is made without those that begin with `_`."""
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Our style while something is drawn; settings of whoever draws have no part in it."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield
