"""The page of `benchmarks/compare.py`: a function of the rows that are kept.

Knows rows. Does not know how they are measured, or pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from breadth import FAMILIES, STAGES
from compare_rows import CASES, Row

PEERS = {
    "fresh": "an interpreter a line",
    "re-execution": "an interpreter a line, after all lines before it",
}
"""Words for executors that are no package."""
LEVEL = 0.03
"""Figures that differ by no more are level."""
HEAD = """\
# Compared with what you would use instead

`make compare` wrote this page. It measures repl-rl and its peers in the same run, in half an hour
on two cores. Figures that are worse than a peer's stay in. Each figure is from one run on one
machine, so two close ones may change places in another run. *Load* is the mean number of processes
that wanted a core in the minute before. Well above 1, it slows both sides, and not equally.
"""
BREADTH = """\
## What a small model learns, family by family

SmolLM2-135M-Instruct on ten families of reasoning-gym and on HumanEval: as it is, after a warm
start, and after GRPO from there. A cell has the held-out problems solved at one attempt each, with
a 95 % interval. Then it has the CPU seconds of the stage, for training and measurement, and the
tokens sampled by its measurement. `benchmarks/breadth.py` makes the rows, in hours, and lists what
each stage is. This page has those that are made.
"""
SHOWN = """\
The warm start shows the model 32 scripts, once. They solve problems of training: each computes what
is asked and submits the value. So the model learns to use Python on problems of one form, and not
to find out what they ask. Scripts bring along facts, such as the legs of an animal.
"""
SCRIPTS: Mapping[str, str] = {
    "chain_sum": "`3781 + 1883`",
    "count_bits": "`bin(35690561).count('1')`",
    "fraction_simplification": "`Rational(8625, 17043)`",
    "lcm": "`ilcm(77, 91)`",
    "leg_counting": "`3*6 + 9*4 + 5*0`",
    "letter_counting": "`'but a few hundred'.lower().count('o')`",
    "prime_factorization": "`factorint(448, multiple=True)`",
    "simple_equations": "`a = symbols('a')`, `solve(Eq(462*a + 154, 14014), a)`",
    "simple_geometry": "`180*(4 - 2) - (88 + 44 + 53)`",
    "spell_backward": "`'disperiwig'[::-1]`",
    "human_eval": "the data set's own solution; its own tests judge, in a sealed kernel",
}
"""Script of one problem, before the line that submits."""


def page(found: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """The whole page."""
    compared = [name for name in CASES if name != "breadth" and name in found]
    parts = [HEAD, summary([row for name in compared for row in found[name]["rows"]])]
    parts += [f"## {CASES[name].title}\n\n{section(name, found[name])}" for name in compared]
    parts += [BREADTH, breadth_table(rows), SHOWN, shown_table(), measured_on(rows)]
    if found.get("breadth", {}).get("rows"):
        parts.append(anew(found["breadth"], rows))
    return "\n".join(part for part in parts if part)


def summary(rows: Sequence[Row]) -> str:
    """Count of figures that are ahead, and a list of those that are behind."""
    sides = [side(row) for row in rows if row["better"] != "near"]
    behind = [row for row in rows if row["better"] != "near" and side(row) == "theirs"]
    counts = (
        f"Of {len(sides)} figures beside a peer's {sides.count('ours')} are better here, "
        f"{sides.count('level')} are level within {LEVEL:.0%}, and {len(behind)} are worse"
    ).replace("%", " %")
    if not behind:
        return f"{counts}.\n\n![All figures beside their peers'](pictures/compare.svg)\n"
    listed = "".join(
        f"- {row['what']}: {figure(row, 'ours')}, and {figure(row, 'theirs')} by {peer(row)}\n"
        for row in behind
    )
    return f"{counts}:\n\n{listed}\n![All figures beside their peers'](pictures/compare.svg)\n"


def section(name: str, kept: Mapping[str, Any]) -> str:
    """One comparison: what it is, its table, when and where it was made."""
    table = (
        ["| what | ours | theirs | factor | ahead |", "|--|--|--|--|--|"] if kept["rows"] else []
    )
    for row in kept["rows"]:
        cells = (row["what"], figure(row, "ours"), f"{figure(row, 'theirs')}, {peer(row)}")
        table.append(f"| {' | '.join((*cells, factor_cell(row), ahead(row)))} |")
    versions = ", ".join(f"{package} {one}" for package, one in kept["versions"].items())
    made = (
        f"{kept['date']}, {kept['machine']}, load {kept['load']:g} before it; {versions}; "
        f"{kept['seconds']} s."
    )
    if "failed" in kept:
        made += f" Not whole: {kept['failed']}."
    if "tried" in kept:
        made += f" Tried again on {kept['tried']['date']}: {kept['tried']['failed']}."
    return "\n".join([CASES[name].about, "", *table, "", made, ""])


def factor(row: Row) -> float | None:
    """Factor by which ours is better; None where a figure is 0."""
    ours, theirs = row["ours"], row["theirs"]
    if not ours or not theirs:
        return None
    return float(theirs / ours if row["better"] == "less" else ours / theirs)


def factor_cell(row: Row) -> str:
    found = factor(row)
    return "" if found is None else number(found)


def side(row: Row) -> str:
    """`ours`, `theirs` or `level`."""
    found = factor(row)
    if found is None:
        less, more = (row["ours"] < row["theirs"]), (row["ours"] > row["theirs"])
        is_ours = less if row["better"] == "less" else more
        return "ours" if is_ours else "theirs" if less or more else "level"
    if abs(found - 1) <= LEVEL:
        return "level"
    return "ours" if found > 1 else "theirs"


def ahead(row: Row) -> str:
    if row["better"] == "near":
        return f"off by {abs(row['ours'] / row['theirs'] - 1):.0%}".replace("%", " %")
    return {"ours": "ours", "theirs": f"**{peer(row)}**", "level": "level"}[side(row)]


def peer(row: Row) -> str:
    name: str = row["peer"]
    return PEERS.get(name, name)


def figure(row: Row, whose: str) -> str:
    return f"{number(row[whose])} {row['unit']}"


def number(value: float) -> str:
    """Three digits, or a whole number."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def best(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """A row for each family and stage: of most problems, and of those the latest."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["family"], row["stage"])
        if key not in found or row["problems"] >= found[key]["problems"]:
            found[key] = row
    return found


def breadth_table(rows: Sequence[Row]) -> str:
    there = best(rows)
    lines = [f"| family | {' | '.join(STAGES.values())} |", "|--|--|--|--|"]
    for family in FAMILIES:
        cells = [stage_cell(there.get((family, stage))) for stage in STAGES]
        lines.append(f"| `{family}` | {' | '.join(cells)} |")
    picture = "![Held-out problems solved, by family and stage](pictures/breadth.svg)"
    return "\n".join([*lines, "", picture, ""])


def stage_cell(row: Row | None) -> str:
    if row is None:
        return "not measured"
    low, high = (100 * end for end in row["interval"])
    return (
        f"{row['solved']} of {row['problems']} ({low:.0f} to {high:.0f} %), "
        f"{row['cpu_s']:,.0f} s, {row['sampled_tokens']:,}"
    )


def shown_table() -> str:
    lines = [f"| `{family}` | {SCRIPTS[family]} |" for family in FAMILIES]
    return "\n".join(["| family | script of one problem |", "|--|--|", *lines, ""])


def measured_on(rows: Sequence[Row]) -> str:
    """Days and machines of the rows that are shown."""
    by_place: dict[tuple[str, str, str], list[str]] = {}
    for (family, stage), row in best(rows).items():
        place = (f"{row['date']}, {row['machine']}", row["versions"], STAGES[stage])
        by_place.setdefault(place, []).append(f"`{family}`")
    lines = [
        f"- {stage}: {', '.join(names)}. {place}. {versions}.\n"
        for (place, versions, stage), names in by_place.items()
    ]
    return "Measured on:\n\n" + "".join(lines) if lines else ""


def anew(kept: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """The row that this run made anew beside the one that is kept."""
    again = kept["rows"][0]
    stored = best(rows).get((again["family"], again["stage"]))
    return (
        f"Made anew on {kept['date']}, {kept['machine']}: `{again['family']}`, "
        f"{STAGES[again['stage']]}, {stage_cell(again)}. Kept: {stage_cell(stored)}.\n"
    )
