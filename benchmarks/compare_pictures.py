"""The pictures of `benchmarks/compare.py`: how many times better figures are, and what is learned.

Knows rows. Does not know how they are measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from breadth import FAMILIES, STAGES
from compare_page import best, factor, peer
from compare_rows import CASES, Row


def draw(found: Mapping[str, Any], rows: Sequence[Row], folder: Path) -> None:
    """Draw compare.svg and breadth.svg."""
    import matplotlib.style

    style = {"axes.grid": True, "svg.fonttype": "none", "svg.hashsalt": "c", "font.size": 8}
    with matplotlib.style.context(style):
        draw_factors(found, folder / "compare.svg")
        draw_breadth(best(rows), folder / "breadth.svg")


def points(found: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """(case, label, factor) of each figure that has one."""
    for name in CASES:
        for row in found.get(name, {}).get("rows", []):
            if row.get("better", "near") != "near" and (value := factor(row)) is not None:
                yield name, f"{row['what']} ({peer(row)})", value


def draw_factors(found: Mapping[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    made = list(points(found))
    figure = Figure(figsize=(9, 0.7 + 0.19 * len(made)), layout="constrained")
    axes = figure.subplots()
    for place, (name, _, value) in enumerate(made):
        colour = f"C{[*CASES].index(name)}"
        axes.plot([1, value], [place, place], colour, linewidth=1)
        axes.plot([value], [place], "o" if value >= 1 else "X", color=colour, markersize=5)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(made)), [label for _, label, _ in made])
    axes.set(xscale="log", xlabel="times better than the peer's; left of 1 it is worse")
    axes.invert_yaxis()
    axes.margins(y=0.01)
    figure.savefig(path, metadata={"Date": None})


def draw_breadth(there: Mapping[tuple[str, str], Row], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    for number, (stage, words) in enumerate(STAGES.items()):
        own = [
            (at, there[name, stage]) for at, name in enumerate(FAMILIES) if (name, stage) in there
        ]
        places = [at + 0.27 * (number - 1) for at, _ in own]
        rates = [100 * row["solved"] / row["problems"] for _, row in own]
        ends = [
            [100 * abs(row["interval"][end] - row["solved"] / row["problems"]) for _, row in own]
            for end in (0, 1)
        ]
        axes.bar(places, rates, 0.25, yerr=ends if own else None, label=words, capsize=2)
    axes.set_xticks(range(len(FAMILIES)), FAMILIES, rotation=25, ha="right")
    axes.set(ylabel="held-out solved, %", ylim=(0, 100))
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})
