"""`repl-rl eval`: the solve rate of a run's checkpoint or of models, on held-out problems.

    flags -> Plan, one a model -> `training.eval_job` -> tables, JSON, a picture

Knows words for the terminal. Does not know how a model is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from repl_rl.base.disk import explained
from repl_rl.base.terminal import one_row
from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import check_output
from repl_rl.runs.summary import Rate, RateDifference
from repl_rl.viewer.show.display import Screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from repl_rl.training.eval_job import Comparison, Evaluation

Rows = Mapping[str, Rate]
"""The rate in all, and of each family and tier, by name."""
_WIDTH, _ROW, _DPI = 8.0, 0.42, 160
_HATCHES = ("", "////", "....", "xxxx", "----")
_GREYS = ("#4D4D4D", "#B3B3B3", "#E0E0E0", "#8C8C8C", "#F2F2F2")


@click.command("eval")
@shared.run_argument("run_or_model", metavar="[RUN_OR_MODEL]", is_trained=True)
@shared.OF_RUN
@click.option(
    "-k",
    "samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Attempts at each problem, for pass@1, pass@2, ... pass@k.",
)
@shared.TEMPERATURE
@click.option(
    "--against",
    multiple=True,
    type=Path,
    metavar="RUN_OR_MODEL",
    help="Measure this one, too, on the same problems; repeatable.",
)
@click.option(
    "--output",
    type=Path,
    metavar="DIR",
    help="Keep the trajectories in DIR, for show, replay and explain.",
)
@click.option("--picture", type=Path, metavar="FILE", help="Draw the rates as a .png or .svg.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object on stdout.")
def evaluate(
    run_or_model: Path,
    samples: int,
    against: tuple[Path, ...],
    output: Path | None,
    picture: Path | None,
    is_json: bool,
    **options: Any,
) -> None:
    """Measure a run's last checkpoint, or a model.

    RUN_OR_MODEL is by default the newest run in runs/. The command prints the solve rate on
    held-out problems: overall, by family and by tier. Task and settings come from the run, and
    apply to --against as well.
    """
    plan = shared.plan_of_run(run_or_model, options)
    if not plan.eval.problems:
        raise ConfigError("eval.problems = 0 measures nothing; add --set eval.problems=200")
    for path in (run_or_model, *against):
        shared.say_graded_otherwise(path)
    others = {str(path): shared.with_model(plan, path) for path in against}
    if output is not None:
        check_output(output)
    if picture is not None:
        shared.check_picture(picture)
    shared.load_libraries(plan, err=is_json)
    from repl_rl.training import eval_job  # torch: seconds

    found: list[Evaluation] = []
    try:
        with Screen(Console(stderr=is_json)) as screen:
            found.append(eval_job.evaluate(plan, screen, samples=samples, output=output))
            for one in others.values():
                found.append(eval_job.evaluate(one, screen, samples=samples))
    finally:
        if found:  # of the first models, where a later one cannot be measured
            name, beside = str(run_or_model), dict(zip(others, found[1:], strict=False))
            compared = eval_job.Comparison(found=found[0], against=beside)
            try:
                click.echo(json.dumps(compared.facts()) if is_json else _tables(name, compared))
            finally:  # a stdout that takes no more is no reason to measure again
                if picture is not None:
                    models = {name: found[0], **beside}
                    save_bars({key: one.report.rows for key, one in models.items()}, picture)
                    click.echo(f"picture: {picture}", err=is_json)
            if output is not None and not is_json:
                click.echo(f"\nkept: {output}\nnext: repl-rl show {output} --worst")


def _tables(name: str, compared: Comparison) -> str:
    """The rates of the model of this name, and what others are better or worse by."""
    report, text = compared.found.report, table(compared.found.report.rows)
    if not compared.against:
        return text
    gaps = compared.differences()
    rows = {other: (one.report.all, gaps[other]) for other, one in compared.against.items()}
    return f"{text}\n\n{comparison(name, report.all, rows)}"


def table(rows: Rows) -> str:
    """Rates with their intervals, and pass@k where a problem has several attempts, a row each."""
    ks = [k for k in rows["all"].passes if k > 1]
    others = list(rows["all"].baselines)
    head = ["", "solved", "of", "95 % interval", *(f"pass@{k}" for k in ks), *others]
    cells = [
        [
            one_row(name),
            _percent(rate.rate),
            str(rate.total),
            "{:.1f} to {:.1f} %".format(*(100 * end for end in rate.interval)),
            *(_percent(rate.passes[k]) for k in ks),
            *(_percent(rate.baselines[name]) for name in others),
        ]
        for name, rate in rows.items()
    ]
    text = _aligned([head, *cells])
    if others:
        text += f"\nbaselines, without any model: {', '.join(others)}"
    if num_ungraded := rows["all"].ungraded:
        text += f"\nnot graded, and so not solved: {num_ungraded}"
    return text


def comparison(name: str, own: Rate, others: Mapping[str, tuple[Rate, RateDifference]]) -> str:
    """A model beside others: in their rows, what it solves more of the same problems."""
    ahead = f"{one_row(name)} ahead by, 95 % interval"
    rows = [["", "solved", ahead], [one_row(name), _percent(own.rate), ""]]
    for other, (rate, gap) in others.items():
        low, high = gap.interval
        interval = f"{100 * gap.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
        rows.append([one_row(other), _percent(rate.rate), interval])
    return _aligned(rows)


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns: the first from the left, the others from the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def save_bars(models: Mapping[str, Rows], path: Path) -> None:
    """Draw the rates of models, with their intervals, into a .png or an .svg.

    Raises StorageError where the disk refuses.
    """
    from repl_rl.runs.plot import saved_bytes

    drawn = saved_bytes(lambda: bars(models), path.suffix.lower())
    with explained(path):
        path.write_bytes(drawn)


def bars(models: Mapping[str, Rows]) -> Figure:
    """A group of bars for each row, told apart by grey and hatch."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for rows in models.values() for name in rows))
    height = 1.2 + _ROW * len(names) * max(1.0, 0.6 * len(models))
    drawn = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    panel = drawn.add_subplot()
    thick = 0.8 / len(models)
    for number, (model, rows) in enumerate(models.items()):
        points = [(at, rows[name]) for at, name in enumerate(names) if name in rows]
        rates = [rate.rate for _, rate in points]
        low = [max(0.0, rate.rate - rate.interval[0]) for _, rate in points]
        high = [max(0.0, rate.interval[1] - rate.rate) for _, rate in points]
        panel.barh(
            [at + (number - (len(models) - 1) / 2) * thick for at, _ in points],
            rates,
            height=thick,
            xerr=[low, high],
            label=one_row(model),
            color=_GREYS[number % len(_GREYS)],
            hatch=_HATCHES[number % len(_HATCHES)],
            edgecolor="black",
            ecolor="black",
            capsize=2.0,
        )
    panel.set_yticks(range(len(names)), [one_row(name) for name in names])
    panel.invert_yaxis()
    panel.set_xlim(0, 1)
    panel.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    panel.set_xlabel("held-out solve rate, with 95 % intervals")
    if len(models) > 1:
        drawn.legend(loc="outside upper left", frameon=False)
    return drawn
