"""Does it teach faster to foresee what the interpreter prints?
`python benchmarks/observations.py --output DIR`.

Arms differ in `grpo.observation_weight` alone: 0, 0.03, 0.1 and 0.3. All runs of a task begin with
one starter and have the same problems, and learn from the outcome alone. Each weight is trained
with each learning rate of `--rates` and each seed, and the table has it at the rate that suits it
best.

    doors     lines are mistyped, and answers tell of it (`doors.py`)
    euclid    `reasoning-gym:gcd`, where a line is made of the answer before it (`form_tasks.py`)
    tier-2    the packaged task, with the recipe that `repl-rl train` has for a starter

A starter is trained on lines alone, so that no token of an answer has any probability to it. In
these tasks it is shown more demonstrations, answers included, by `warmstart.train_observations`. A
call has to name `doors-unshown` and `euclid-unshown`, where it is not.

Beside what was solved stand the seconds of an update, and the cross entropy of answers in the
held-out trajectories of the starter, before the first step and after the last: nats a token. A call
that is ended goes on when it is called again. Rows go to DIR/observations.jsonl, tables to
DIR/observations.md.
"""

import argparse
import functools
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from arms import COMMAND, SMALL, Point, interval, rate_at, read_run, tokens_to, train

from repl_rl.config.sections import TaskConfig
from repl_rl.models.loading import LoadedModel, load_model, logprobs
from repl_rl.models.precision import Precision
from repl_rl.rollout.observations import Answers
from repl_rl.runs.folder import evaluation_name
from repl_rl.runs.metrics import read_curve
from repl_rl.runs.trajectory_file import places
from repl_rl.tasks.base import choose, load_task
from repl_rl.training.starter import Recipe, starter_sandbox
from repl_rl.training.train import make_starter
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import Encoding
from repl_rl.viewer.show.display import Screen

HERE = Path(__file__).resolve().parent
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
GOALS = (0.6, 0.8)
NUM_SCORED = 100
"""Held-out trajectories whose answers are scored."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A task, and how it is learned."""

    task: str
    rates: Sequence[float]
    steps: int
    recipe: Recipe
    settings: Mapping[str, object]
    is_shown: bool = True
    """True where its starter is shown answers, too."""


FEW_WORDS = replace(SMALL, steps=400)
BARE: dict[str, object] = {"sandbox.preload": []}
TRIALS = {
    "doors": Trial(
        task="doors:Doors", rates=(1e-3, 2e-3), steps=15, recipe=FEW_WORDS, settings=BARE
    ),
    "euclid": Trial(
        task="form_tasks:Euclid", rates=(5e-4, 1e-3), steps=15, recipe=FEW_WORDS, settings=BARE
    ),
    "tier-2": Trial(
        task="sympy-proofs",
        rates=(2.5e-4, 5e-4),
        steps=15,
        recipe=Recipe(),
        settings={"task.tiers": [2]},
    ),
}

TRIALS |= {f"{name}-unshown": replace(TRIALS[name], is_shown=False) for name in ("doors", "euclid")}
SHOWN: dict[str, object] = {
    "warmstart.demonstrations": 1000,
    "warmstart.keep": "all",
    "warmstart.epochs": 2,
    "warmstart.learning_rate": 1e-3,
    "warmstart.train_observations": True,
    "warmstart.problems_before": 0,
    "eval.problems": 0,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run."""

    task: str
    weight: float
    rate: float
    """Its learning rate."""
    seed: int
    points: Sequence[Point]
    cpu_s: float
    update_s: float
    """Median over its steps."""
    nats: tuple[float, float]
    """Cross entropy of a token of an answer, before and after."""

    @property
    def tokens(self) -> int:
        """Sampled in all."""
        return self.points[-1].tokens


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TRIALS, default=["doors", "euclid"])
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.03, 0.1, 0.3])
    parser.add_argument("--rates", type=float, nargs="+", help="otherwise those of the task")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, help="otherwise those of the task")
    parser.add_argument("--output", type=lambda text: Path(text).resolve(), required=True)
    args = parser.parse_args()
    # What this process, graders and runs import by name.
    beside = [str(HERE), str(HERE.parent / "examples")]
    os.environ["PYTHONPATH"] = os.pathsep.join(beside)
    sys.path += beside
    args.output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name, seed in itertools.product(args.tasks, args.seeds):
        trial = TRIALS[name]
        starter = begun(trial, args.output / name.removesuffix("-unshown"))
        for rate, weight in itertools.product(args.rates or trial.rates, args.weights):
            path = args.output / name / f"rate-{rate:g}" / f"weight-{weight:g}" / f"seed-{seed}"
            settings = {
                **COMMON,
                **trial.settings,
                "task": trial.task,
                "model": str(starter),
                "grpo.steps": args.steps or trial.steps,
                "grpo.learning_rate": rate,
                "grpo.observation_weight": weight,
                "eval.every": max(1, (args.steps or trial.steps) // 3),
            }
            train(path, settings, seed, beside=HERE)
            rows.append(row_of(path, name, weight, rate, seed, starter))
            print(said(rows[-1]), flush=True)
        write(rows, args.output)


def begun(trial: Trial, folder: Path) -> Path:
    """The model that a trial begins with, made unless it is there."""
    path = folder / "starter"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        task, _ = load_task(trial.task)
        tiers = trial.settings.get("task.tiers", [])
        assert isinstance(tiers, list)
        with Screen() as screen:
            make_starter(
                choose(task, TaskConfig(tiers=tuple(tiers))),
                trial.recipe,
                path,
                screen,
                isolation=starter_sandbox().isolation,
            )
    if not trial.is_shown:
        return path
    shown = folder / "shown"
    final = shown / "checkpoints" / "final"
    if not final.exists():
        shutil.rmtree(shown, ignore_errors=True)
        show(trial, path, shown)
    return final


def show(trial: Trial, starter: Path, output: Path) -> None:
    """Show a starter demonstrations with their answers."""
    words = [
        "warmstart",
        "--whole",
        "--task",
        trial.task,
        "--model",
        str(starter),
        "--output",
        str(output),
    ]
    for name, value in {**COMMON, **trial.settings, **SHOWN}.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    done = subprocess.run(
        [*COMMAND[:-1], *words], capture_output=True, text=True, check=False, cwd=HERE
    )
    if done.returncode:
        raise SystemExit(f"{output}: exit code {done.returncode}\n{done.stderr[-2000:]}")


def row_of(path: Path, task: str, weight: float, rate: float, seed: int, starter: Path) -> Row:
    run = read_run(path, f"weight {weight:g}", seed)
    kept = path / "nats.json"
    if not kept.exists():
        final = path / "checkpoints" / "final"
        kept.write_text(json.dumps([surprise(path, model) for model in (starter, final)]))
    before, after = json.loads(kept.read_text())
    return Row(
        task=task,
        weight=weight,
        rate=rate,
        seed=seed,
        points=run.points,
        cpu_s=run.cpu_s,
        update_s=statistics.median(step.numbers["time/update"] for step in read_curve(path).steps),
        nats=(before, after),
    )


def surprise(run: Path, model: Path) -> float:
    """Nats of a token of an answer, to this model, in the first held-out trajectories of a run."""
    file = run / "trajectories" / f"{evaluation_name(0)}.jsonl"
    loaded, found = loaded_from(model), []
    for place in itertools.islice(places(file), NUM_SCORED):
        scored, origin = place.read(), place.origin
        assert origin is not None
        answers = Answers(Encoding(load_format("python", None), loaded.codec), setup=origin.setup)
        row = scored.trajectory
        ids = [*row.prompt_ids, *row.completion_ids]
        scores = logprobs(loaded, ids, len(row.prompt_ids), temperature=1.0)
        found += list(itertools.compress(scores, answers.mask(scored)))
    return -statistics.fmean(found) if found else 0.0


@functools.lru_cache(maxsize=1)
def loaded_from(model: Path) -> LoadedModel:
    return load_model(str(model), device=torch.device("cpu"), precision=Precision())


def said(row: Row) -> str:
    ends = " -> ".join(f"{one.rate:.1%}" for one in row.points)
    return (
        f"{row.task}, weight {row.weight:g}, rate {row.rate:g}, seed {row.seed}: {ends}, "
        f"{row.tokens:,} tokens, answers {row.nats[0]:.2f} -> {row.nats[1]:.2f} nats, update "
        f"{row.update_s:.2f} s, {row.cpu_s:.0f} CPU s"
    )


HEAD = (
    "weight", "rate", "seeds", "before", "at {tokens:,} tokens", "each seed", "mean on the way",
    "tokens to 60 %", "to 80 %", "answers before", "after", "update",
)  # fmt: skip


def table(rows: Sequence[Row], tokens: int) -> str:
    """A line for each weight and rate; `rows` are of one task."""
    text = [[one.format(tokens=tokens) for one in HEAD], ["--"] * len(HEAD)]
    for found in cases(rows):
        rates = [rate_at(row.points, tokens) for row in found]
        text.append([
            f"{found[0].weight:g}",
            f"{found[0].rate:g}",
            str(len(found)),
            f"{statistics.fmean(row.points[0].rate for row in found):.1%}",
            spread([100 * one for one in rates], "{:.1f}"),
            ", ".join(f"{100 * one:.1f}" for one in rates),
            spread([100 * mean_rate(row.points, tokens) for row in found], "{:.1f}"),
            *(reached(found, goal) for goal in GOALS),
            f"{statistics.fmean(row.nats[0] for row in found):.2f}",
            f"{statistics.fmean(row.nats[1] for row in found):.2f}",
            f"{statistics.fmean(row.update_s for row in found):.2f} s",
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in text) + "\n"


def mean_rate(points: Sequence[Point], tokens: int) -> float:
    """The mean of the rate over all tokens on the way."""
    places = [tokens * (i + 0.5) / 100 for i in range(100)]
    return statistics.fmean(rate_at(points, at) for at in places)


def reached(found: Sequence[Row], goal: float) -> str:
    """Tokens to a rate, with the number of seeds that came to it where that is not all."""
    needed = [one for row in found if (one := tokens_to(row.points, goal)) is not None]
    if len(needed) < len(found):
        return f"{len(needed)} of {len(found)}"
    return spread(needed, "{:,.0f}")


def spread(values: Sequence[float], form: str) -> str:
    """`mean (low to high)`, an interval of 95 %."""
    mean, ends = form.format(statistics.fmean(values)), map(form.format, interval(values))
    return f"{mean} ({' to '.join(ends)})" if len(values) > 1 else mean


def cases(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Those of one weight and rate, in their order."""
    key = lambda row: (row.weight, row.rate)  # noqa: E731
    for _, found in itertools.groupby(sorted(rows, key=key), key):
        yield list(found)


def best(rows: Sequence[Row], tokens: int) -> list[Row]:
    """Rows of each weight at the rate that suits it best."""
    chosen: dict[float, list[Row]] = {}

    def solved(found: Sequence[Row]) -> float:
        return statistics.fmean(rate_at(row.points, tokens) for row in found)

    for found in cases(rows):
        weight = found[0].weight
        if weight not in chosen or solved(found) > solved(chosen[weight]):
            chosen[weight] = found
    return [row for found in chosen.values() for row in found]


def write(rows: Sequence[Row], output: Path) -> None:
    (output / "observations.jsonl").write_text(
        "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    )
    parts = []
    for task in dict.fromkeys(row.task for row in rows):
        own = [row for row in rows if row.task == task]
        tokens = min(row.tokens for row in own)
        parts += [f"## {task}\n", table(best(own, tokens), tokens), table(own, tokens)]
    text = "\n".join(parts)
    (output / "observations.md").write_text(text)
    hours = sum(row.cpu_s for row in rows) / 3600
    print(f"{text}\n{hours:.1f} hours of CPU in runs", flush=True)


if __name__ == "__main__":
    main()
