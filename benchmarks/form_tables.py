"""Numbers, tables and the picture of `forms.py`: how forms of a rollout compare on each task.

`python benchmarks/form_tables.py docs/forms.jsonl` prints the tables of rows that are there. Knows
rows. Does not know how they are made.
"""

import itertools
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from arms import Point, interval, rate_at, share
from breadth import read

from repl_rl.records import OutcomeKind, Scored
from repl_rl.runs.summary import is_solved

Key = TypeVar("Key")
DRAWN = ("line", "block", "script", "written")
"""Forms in the order of their pens."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run of a form."""

    task: str
    form: str
    seed: int
    rate: float
    """Its learning rate."""
    tokens: int
    """Sampled tokens at which forms should be held against each other."""
    points: Sequence[Point]
    cpu_s: float
    before: dict[str, float]
    """Its habits on held-out problems before the first step, and after the last."""
    after: dict[str, float]
    model: str = ""
    """Name of the pretrained model, if it is one."""


def read_rows(path: Path) -> list[Row]:
    """Read rows of a file, which may not be there yet."""
    return [Row(**{**row, "points": [Point(**one) for one in row["points"]]}) for row in read(path)]


def habits(scored: Sequence[Scored]) -> dict[str, float]:
    """Habits of trajectories, with lines or blocks as units.

    `mended`: of units that fail, those whose next one does not, whatever it does. `in spite`: of
    trajectories with a unit that fails, those that are solved. `injected`: share of tokens that
    nobody sampled. `constant`: what the best constant answer would solve. `rare`: of problems that
    are right by neither of the two most frequent answers, those that are solved: none, where one of
    the two is guessed.
    """
    answers = [one.problem.meta.get("answer", one.problem.id) for one in scored]
    frequent = dict(Counter(answers).most_common(2))
    units = [
        [line.outcome.kind for line in one.trajectory.lines if line.outcome.kind is not _CUT]
        for one in scored
    ]
    failed = [kind.traits.is_error for kinds in units for kind in kinds]
    after = [
        not other.traits.is_error
        for kinds in units
        for one, other in itertools.pairwise([*kinds, OutcomeKind.DIED])
        if one.traits.is_error
    ]
    wrong = [one for one, kinds in zip(scored, units, strict=True)
             if any(kind.traits.is_error for kind in kinds)]  # fmt: skip
    sampled = sum(one.trajectory.num_sampled for one in scored)
    all_tokens = sum(len(one.trajectory.completion_ids) for one in scored)
    return {
        "solved": share(map(is_solved, scored)),
        "constant": max(frequent.values()) / len(scored),
        "rare": share(
            is_solved(one)
            for one, answer in zip(scored, answers, strict=True)
            if answer not in frequent
        ),
        "tokens": sampled / len(scored),
        "injected": 1 - sampled / all_tokens,
        "units": sum(map(len, units)) / len(scored),
        "errors": share(failed),
        "mended": share(after),
        "in spite": share(map(is_solved, wrong)),
        "submitted": share(one.trajectory.submission is not None for one in scored),
    }


_CUT = OutcomeKind.CUT
HEAD = (
    "form", "rate", "seeds", "before", "at {tokens:,} tokens", "each seed",
    "at {seconds:.0f} CPU s", "constant", "rare", "errors", "mended", "solved in spite", "units",
    "tokens", "injected", "ms", "submitted",
)  # fmt: skip


def tables(rows: Sequence[Row]) -> str:
    """A table for each task, one of all rates of its first seed below it."""
    return "\n".join(
        f"## {task}\n\n{table(best(list(found)))}\n\n{rates(list(found))}\n"
        for task, found in by(rows, lambda row: row.task)
    )


def by(rows: Sequence[Row], key: Callable[[Row], Key]) -> Iterator[tuple[Key, list[Row]]]:
    for name in dict.fromkeys(map(key, rows)):
        yield name, [row for row in rows if key(row) == name]


def best(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of each form at the rate by which its seeds came farthest."""
    kept, tokens = [], rows[0].tokens
    for _, found in by(rows, lambda row: row.form):
        kept += [row for row in found if row.rate == best_rate(found, tokens)]
    return kept


def common(rows: Sequence[Row]) -> int:
    """Tokens at which runs of a task are held against each other: no more than each has sampled."""
    return min(rows[0].tokens, *(row.points[-1].tokens for row in rows))


def best_rate(rows: Sequence[Row], tokens: int) -> float:
    """The rate by which the seeds of a form came farthest, of those that all its seeds have."""
    seeds = {row.seed for row in rows}
    means = {
        rate: statistics.fmean(rate_at(row.points, tokens) for row in found)
        for rate, found in by(rows, lambda row: row.rate)
        if {row.seed for row in found} == seeds
    }
    return max(means, key=lambda rate: means[rate])


def table(rows: Sequence[Row]) -> str:
    """A row a form; of habits the mean over seeds, before and after the run.

    Forms that run are held against each other at the CPU seconds of the shortest of their runs. A
    text that took less stands where it ended.
    """
    running = [row for row in rows if row.form != "written"] or rows
    tokens, seconds = common(rows), min(row.cpu_s for row in running)
    head = [one.format(tokens=tokens, seconds=seconds) for one in HEAD]
    body = [head, ["--"] * len(head)]
    for form, found in by(rows, lambda row: row.form):
        at = [rate_at(row.points, tokens) for row in found]
        timed = [at_seconds(row, seconds) for row in found]
        body.append([
            form, f"{found[0].rate:g}", str(len(found)),
            spread([row.before["solved"] for row in found]), spread(at),
            ", ".join(f"{100 * one:.0f}" for one in at), spread(timed),
            f"{100 * statistics.fmean(row.after['constant'] for row in found):.0f} %",
            *(change(found, name, 100, " %") for name in ("rare", "errors")),
            *(change(found, name, 100, " %", of="errors") for name in ("mended", "in spite")),
            change(found, "units"), change(found, "tokens"),
            change(found, "injected", 100, " %"), change(found, "ms"),
            change(found, "submitted", 100, " %"),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in body).replace("| -- ", "|--")


def rates(rows: Sequence[Row]) -> str:
    """Say where each rate came to with the first seed: also one at which it ended early."""
    parts, tokens = [], rows[0].tokens
    for form, found in by(rows, lambda row: row.form):
        first = [row for row in found if row.seed == found[0].seed]
        parts.append(f"{form}: " + ", ".join(
            f"{row.rate:g} {100 * rate_at(row.points, tokens):.1f} %" for row in first
        ))  # fmt: skip
    return f"The first seed at each rate, at {tokens:,} tokens or its end. {'; '.join(parts)}."


def spread(values: Sequence[float]) -> str:
    """A mean, with an interval where there are several."""
    if len(values) == 1:
        return f"{100 * values[0]:.1f}"
    low, high = interval(values)
    return f"{100 * statistics.fmean(values):.1f} ({100 * low:.1f} to {100 * high:.1f})"


def change(
    rows: Sequence[Row], name: str, scale: float = 1, unit: str = "", *, of: str | None = None
) -> str:
    """Means before and after runs. For a share of what `of` counts, of seeds that have any."""

    def mean(habits: Iterable[Mapping[str, float]]) -> str:
        found = [scale * one[name] for one in habits if of is None or one[of]]
        return f"{statistics.fmean(found):.0f}" if found else "none"

    return f"{mean(row.before for row in rows)} to {mean(row.after for row in rows)}{unit}"


def at_seconds(row: Row, seconds: float) -> float:
    """The solve rate after so many CPU seconds of a run, on the lines between measurements.

    CPU seconds are spread over a run as its seconds are, which other work on the machine stretches.
    """
    points = row.points
    at = seconds / row.cpu_s * points[-1].steps_s
    for one, other in itertools.pairwise(points):
        if one.steps_s <= at <= other.steps_s:
            part = (at - one.steps_s) / max(1e-9, other.steps_s - one.steps_s)
            return one.rate + part * (other.rate - one.rate)
    return points[-1].rate


def picture(rows: Sequence[Row], path: Path) -> None:
    """A panel a task: held-out problems solved against sampled tokens, a line for each form."""
    import matplotlib.style
    from matplotlib.figure import Figure

    from repl_rl.runs.plot import PENS

    tasks = list(by(rows, lambda row: row.task))
    with matplotlib.style.context({"axes.grid": True, "svg.fonttype": "none", "svg.hashsalt": "f"}):
        figure = Figure(figsize=(3.2 * len(tasks) + 1, 3.4), layout="constrained")
        panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, (task, found) in zip(panels, tasks, strict=True):
            axes.set(title=task, xlabel="sampled tokens, thousands")
            found = best(found)
            forms = dict(by(found, lambda row: row.form))
            for pen, form in zip(PENS, DRAWN, strict=False):  # panels share a legend
                if (runs := forms.get(form)) is None:
                    continue
                places = [common(found) * part / 12 for part in range(13)]
                means = [[rate_at(row.points, at) for row in runs] for at in places]
                x = [at / 1000 for at in places]
                axes.plot(x, [100 * statistics.fmean(one) for one in means], label=form, **pen)
                low, high = zip(*(interval(one) for one in means), strict=True)
                axes.fill_between(x, [100 * one for one in low], [100 * one for one in high],
                                  color=pen["color"], alpha=0.12, linewidth=0)  # fmt: skip
        panels[0].set_ylabel("held-out solved, %")
        panels[0].set_ylim(bottom=0)
        panels[-1].legend(fontsize=8)
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    print(tables([row for row in read_rows(Path(sys.argv[1])) if row.rate]))
