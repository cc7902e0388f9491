"""`repl-rl eval`: the solve rate of a run's checkpoint or of models, on held-out problems.

    flags -> Plan, one a model -> `training.eval_job` -> tables, JSON, a picture

Knows words for the terminal. Does not know how a model is measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import check_output
from repl_rl.viewer.show import eval_table
from repl_rl.viewer.show.display import Screen

if TYPE_CHECKING:
    from repl_rl.training.eval_job import Comparison


@click.command("eval")
@shared.run_argument("run_or_model", metavar="[RUN_OR_MODEL]", is_trained=True)
@shared.OF_RUN
@click.option(
    "-k",
    "samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Attempts at each problem: pass@1, pass@2, ... pass@k.",
)
@shared.TEMPERATURE
@click.option(
    "--against",
    multiple=True,
    type=Path,
    metavar="RUN_OR_MODEL",
    help="Measure this one, too, on the same problems; repeatable.",
)
@click.option("--output", type=Path, metavar="DIR", help="Keep it, for show, replay and explain.")
@click.option("--picture", type=Path, metavar="FILE", help="Draw the rates: a .png or an .svg.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object on stdout, for programs.")
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

    Without a name it takes the newest run in runs/. Prints the solve rate on held-out problems:
    overall, by family and by tier. Task and settings come from the run, and apply to --against as
    well.
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

    with Screen(Console(stderr=is_json)) as screen:
        evaluation = eval_job.evaluate(plan, screen, samples=samples, output=output)
        beside = {
            name: eval_job.evaluate(one, screen, samples=samples) for name, one in others.items()
        }
    compared = eval_job.Comparison(found=evaluation, against=beside)
    name = str(run_or_model)
    click.echo(json.dumps(compared.facts()) if is_json else _tables(name, compared))
    if picture is not None:
        models = {name: evaluation, **beside}
        eval_table.save_bars({key: one.report.rows for key, one in models.items()}, picture)
        click.echo(f"picture: {picture}", err=is_json)
    if output is not None and not is_json:
        click.echo(f"\nkept: {output}\nnext: repl-rl show {output} --worst")


def _tables(name: str, compared: Comparison) -> str:
    """The rates of the model of this name, and what others are better or worse by."""
    report, text = compared.found.report, eval_table.table(compared.found.report.rows)
    if not compared.against:
        return text
    gaps = compared.differences()
    rows = {other: (one.report.all, gaps[other]) for other, one in compared.against.items()}
    return f"{text}\n\n{eval_table.comparison(name, report.all, rows)}"
