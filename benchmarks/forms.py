"""Does a line at a time pay? `python benchmarks/forms.py --output DIR`.

The same problems and the same recipe of a starter in four forms, and demonstrations rendered in
each of them: a script keeps slips and lacks the lines that mend them, so fewer of these are right.

    line      every line runs at once, as always
    block     lines up to a blank one run together, as in a tool call, and answer together
    script    one block, written blind; what it submits counts
    written   a text: nothing runs, and the answer is written

Forms are samplers (`form_samplers.py`); `form_scripts.py` shows demonstrations in each of them.
Each form and seed has a starter of its own, which is measured, and learns by GRPO from the outcome
alone until it has sampled as many tokens as the others. All seeds of a form that share `--rows`
have as many steps as the first one that was measured needs. Most rates were tried on the seeds 0 to
2, so these are not among the seeds by default. A task without a choice is trained at each of its
rates, as are the others at each of `--rates`; the table has the best one of each form by all seeds.

    doors     lines are mistyped, and one must see it (`doors.py`)
    euclid    `reasoning-gym:gcd`, where a line is made of the value before it (`form_tasks.py`)
    named     the same by a loop over names, where no value has to be seen; a call has to name it
    tier-1    the packaged task, where one line decides
    tier-2    the same, a tier up

All forms of a task are made seed by seed, and tables are written after each seed. A call that is
ended goes on when it is called again. Rows go one by one to DIR/forms.jsonl, or to `--rows`: a row
that is there is not measured again, on no machine. Tables go to DIR/forms.md, and a picture to
DIR/forms.svg. With `--quick` all of it is tiny, says nothing, and goes to DIR/quick. Calls for
other forms, seeds or rates may run side by side, once `--before` has measured their starters.

With `--model MODEL` there are three tasks more, which a call has to name: `real-doors`, whose
demonstrations are right more often, `real-euclid`, and `real-words`, the kinds of
`examples/word_problems.py`. A warm start of that model takes the place of a starter. With
`--before` starters are measured, and not trained.
"""

import argparse
import itertools
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from arms import MORE_WORDS, SMALL, rate_at, read_run, small_starter, train, warm_started
from bench import fast_dtype
from form_tables import Row, habits, picture, read_rows, tables

from repl_rl.rollout.plan import sampler_class, script_sampler
from repl_rl.runs.folder import evaluation_name
from repl_rl.runs.metrics import read_rows as read_metrics
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.training.starter import Recipe

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
MARGIN = 1.2
"""Times the steps that a form needs by its first tokens: trajectories may become shorter."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A task, and how it is learned in every form."""

    task: str
    rates: Sequence[float]
    tokens: int
    """Sampled by a run of each form."""
    recipe: Recipe | None
    """Recipe of a starter; None: a warm start of a pretrained model."""
    settings: dict[str, object] = field(default_factory=dict)
    margins: Mapping[str, float] = field(default_factory=dict)
    """Margins of some forms in place of `MARGIN`."""
    measurements: int = 6
    """Measurements of a run, after the one before its first step."""
    demonstrations: int = 0
    """Shown by a warm start."""


CHOSEN: Mapping[str, Mapping[str, float]] = {
    "doors": {"line": 2e-3, "block": 2e-3, "script": 2e-3, "written": 1e-3},
    "euclid": {"line": 5e-4, "block": 5e-4, "script": 1e-3, "written": 1e-3},
    "tier-1": {"line": 1e-3, "block": 1e-3, "script": 5e-4, "written": 1e-3},
    "tier-2": {"line": 5e-4, "block": 1e-3, "script": 5e-4, "written": 2.5e-4},
    "real-doors": dict.fromkeys(FORMS, 4e-5),
    "real-euclid": {"line": 4e-5, "block": 2e-5, "script": 4e-5},
    "real-words": {"line": 4e-5, "block": 4e-5, "script": 2e-5},
}
"""Rates by task and form that did best on the seeds 0 to 2, or on seed 0 alone on tiers and with a
pretrained model; those of texts on tiers did on seed 3. On `real-euclid` two were tried, of lines
and blocks. Blocks there and on `doors` and scripts on `tier-1` have a lower one: the best led
others to collapse (docs/lab-notes.md)."""
FEW_WORDS = replace(SMALL, steps=400)
LOW_RATES = (2.5e-4, 5e-4, 1e-3)
BARE: dict[str, object] = {"sandbox.preload": []}
TRIALS = {
    "doors": Trial(
        task="doors:Doors",
        rates=(1e-3, 2e-3, 4e-3, 8e-3),
        tokens=40_000,
        recipe=FEW_WORDS,
        settings=BARE,
        margins={"block": 1.8},  # half of the first ones are typed again
    ),
    **{
        name: Trial(
            task=f"form_tasks:{task}",
            rates=LOW_RATES,
            tokens=40_000,
            recipe=FEW_WORDS,
            settings=BARE,
        )
        for name, task in (("euclid", "Euclid"), ("named", "NamedEuclid"))
    },
    **{
        f"tier-{tier}": Trial(
            task="sympy-proofs",
            rates=LOW_RATES,
            tokens=tokens,
            recipe=MORE_WORDS,
            settings={"task.tiers": tiers},
        )
        for tier, tiers, tokens in ((1, [], 30_000), (2, [2], 40_000))  # 1 is the task's own choice
    },
    **{
        f"real-{name}": Trial(
            task=task,
            rates=(1e-5, 2e-5, 4e-5),
            tokens=tokens,
            recipe=None,
            settings={
                **BARE,
                "eval.problems": 100,
                "grpo.importance": "off",
                "grpo.micro_batch_size": 20,
                "report.checkpoint_every": 1000,  # each has a few hundred MB
                "sampling.engine": "hf",
                "sampling.time_limit_s": 3600,  # on a slow machine trajectories would be lost
            },
            measurements=2,
            demonstrations=shown,
        )
        for name, task, tokens, shown in (
            ("doors", "doors:HintedDoors", 20_000, 400),
            ("euclid", "form_tasks:Euclid", 15_000, 60),
            ("words", "form_tasks:Words", 10_000, 32),
        )
    },
}
WARM: dict[str, object] = {
    "warmstart.keep": "all",
    "warmstart.epochs": 3,
    "warmstart.problems_before": 0,
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A form of a task, with a seed."""

    name: str
    trial: Trial
    form: str
    seed: int
    output: Path
    model: Path | None
    """A pretrained model, for a trial without a recipe."""
    rows: Path
    """The file of rows."""

    @property
    def folder(self) -> Path:
        return self.output / self.name / self.form / f"seed-{self.seed}"

    @property
    def settings(self) -> dict[str, object]:
        settings = {**COMMON, **self.trial.settings, "task": self.trial.task}
        if self.trial.recipe is None:
            settings["grpo.dtype"] = fast_dtype()
        return {**settings, "sampling.sampler": FORMS[self.form]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    starters = [name for name, trial in TRIALS.items() if trial.recipe is not None]
    usual = [name for name in starters if name in CHOSEN]
    parser.add_argument("--tasks", nargs="+", choices=TRIALS, default=usual)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=[*FORMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5, 6, 7])
    parser.add_argument("--rates", type=float, nargs="+", help="in place of the chosen ones")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--model", type=lambda text: Path(text).resolve())
    parser.add_argument("--output", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--rows", type=lambda text: Path(text).resolve())
    args = parser.parse_args()
    if args.model is None and not set(args.tasks) <= set(starters):
        parser.error("a task of a pretrained model takes --model")
    if args.quick:
        if args.rows is not None:
            parser.error("rows of --quick are none to keep; leave out --rows")
        args.output /= "quick"
    kept = args.rows or args.output / "forms.jsonl"
    for row in read_rows(kept):
        if row.task in args.tasks and row.model not in ("", name_of(args.model)):
            parser.error(f"{kept} has {row.task} of {row.model}; name another file by --rows")
    # What this process, graders and runs import by name.
    beside = [str(HERE), str(HERE.parent / "examples")]
    os.environ["PYTHONPATH"] = os.pathsep.join(beside)
    sys.path += beside
    args.output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name, seed in itertools.product(args.tasks, args.seeds):
        trial = quick(TRIALS[name]) if args.quick else TRIALS[name]
        for form in args.forms:
            case = Case(
                name=name,
                trial=trial,
                form=form,
                seed=seed,
                output=args.output,
                model=args.model,
                rows=kept,
            )
            if args.before:
                rows.append(said(measured(case)))
            else:
                chosen = CHOSEN.get(name, {})
                rates = args.rates or ([chosen[form]] if form in chosen else trial.rates)
                first = replace(case, seed=first_seed(case, args.seeds[0]))
                rows += map(said, learned(case, first, rates))
        write(rows, args.output)


def name_of(model: Path | None) -> str:
    """Its name, without the ending of a quantised file."""
    return model.name.partition(".")[0] if model else ""


def said(row: Row) -> Row:
    """The row itself, once it is printed."""
    ends = [f"{one:.1%}" for one in (row.points[0].rate, rate_at(row.points, row.tokens))]
    about = f"rate {row.rate:g}: {' -> '.join(ends)}" if row.rate else f"before: {ends[0]}"
    print(f"{row.task}, {row.form}, seed {row.seed}, {about}", flush=True)
    return row


def quick(trial: Trial) -> Trial:
    recipe = trial.recipe and replace(trial.recipe, num_demonstrations=80, steps=20)
    settings = {**trial.settings, "grpo.group_size": 4}
    settings["eval.problems"] = 12
    if recipe is None:
        settings |= {"eval.problems": 4}
    return replace(
        trial,
        recipe=recipe,
        tokens=1500,
        rates=trial.rates[:1],
        settings=settings,
        demonstrations=8,
    )


def first_seed(case: Case, seed: int) -> int:
    """The seed of the form that was measured first, `seed` if none was: calls share their rows."""
    sought = case.name, case.form, 0.0
    rows = read_rows(case.rows)
    return next((row.seed for row in rows if (row.task, row.form, row.rate) == sought), seed)


def learned(case: Case, first: Case, rates: Sequence[float]) -> Iterator[Row]:
    """The runs of a case, with as many steps as the first seed needs for the tokens."""
    steps = num_steps(case, measured(first).before["tokens"])
    for rate in rates:
        every = math.ceil(steps / case.trial.measurements)
        more = {"grpo.steps": steps, "eval.every": every, "grpo.learning_rate": rate}
        yield row_of(case, f"rate-{rate:g}", more, rate=rate)


def measured(case: Case) -> Row:
    """Measure what a case begins with."""
    return row_of(case, "before", {"grpo.steps": 0})


def row_of(case: Case, name: str, more: Mapping[str, object], *, rate: float = 0.0) -> Row:
    """A run of a case, made unless its row is there, or the run itself."""
    for row in read_rows(case.rows):
        if (row.task, row.form, row.seed, row.rate) == (case.name, case.form, case.seed, rate):
            return row
    path = case.folder / name
    train(path, {**case.settings, **more, "model": str(begun(case))}, case.seed, beside=HERE)
    run = read_run(path, case.form, case.seed)
    row = Row(
        task=case.name,
        form=case.form,
        seed=case.seed,
        rate=rate,
        tokens=case.trial.tokens,
        points=run.points,
        cpu_s=round(run.cpu_s, 1),
        before=habits_at(path, 0),
        after=habits_at(path, run.last.step),
        model="" if case.trial.recipe else name_of(case.model),
    )
    with case.rows.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")
    return row


def num_steps(case: Case, tokens: float) -> int:
    """Steps that sample the tokens of a trial, with some to spare; `tokens` are a trajectory's."""
    needed = case.trial.tokens / (TRAJECTORIES_A_STEP * max(1.0, tokens))
    return max(2, math.ceil(case.trial.margins.get(case.form, MARGIN) * needed))


def begun(case: Case) -> Path:
    """The model that a case begins with, made unless it is there."""
    path = case.folder / "starter"
    if case.trial.recipe is None:
        warm_start(case, path)
        return path
    tiers = case.trial.settings.get("task.tiers", [])
    assert isinstance(tiers, list)
    return small_starter(
        case.trial.task,
        path,
        beside=HERE,
        recipe=replace(case.trial.recipe, seed=case.seed),
        tiers=tiers,
        make_scripts=script_sampler(sampler_class(FORMS[case.form])),
    )


def warm_start(case: Case, path: Path) -> None:
    """Show a pretrained model demonstrations in a form, unless that was done."""
    settings = {**WARM, **case.settings, "eval.problems": 0}  # measured by a run of no steps
    settings["warmstart.demonstrations"] = case.trial.demonstrations
    words = ["--seed", str(case.seed), "--task", str(settings.pop("task"))]
    words += ["--model", str(case.model)]
    for name, value in settings.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    warm_started(path, words, beside=HERE)


def habits_at(run: Path, step: int) -> dict[str, float]:
    """Habits on held-out problems after so many steps, and milliseconds a problem."""
    scored = list(read_trajectories(run / "trajectories" / f"{evaluation_name(step)}.jsonl"))
    spent = [
        row.numbers["eval_runtime"]
        for row in read_metrics(run)
        if row.step == step and "eval_runtime" in row.numbers
    ]
    return {**habits(scored), "ms": 1000 * spent[0] / len(scored)}


def write(rows: Sequence[Row], output: Path) -> None:
    text = tables(rows)
    (output / "forms.md").write_text(text)
    picture(rows, output / "forms.svg")
    hours = sum(row.cpu_s for row in rows) / 3600
    print(f"{text}\n{hours:.1f} hours of CPU in runs", flush=True)


if __name__ == "__main__":
    main()
