"""Arms of an experiment: runs of `repl-rl train` that differ in a few settings, beside one another.

    arms, seeds -> run folders -> points (sampled tokens, CPU seconds, solve rate) -> table, picture

A run that is there is not made again, and one that was ended goes on, so a script may be called
until all is done. Used by the scripts beside it.
"""

import itertools
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl

from repl_rl.base.disk import alone
from repl_rl.config.sections import TaskConfig
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Scored, StopReason
from repl_rl.rollout.sampler import ScriptSampler
from repl_rl.runs.folder import RunFolder, rollouts_name
from repl_rl.runs.metrics import read_curve
from repl_rl.runs.summary import is_solved
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.tasks.base import choose, load_task
from repl_rl.training.starter import Recipe, starter_sandbox
from repl_rl.training.train import make_starter
from repl_rl.viewer.show.display import Screen

mpl.use("Agg")

COMMAND = [sys.executable, "-c", "from repl_rl.commands.cli import main; main()", "train"]
NUM_RESAMPLES = 10_000
SMALL = Recipe(
    num_demonstrations=2000,
    steps=600,
    vocab_size=512,
    hidden_size=96,
    intermediate_size=288,
    num_layers=2,
    num_heads=2,
)
MORE_WORDS = replace(
    SMALL, vocab_size=1024, num_layers=3, num_heads=4, num_demonstrations=4000, steps=1000
)
"""For the packaged task, where numbers of a problem have to be copied. With two layers more
starters learn their demonstrations by heart instead (docs/lab-notes.md).
"""


@dataclass(frozen=True, kw_only=True)
class Arm:
    name: str
    settings: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measurement on held-out problems."""

    step: int
    tokens: int
    """Sampled since the beginning."""
    steps_s: float
    rate: float


@dataclass(frozen=True, kw_only=True)
class Run:
    arm: str
    seed: int
    points: Sequence[Point]
    cpu_s: float
    tokens: Sequence[int]
    """Sampled since the beginning, at the end of each step."""
    habits: Sequence[Mapping[str, float]]
    """Of the rollouts of each step."""

    @property
    def last(self) -> Point:
        return self.points[-1]


def setting(override: str) -> tuple[str, object]:
    """A setting as `--set` takes it."""
    name, _, value = override.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def small_starter(
    task: str,
    path: Path,
    *,
    beside: Path,
    recipe: Recipe = SMALL,
    tiers: Sequence[int] = (),
    make_scripts: type[ScriptSampler] = ScriptSampler,
) -> Path:
    """A starter of a task, quick to make and to train. It is made once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path):
        if path.exists():
            return path
        sys.path.insert(0, str(beside))
        with Screen() as screen:
            made, _ = load_task(task)
            make_starter(
                choose(made, TaskConfig(tiers=tuple(tiers))),
                recipe,
                path,
                screen,
                isolation=starter_sandbox().isolation,
                make_scripts=make_scripts,
            )
    return path


def train_all(
    arms: Sequence[Arm],
    seeds: Sequence[int],
    folder: Path,
    common: Mapping[str, object],
    *,
    beside: Path,
) -> list[Run]:
    """Every arm with every seed, one after the other; those that are whole already are read.

    `beside` is where modules lie that settings name; `folder` is absolute.
    """
    found = []
    for seed in seeds:
        for arm in arms:
            path = folder / arm.name.replace(" ", "-") / f"seed-{seed}"
            train(path, {**common, **arm.settings}, seed, beside=beside)
            found.append(read_run(path, arm.name, seed))
            row = found[-1]
            print(f"{arm.name}, seed {seed}: {row.points[0].rate:.1%} -> {row.last.rate:.1%}, "
                  f"{row.last.tokens:,} tokens, {row.cpu_s:.0f} CPU s", flush=True)  # fmt: skip
    return found


def train(path: Path, settings: Mapping[str, object], seed: int, *, beside: Path) -> None:
    """One run to its end. CPU seconds of each part of it, children's too, are kept beside it.

    SystemExit where it fails, another process writes to it, or as `hold` says.
    """
    hold(path, {**settings, "seed": seed})
    ended = path / "ended"
    if ended.exists():
        return
    if (path / "checkpoints" / "final").exists():
        try:
            RunFolder(path, is_begun=True).close()
        except ConfigError as error:
            raise SystemExit(str(error)) from None
        shutil.rmtree(path)  # nobody knows whether it was measured in the end, or what it took
    words = ["--resume", str(path)]
    if not (path / "config.toml").exists():
        words = ["--task", str(settings["task"]), "--seed", str(seed), "--output", str(path)]
        if "model" in settings:
            words += ["--model", str(settings["model"])]
        for name, value in settings.items():
            if name not in ("task", "model"):
                words += ["--set", f"{name}={json.dumps(value)}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, check=False, cwd=beside
        )
    finally:  # of a part that is called off as well
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if path.exists():
            with (path / "cpu_s").open("a") as file:
                file.write(f"{spent}\n")
    if done.returncode:
        raise SystemExit(f"{path}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    ended.touch()


def hold(path: Path, settings: Mapping[str, object]) -> None:
    """Keep settings beside the folder that they make.

    SystemExit where it is there, and was made with others or nobody knows which.
    """
    asked = json.dumps(settings, sort_keys=True)
    kept = path.with_name(f"{path.name}.json")
    if path.exists() and not (kept.exists() and kept.read_text() == asked):
        raise SystemExit(f"{path} has other settings, or {kept} is gone; give another --output")
    path.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(asked)


def warm_started(path: Path, words: Sequence[str], *, beside: Path) -> Path:
    """Weights of a warm start by `repl-rl warmstart` with these words, made unless they are there.

    SystemExit where it fails, or as `hold` says.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    final = path / "checkpoints" / "final"
    with alone(path):
        hold(path, {"words": words})
        if not final.exists():
            shutil.rmtree(path, ignore_errors=True)  # one that was ended cannot go on
            command = [*COMMAND[:-1], "warmstart", "--output", str(path), *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=beside)
            if done.returncode:
                raise SystemExit(f"{path}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return final


def read_run(path: Path, arm: str, seed: int) -> Run:
    """The points of a run, and its habits step by step."""
    curve = read_curve(path)
    tokens, steps_s = {0: 0}, {0: 0.0}
    habits_of = []
    for step in curve.steps:
        number = step.step
        file = path / "trajectories" / f"{rollouts_name(number - 1)}.jsonl"
        scored = list(read_trajectories(file))
        tokens[number] = tokens[number - 1] + sum(one.trajectory.num_sampled for one in scored)
        steps_s[number] = steps_s[number - 1] + step.numbers.get("step_time", 0.0)
        habits_of.append(habits(scored))
    points = [
        Point(
            step=one.step,
            tokens=tokens[one.step],
            steps_s=steps_s[one.step],
            rate=one.rate,
        )
        for one in curve.evaluations
    ]
    spent = [float(row) for row in (path / "cpu_s").read_text().split()]
    return Run(
        arm=arm,
        seed=seed,
        points=points,
        cpu_s=sum(spent),
        tokens=list(tokens.values())[1:],
        habits=habits_of,
    )


def habits(scored: Sequence[Scored]) -> dict[str, float]:
    """What a policy that cheats would have too much, or too little, of."""
    comments = (OutcomeKind.COMMENT, OutcomeKind.BLANK)
    right = [one for one in scored if is_solved(one)]
    return {
        "code": share(kind not in comments for kind in kinds(scored)),
        "comments": share(kind is OutcomeKind.COMMENT for kind in kinds(scored)),
        "errors": share(kind.traits.is_error for kind in kinds(scored)),
        "errors in right ones": share(kind.traits.is_error for kind in kinds(right)),
        "submits at line 1": share(
            one.trajectory.stop_reason is StopReason.SUBMITTED and len(one.trajectory.lines) == 1
            for one in scored
        ),
    }


def kinds(scored: Sequence[Scored]) -> Iterator[OutcomeKind]:
    return (line.outcome.kind for one in scored for line in one.trajectory.own_lines)


def share(values: Iterable[bool]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def rate_at(points: Sequence[Point], tokens: float) -> float:
    """The solve rate after so many sampled tokens, on the lines between measurements."""
    for one, other in itertools.pairwise(points):
        if one.tokens <= tokens <= other.tokens:
            part = (tokens - one.tokens) / max(1, other.tokens - one.tokens)
            return one.rate + part * (other.rate - one.rate)
    return points[-1].rate


def tokens_to(points: Sequence[Point], rate: float) -> float | None:
    """The fewest sampled tokens after which the solve rate was so high; None if it never was."""
    if points[0].rate >= rate:
        return 0.0
    for one, other in itertools.pairwise(points):
        if other.rate >= rate:
            part = (rate - one.rate) / (other.rate - one.rate)
            return one.tokens + part * (other.tokens - one.tokens)
    return None


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the means of as many values drawn with replacement. Of n values it is too narrow, by
    about sqrt((n - 1) / n): the mean of five normal ones lies in it in 85 % of cases.
    """
    rng = random.Random(0)
    means = sorted(
        statistics.fmean(rng.choices(values, k=len(values))) for _ in range(NUM_RESAMPLES)
    )
    return means[round(0.025 * NUM_RESAMPLES)], means[round(0.975 * NUM_RESAMPLES) - 1]


def common_tokens(runs: Sequence[Run]) -> int:
    """What every run has sampled."""
    return min(run.last.tokens for run in runs)


def by_arm(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.arm, []).append(run)
    return found


def table(runs: Sequence[Run], *, baseline: str, tokens: int | None = None) -> str:
    """A row an arm. `rate` is at so many sampled tokens, or at those that all runs have sampled;
    `tokens to` are those that it took to where the arm `baseline` came to in the end, as a share of
    what that took.
    """
    arms = by_arm(runs)
    common = common_tokens(runs) if tokens is None else tokens
    goal = statistics.fmean(run.last.rate for run in arms[baseline])
    whole = statistics.fmean(run.last.tokens for run in arms[baseline])
    rows = [f"{'':<26} seeds  start  rate at {common / 1e6:.2f} M tokens (95 %)  "
            f"tokens to {goal:.1%}  CPU s  errors  in right  line 1"]  # fmt: skip
    for name, found in arms.items():
        rates = [rate_at(run.points, common) for run in found]
        low, high = interval(rates)
        needed = [tokens_to(run.points, goal) for run in found]
        reached = [one for one in needed if one is not None]
        ratio = f"{statistics.fmean(reached) / whole:.2f}" if len(reached) == len(found) else "-"
        rows.append(
            f"{name:<26} {len(found):>5}  {mean(found, lambda run: run.points[0].rate):>5.1%}  "
            f"{statistics.fmean(rates):>7.1%} ({low:.1%} to {high:.1%})       "
            f"{ratio + f' ({len(reached)} of {len(found)})':>14}  "
            f"{mean(found, lambda run: run.cpu_s):>5.0f}  "
            f"{mean(found, lambda run: run.habits[-1]['errors']):>6.1%}  "
            f"{mean(found, lambda run: run.habits[-1]['errors in right ones']):>8.1%}  "
            f"{mean(found, lambda run: run.habits[-1]['submits at line 1']):>6.1%}"
        )
    return "\n".join(rows)


def mean(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    return statistics.fmean(value(run) for run in runs)


def draw(panels: Mapping[str, Sequence[Run]], path: Path) -> None:
    """The mean solve rate of each arm against sampled tokens, and all of its seeds. A panel for
    each title, one beside the other.
    """
    from matplotlib import pyplot as plt

    size = (max(7, 3.2 * len(panels)), 4)
    figure, row = plt.subplots(
        1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, (title, runs) in zip(row[0], panels.items(), strict=True):
        for place, (name, found) in enumerate(by_arm(runs).items()):
            places = sorted({point.tokens for run in found for point in run.points})
            rates = [statistics.fmean(rate_at(run.points, at) for run in found) for at in places]
            thousands = [at / 1000 for at in places]
            axes.plot(thousands, [100 * rate for rate in rates], f"C{place}", label=name)
            for run in found:
                x, y = [p.tokens / 1000 for p in run.points], [100 * p.rate for p in run.points]
                axes.plot(x, y, f"C{place}", alpha=0.25, linewidth=0.8)
        axes.set(xlabel="sampled tokens, thousands", title=title)
    row[0][0].set_ylabel("held-out solved, %")
    row[0][-1].legend(fontsize=8)
    figure.savefig(path)
    plt.close(figure)


def draw_habits(runs: Sequence[Run], path: Path) -> None:
    """A panel for each habit: its mean over the seeds of an arm, in each step, against tokens."""
    from matplotlib import pyplot as plt

    names = list(runs[0].habits[0])
    figure, row = plt.subplots(1, len(names), figsize=(3 * len(names), 3), layout="constrained")
    for axes, name in zip(row, names, strict=True):
        for arm, found in by_arm(runs).items():
            tokens = zip(*(run.tokens for run in found), strict=True)
            steps = zip(*(run.habits for run in found), strict=True)
            thousands = [statistics.fmean(step) / 1000 for step in tokens]
            shares = [100 * statistics.fmean(one[name] for one in step) for step in steps]
            axes.plot(thousands, shares, label=arm)
        axes.set(xlabel="sampled tokens, thousands", title=f"{name}, %")
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    row[0].legend(fontsize=7)
    figure.savefig(path)
    plt.close(figure)
