"""Does it pay to begin behind a solved prefix? `python benchmarks/prefixes.py --output DIR`.

Arms that differ in `grpo.prefix_share`, from one small starter, with the same problems. Behind a
prefix there is less to write, so its arm takes more steps for as many tokens:

    0         every group begins at its prompt
    0.25 ...  that share of groups begins behind lines of a script that solved its problem
    shown 0   0, from a warm start on as many solved scripts as the arm 1.0 may be given
    shown 1.0 that share, from the same warm start

Problems are doors (`doors.py`), six or eight of them, of which the starter opens nearly none all
right: most groups are dead. Their demonstrations open the right doors. This is knowledge that the
arm 0 has not, and the arm `shown 0` has. The task `again` has no demonstrations: eight problems
come back, and prefixes are the run's own successes. Tasks `tier-2` and `tier-3` are of the packaged
task, with a starter of the tier below, and measured on the rules that they train on
(`tier_tasks.py`). Their demonstrations are mostly right, too. With `--model MODEL` there are
`real-tier-3`, which begins with a warm start of that model on tiers 1 and 2, and `real-six`, with
one on three doors.

Each arm and rate is trained for the steps in which it should sample `--tokens`, and held-out
problems, whole ones, are measured on the way. A call that is ended goes on when it is called again.
Calls for other arms, rates or seeds may run side by side, and one for all of them makes the table.
Rows go to DIR/TASK/runs.jsonl, and a table to DIR/TASK/table.md.
"""

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from arms import (
    MORE_WORDS,
    SMALL,
    Arm,
    Run,
    by_arm,
    common_tokens,
    interval,
    mean,
    rate_at,
    setting,
    share,
    small_starter,
    tokens_to,
    train_all,
    warm_started,
)
from bench import fast_dtype

from repl_rl.runs.folder import rollouts_name
from repl_rl.runs.metrics import read_curve
from repl_rl.runs.summary import is_solved
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.training.starter import Recipe

HERE = Path(__file__).resolve().parent
COMMON: dict[str, object] = {
    "grpo.credit": "outcome",
    "grpo.group_size": 8,
    "grpo.problems_per_step": 2,
    "grpo.warmup_steps": 2,
    "sampling.max_lines": 24,
    "sampling.max_tokens": 384,
    "eval.problems": 100,
    "report.curve": False,
}
SHOWN = "shown"


class Trial(NamedTuple):
    """A task to train on, and the one that its starter is made of."""

    starter_of: str
    task: str
    tokens: int
    """Sampled tokens of a whole trajectory, about."""
    recipe: Recipe | None = replace(SMALL, num_demonstrations=1200, steps=200)
    """Recipe of a starter; None: a warm start of a pretrained model."""
    starter_tiers: Sequence[int] = ()
    settings: Mapping[str, object] = {"sandbox.preload": []}
    shown: int = 160
    """Demonstrations in the warm start of a pretrained model."""


PACKAGED, TRAINED = "sympy-proofs", "tier_tasks:TrainedRules"
PRETRAINED: dict[str, object] = {
    "grpo.importance": "off",
    "grpo.micro_batch_size": 16,
    "report.checkpoint_every": 1000,  # each has a few hundred MB
    "sampling.engine": "hf",
    "sampling.time_limit_s": 3600,  # on a slow machine a measurement would lose trajectories
}
TRIALS = {
    "six": Trial("doors:SixDoors", "doors:SixOpened", 80),
    "again": Trial("doors:SixDoors", "doors:SixAgain", 80),
    "eight": Trial("doors:EightDoors", "doors:EightOpened", 100),
    "tier-2": Trial(PACKAGED, TRAINED, 60, MORE_WORDS, [1], {"task.tiers": [2]}),
    "tier-3": Trial(PACKAGED, TRAINED, 60, MORE_WORDS, [2], {"task.tiers": [3]}),
    "real-six": Trial(
        "doors:HintedDoors",
        "doors:SixOpened",
        90,
        recipe=None,
        settings={"sandbox.preload": [], "warmstart.keep": "all", **PRETRAINED},
        shown=400,
    ),
    "real-tier-3": Trial(
        TRAINED,
        TRAINED,
        120,
        recipe=None,
        starter_tiers=[1, 2],
        settings={"task.tiers": [3], **PRETRAINED, "grpo.problems_per_step": 4},
    ),
}
FIRST_STEPS = 10
"""Steps whose dead groups are counted."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["six"], choices=[*TRIALS])
    parser.add_argument("--arms", nargs="+", default=["0", "0.5"])
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--tokens", type=int, default=40_000)
    parser.add_argument("--goal", type=float, default=0.5, help="the rate that tokens are to")
    parser.add_argument("--measurements", type=int, default=4, help="of a run, after the first")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    if args.model is None and any(TRIALS[name].recipe is None for name in args.tasks):
        parser.error("a task of a pretrained model takes --model")
    for name in args.tasks:
        folder = args.output.resolve() / name
        trial = TRIALS[name]
        given = dict(map(setting, args.overrides))
        common = {**COMMON, **trial.settings, **given, "task": trial.task}
        if trial.recipe is not None:
            starter = small_starter(
                trial.starter_of,
                folder / "starter",
                beside=HERE,
                recipe=trial.recipe,
                tiers=trial.starter_tiers,
            )
        else:
            common.setdefault("grpo.dtype", fast_dtype())
            easier = {**common, "task": trial.starter_of}
            if trial.starter_tiers:
                easier["task.tiers"] = trial.starter_tiers
            starter = warm(args.model.resolve(), folder / "starter", trial.shown, easier)
        arms = []
        for arm in args.arms:
            count = steps_of(arm, name, args.tokens, common)
            most = num_groups(common) * steps_of("1.0", name, args.tokens, common)
            is_shown = arm.startswith(SHOWN)
            faster = {"warmstart.learning_rate": 1e-3} if trial.recipe else {}
            known = {**common, **faster}
            taught = folder / f"{SHOWN}-{most}"
            model = warm(starter, taught, most, known) if is_shown else starter
            settings = {
                "grpo.prefix_share": share_of(arm),
                "grpo.steps": count,
                "eval.every": max(1, count // args.measurements),
                "model": str(model),
            }
            arms += [
                Arm(name=f"{arm} at {rate:g}", settings={**settings, "grpo.learning_rate": rate})
                for rate in args.rates
            ]
        runs = train_all(arms, args.seeds, folder, common, beside=HERE)
        rows = "".join(json.dumps(asdict(run)) + "\n" for run in runs)
        (folder / "runs.jsonl").write_text(rows)
        text = table(runs, folder, tokens=min(args.tokens, common_tokens(runs)), goal=args.goal)
        (folder / "table.md").write_text(text + "\n")
        print(text)


def steps_of(arm: str, task: str, tokens: int, common: dict[str, object]) -> int:
    """Steps in which an arm samples at least so many tokens, about."""
    size = int(str(common["grpo.group_size"])) * num_groups(common)
    part = 1 - 0.5 * share_of(arm)  # a prefix leaves half to write, in the mean over a run
    return math.ceil(tokens / (size * TRIALS[task].tokens * part))


def share_of(arm: str) -> float:
    return float(arm.removeprefix(SHOWN))


def num_groups(common: Mapping[str, object]) -> int:
    """Groups of a step."""
    return int(str(common["grpo.problems_per_step"]))


def warm(model: Path, path: Path, count: int, common: Mapping[str, object]) -> Path:
    """The model after a warm start on so many scripts of the task of `common`."""
    words = ["--task", str(common["task"]), "--model", str(model)]
    for text in (
        f"warmstart.demonstrations={count}",
        "warmstart.epochs=3",
        "warmstart.problems_before=0",
        *(f"{name}={json.dumps(value)}" for name, value in common.items() if "." in name),
        "eval.problems=0",  # a run measures it before its first step
    ):
        if not text.startswith(("grpo.", "report.")):
            words += ["--set", text]
    return warm_started(path, words, beside=HERE)


def table(runs: Sequence[Run], folder: Path, *, tokens: int, goal: float) -> str:
    """A row an arm: dead groups at first, solve rates at so many tokens, tokens to a goal."""
    rows = [
        f"| share | rate | seeds | groups of the first {FIRST_STEPS} steps without advantages | "
        "without both a right and a wrong one | before | "
        f"solved at {tokens:,} tokens | each seed | tokens to {goal:.0%} | CPU s |",
        "|--|--|--|--|--|--|--|--|--|--|",
    ]
    for name, found in by_arm(runs).items():
        arm, _, rate = name.partition(" at ")
        rates = [rate_at(run.points, tokens) for run in found]
        low, high = interval(rates)
        needed = [tokens_to(run.points, goal) for run in found]
        reached = sorted(round(one) for one in needed if one is not None)
        text = f"{statistics.median(reached):,.0f}" if reached else "never"
        rows.append(
            f"| {arm} | {rate} | {len(found)} | "
            f"{mean(found, lambda run: dead(folder, run)):.0%} | "
            f"{mean(found, lambda run: unmixed(folder, run)):.0%} | "
            f"{mean(found, lambda run: run.points[0].rate):.1%} | "
            f"{statistics.fmean(rates):.1%} ({low:.1%} to {high:.1%}) | "
            f"{', '.join(f'{100 * one:.0f}' for one in rates)} | "
            f"{text} ({len(reached)} of {len(found)}) | {mean(found, lambda run: run.cpu_s):.0f} |"
        )
    return "\n".join(rows)


def dead(folder: Path, run: Run) -> float:
    """Share of the groups of a run's first steps that taught nothing."""
    path = path_of(folder, run)
    steps = [one.numbers for one in read_curve(path).steps[:FIRST_STEPS]]
    rows = read_trajectories(path / "trajectories" / f"{rollouts_name(0)}.jsonl")
    groups = {one.trajectory.group_index for one in rows}
    return statistics.fmean(row["group/dead"] for row in steps) / len(groups)


def unmixed(folder: Path, run: Run) -> float:
    """Share of them whose trajectories are all right, or all wrong."""
    kinds: dict[int, set[bool]] = {}
    for step in range(min(FIRST_STEPS, len(run.tokens))):
        file = path_of(folder, run) / "trajectories" / f"{rollouts_name(step)}.jsonl"
        for one in read_trajectories(file):
            kinds.setdefault(one.trajectory.group_index, set()).add(is_solved(one))
    return share(len(one) == 1 for one in kinds.values())


def path_of(folder: Path, run: Run) -> Path:
    return folder / run.arm.replace(" ", "-") / f"seed-{run.seed}"


if __name__ == "__main__":
    main()
