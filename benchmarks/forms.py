"""Does a line at a time pay? `python benchmarks/forms.py --output DIR`.

The same problems, the same demonstrations and the same recipe of a starter, in four forms:

    line      every line runs at once, as always
    block     lines up to a blank one run together, as in a tool call, and answer together
    script    one block, written blind; what it submits counts
    written   a text: nothing runs, and the answer is written

Forms are samplers (`form_samplers.py`); `form_scripts.py` shows demonstrations in each of them.
Each form and seed has a starter of its own, is measured, and learns by GRPO from the outcome alone
until it has sampled as many tokens as the others. The first seed is trained at each rate of a task,
and the others at the one that was best for their form.

    doors     lines are mistyped, and one must see it (`doors.py`)
    euclid    `reasoning-gym:gcd`, where a line is made of the value before it (`form_tasks.py`)
    tier-1    the packaged task, where one line decides
    tier-2    the same, a tier up

All forms of a task are made seed by seed, and tables are written after each seed. A call that is
ended goes on when it is called again. Rows go to DIR/forms.jsonl, tables to DIR/forms.md, and a
picture to DIR/forms.svg. With `--quick` all of it is tiny, and says nothing.

With `--model MODEL` there are two tasks more, which a call has to name: `real-doors`, whose
demonstrations are right, and `real-words`, the kinds of `examples/word_problems.py`. A warm start
of that model takes the place of a starter. With `--before` starters are measured, and not trained.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from arms import COMMAND, SMALL, rate_at, read_run, train
from form_tables import Row, habits, picture, tables

from repl_rl.config.sections import TaskConfig
from repl_rl.rollout.plan import sampler_class, script_sampler
from repl_rl.runs.folder import evaluation_name
from repl_rl.runs.metrics import read_rows
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.tasks.base import choose, load_task
from repl_rl.training.starter import Recipe, starter_sandbox
from repl_rl.training.train import make_starter
from repl_rl.viewer.show.display import Screen

HERE = Path(__file__).resolve().parent
FORMS = {
    "line": "lines",
    "block": "form_samplers:Block",
    "script": "form_samplers:Script",
    "written": "form_samplers:Written",
}
COMMON: dict[str, object] = {
    "grpo.credit": "outcome",
    "grpo.group_size": 10,
    "grpo.problems_per_step": 4,
    "grpo.warmup_steps": 2,
    "sampling.max_lines": 16,
    "sampling.max_line_tokens": 96,
    "sampling.max_tokens": 384,
    "sampling.max_observation_tokens": 96,
    "sampling.max_in_flight": 96,
    "eval.problems": 200,
    "report.curve": False,
    "report.checkpoint_every": 10,
}
TRAJECTORIES_A_STEP = 40
MEASUREMENTS = 6
"""Of a run, after the one before its first step."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A task, and how it is learned in every form."""

    task: str
    rates: Sequence[float]
    tokens: int
    """Sampled by a run of each form."""
    recipe: Recipe | None
    """Of a starter; None: a warm start of a pretrained model."""
    settings: dict[str, object] = field(default_factory=dict)


SMALL_RATES, USUAL_RATES = (1e-3, 2e-3, 4e-3), (2.5e-4, 5e-4, 1e-3)
BARE: dict[str, object] = {"sandbox.preload": []}
TRIALS = {
    "doors": Trial(
        task="doors:Doors", rates=SMALL_RATES, tokens=40_000, recipe=SMALL, settings=BARE
    ),
    "euclid": Trial(
        task="form_tasks:Euclid", rates=SMALL_RATES, tokens=60_000, recipe=SMALL, settings=BARE
    ),
    "tier-1": Trial(task="sympy-proofs", rates=USUAL_RATES, tokens=30_000, recipe=Recipe()),
    "tier-2": Trial(
        task="sympy-proofs",
        rates=USUAL_RATES,
        tokens=40_000,
        recipe=Recipe(),
        settings={"task.tiers": [2]},
    ),
    **{
        f"real-{name}": Trial(
            task=f"form_tasks:{task}",
            rates=(1e-5, 2e-5, 4e-5),
            tokens=20_000,
            recipe=None,
            settings={
                **BARE,
                "eval.problems": 64,
                "grpo.dtype": "mixed",
                "grpo.importance": "off",
                "grpo.micro_batch_size": 20,
            },
        )
        for name, task in (("doors", "RightDoors"), ("words", "Words"))
    },
}
WARM: dict[str, object] = {
    "warmstart.demonstrations": 150,
    "warmstart.keep": "all",
    "warmstart.epochs": 3,
    "warmstart.problems_before": 0,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    starters = [name for name, trial in TRIALS.items() if trial.recipe is not None]
    parser.add_argument("--tasks", nargs="+", choices=TRIALS, default=starters)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=[*FORMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    # What a grader or a run imports by name.
    beside = [str(HERE), str(HERE.parent / "examples")]
    os.environ["PYTHONPATH"] = os.pathsep.join(beside)
    sys.path += beside
    output = args.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    if args.model is None and not set(args.tasks) <= set(starters):
        parser.error("a task of a pretrained model takes --model")
    rows: list[Row] = []
    for name in args.tasks:
        trial = quick(TRIALS[name]) if args.quick else TRIALS[name]
        for seed in args.seeds:
            for form in args.forms:
                folder = output / name / form / f"seed-{seed}"
                settings = settings_of(trial, form, seed, folder / "starter", args.model)
                first = folder.with_name(f"seed-{args.seeds[0]}")
                made: Iterable[Row]
                if args.before:
                    made = [row_of(trial, name, form, seed, folder / "before", settings)]
                else:
                    made = learned(trial, name, form, seed, folder, settings, rows, first=first)
                for row in made:
                    rows.append(row)
                    ends = row.points[0].rate, rate_at(row.points, trial.tokens)
                    print(f"{name}, {form}, seed {seed}, rate {row.rate:g}: "
                          f"{ends[0]:.1%} -> {ends[1]:.1%}", flush=True)  # fmt: skip
            write(rows, output)


def quick(trial: Trial) -> Trial:
    recipe = trial.recipe and replace(trial.recipe, num_demonstrations=80, steps=20)
    settings = {**trial.settings, "eval.problems": 12, "grpo.group_size": 4}
    if recipe is None:
        settings |= {"warmstart.demonstrations": 8, "warmstart.epochs": 1, "eval.problems": 4}
    return replace(trial, recipe=recipe, tokens=1500, rates=trial.rates[:1], settings=settings)


def settings_of(
    trial: Trial, form: str, seed: int, path: Path, model: Path | None
) -> dict[str, object]:
    """Settings of a form's runs, from a starter at `path`, which is made once."""
    settings = {**COMMON, **trial.settings, "task": trial.task}
    settings["sampling.sampler"] = FORMS[form]
    if trial.recipe is not None:
        starter(trial, form, seed, path)
    elif not (path / "checkpoints" / "final").exists():
        assert model is not None
        shutil.rmtree(path, ignore_errors=True)
        warm_start({**WARM, **settings, "model": str(model.resolve())}, seed, path)
    return {**{name: one for name, one in settings.items() if "warmstart" not in name},
            "model": str(path)}  # fmt: skip


def learned(
    trial: Trial,
    name: str,
    form: str,
    seed: int,
    folder: Path,
    settings: dict[str, object],
    rows: Sequence[Row],
    *,
    first: Path,
) -> Iterator[Row]:
    """The runs of a form with this seed, at one rate or at all of the trial's.

    `first` is the folder of the first seed.
    """
    own = [row for row in rows if (row.task, row.form) == (name, form)]
    if folder == first:
        row_of(trial, name, form, seed, folder / "before", settings)
    steps = num_steps(trial, first / "before")
    every = math.ceil(steps / MEASUREMENTS)
    for rate in trial.rates if folder == first else [best_rate(own)]:
        more = {"grpo.steps": steps, "eval.every": every, "grpo.learning_rate": rate}
        path = folder / f"rate-{rate:g}"
        yield row_of(trial, name, form, seed, path, {**settings, **more}, rate=rate)


def row_of(
    trial: Trial,
    name: str,
    form: str,
    seed: int,
    path: Path,
    settings: dict[str, object],
    *,
    rate: float = 0.0,
) -> Row:
    """Train one run, or measure a starter where no rate is given."""
    train(path, {"grpo.steps": 0, **settings}, seed, beside=HERE)
    run = read_run(path, form, seed)
    return Row(
        task=name,
        form=form,
        seed=seed,
        rate=rate,
        tokens=trial.tokens,
        points=run.points,
        cpu_s=run.cpu_s,
        before=measured(path, 0),
        after=measured(path, run.last.step),
    )


def num_steps(trial: Trial, before: Path) -> int:
    """Steps in which a form samples the tokens of a trial, with some to spare."""
    a_step = TRAJECTORIES_A_STEP * max(1.0, measured(before, 0)["tokens"])
    return max(2, math.ceil(1.2 * trial.tokens / a_step))


def best_rate(rows: Sequence[Row]) -> float:
    """The rate by which the first seed came farthest."""
    first = [row for row in rows if row.seed == rows[0].seed]
    return max(first, key=lambda row: rate_at(row.points, row.tokens)).rate


def warm_start(settings: dict[str, object], seed: int, path: Path) -> None:
    """Show a pretrained model demonstrations in a form; an adapter learns."""
    words = [*COMMAND[:-1], "warmstart", "--seed", str(seed), "--output", str(path)]
    words += ["--task", str(settings.pop("task")), "--model", str(settings.pop("model"))]
    for name, value in settings.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=HERE)
    if done.returncode:
        raise SystemExit(f"{path}: exit code {done.returncode}\n{done.stderr[-2000:]}")


def starter(trial: Trial, form: str, seed: int, path: Path) -> None:
    """Make a starter of this form, unless it is there."""
    assert trial.recipe is not None
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        task, _ = load_task(trial.task)
        tiers = trial.settings.get("task.tiers", [])
        assert isinstance(tiers, list)
        with Screen() as screen:
            make_starter(
                choose(task, TaskConfig(tiers=tuple(tiers))),
                replace(trial.recipe, seed=seed),
                path,
                screen,
                isolation=starter_sandbox().isolation,
                make_scripts=script_sampler(sampler_class(FORMS[form])),
            )


def measured(run: Path, step: int) -> dict[str, float]:
    """How a form goes about held-out problems after so many steps; see `habits`."""
    scored = list(read_trajectories(run / "trajectories" / f"{evaluation_name(step)}.jsonl"))
    spent = [
        row.numbers["eval_runtime"]
        for row in read_rows(run)
        if row.step == step and "eval_runtime" in row.numbers
    ]
    return {**habits(scored), "ms": 1000 * spent[0] / len(scored)}


def write(rows: Sequence[Row], output: Path) -> None:
    (output / "forms.jsonl").write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    text = tables(rows)
    (output / "forms.md").write_text(text)
    picture(rows, output / "forms.svg")
    hours = sum(row.cpu_s for row in rows) / 3600
    print(f"{text}\n{hours:.1f} hours of CPU in runs", flush=True)


if __name__ == "__main__":
    main()
