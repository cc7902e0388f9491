"""Learning curves of one or several runs, as pictures.

    name -> Curve of each run -> Figure -> bytes of a .png or an .svg

The same numbers give the same bytes. Knows which panel stands where. Does not know how lines and
areas are drawn, nor who asks.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec

from repl_rl.disk import explained
from repl_rl.runs.metrics import Curve, read_curve
from repl_rl.show import plot_panels as panels
from repl_rl.show.plot_areas import outcomes, seconds
from repl_rl.show.plot_axes import Axis, axes_of
from repl_rl.show.plot_style import SUFFIXES, style
from repl_rl.terminal import one_row

_WIDTH, _ROW, _DPI = 10.0, 3.6, 160
"""Inches, inches of a row of panels, dots an inch: texts can be read where it is 800 dots wide."""
_NAME_CHARS = 60
_STEPS_A_WINDOW, _LARGEST_WINDOW = 10, 50


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
    """What a file with this suffix holds."""
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
    """How many steps a running mean takes in: a tenth of the longest run's, 50 at most."""
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
        panels.rates_of_one(panel, axis, curve, window)
        panels.as_rates(panel, axis, title="Solve rate" if axis is axes[0] else "")
    panels.legend_of_one(drawn, name)
    cells = rows[-1].subgridspec(1, max(1, len(stacks)))
    for number, (title, stack) in enumerate(stacks.items()):
        panels.stacked(drawn.add_subplot(cells[0, number]), title, stack, window)
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
                panels.training_of_each(panel, axis, found, window)
            else:
                panels.held_out_of_each(panel, axis, found)
            panels.as_rates(panel, axis, title=title if axis is axes[0] else "")
    panels.legend_of_each(drawn, list(curves))
    return drawn


def _blank(num_rows: int) -> tuple[Figure, GridSpec]:
    drawn = Figure(figsize=(_WIDTH, num_rows * _ROW), dpi=_DPI, layout="constrained")
    return drawn, drawn.add_gridspec(num_rows, 1)


def _places(rows: GridSpec, row: int, axes: Sequence[Axis]) -> Iterator[tuple[SubplotSpec, Axis]]:
    """A place in the row for each axis, the first as wide as two of the others."""
    cells = rows[row].subgridspec(1, len(axes), width_ratios=[2, *[1] * (len(axes) - 1)])
    for number, axis in enumerate(axes):
        yield cells[0, number], axis
