"""The panels of a picture: solve rates of one run or of several, parts of a whole, legends.

    Axes of matplotlib, Curve or Stack -> lines and areas in them

Knows how numbers are drawn. Does not know where a panel stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.transforms import offset_copy

from repl_rl.runs.metrics import Curve, running_mean
from repl_rl.show.plot_areas import Stack
from repl_rl.show.plot_axes import Axis, points, thinned
from repl_rl.show.plot_style import POINT, Pen, pen

_MARKERS_A_LINE = 7
_ASIDE_PT = 3.0
"""How far apart evaluations of several runs stand at the same step."""
_LEGEND_CHARS = 110
_MARGIN = 0.03
"""Of the width of a panel, on both sides of what is drawn."""


def rates_of_one(panel: Axes, axis: Axis, curve: Curve, window: int) -> None:
    """The training's rate by step and in the mean, and the held-out one with its intervals."""
    places = [step.place for step in curve.steps]
    rates = [step.numbers.get("solve_rate") for step in curve.steps]
    if window > 1:
        panel.plot(*points(axis, places, rates), ".", color=POINT, ms=4, label="training, one step")
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


def held_out_of_each(panel: Axes, axis: Axis, curves: Sequence[Curve]) -> None:
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
        color=by.colour,
        ls=by.dashes,
        lw=1.4,
        marker=by.marker,
        ms=6,
        mec="white",
        mew=0.6,
        elinewidth=1.3,
        capsize=3,
        zorder=4,
        label=label,
        transform=offset_copy(
            panel.transData, panel.get_figure(root=True), x=aside_pt, units="points"
        ),
    )


def training_of_each(panel: Axes, axis: Axis, curves: Sequence[Curve], window: int) -> None:
    """Running means, each with a few markers that stand apart from those of the others."""
    for number, curve in enumerate(curves):
        by, places = pen(number), [step.place for step in curve.steps]
        rates = [step.numbers.get("solve_rate") for step in curve.steps]
        xs, ys = points(axis, places, running_mean(rates, window))
        every = max(1, len(xs) // _MARKERS_A_LINE)
        panel.plot(
            xs,
            ys,
            color=by.colour,
            ls=by.dashes,
            lw=1.6,
            marker=by.marker,
            ms=5.5,
            mec="white",
            mew=0.5,
            markevery=(every * number // len(curves), every),
        )


def as_rates(panel: Axes, axis: Axis, *, title: str) -> None:
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


def stacked(panel: Axes, title: str, stack: Stack, window: int) -> None:
    """Areas on top of each other, named to their right in the same order."""
    areas = panel.stackplot(
        thinned(stack.steps),
        [thinned(area.values) for area in stack.areas],
        colors=[area.fill.colour for area in stack.areas],
        hatch=[area.fill.hatch for area in stack.areas],
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


def legend_of_one(drawn: Figure, name: str) -> None:
    """Above the panels: what is drawn, below the name of the run."""
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    # The evaluations were drawn last, on top, and matter most.
    legend = drawn.legend(handles[::-1], labels[::-1], loc="outside upper left", ncols=3)
    legend.set_title(name, prop=FontProperties(size=13, weight="bold"))
    legend.set_alignment("left")


def legend_of_each(drawn: Figure, names: Sequence[str]) -> None:
    """Above the panels: which line is which run."""
    pens = [pen(number) for number in range(len(names))]
    lines = [
        Line2D([], [], color=by.colour, ls=by.dashes, marker=by.marker, lw=1.6, ms=6, mec="white")
        for by in pens
    ]
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
