"""Does credit on the line teach faster? `python benchmarks/learning.py --output DIR`.

Arms that differ in the credit alone, from one warm start, with one sampler and the same problems:

    outcome           every line answers for the outcome of its trajectory
    outcome of 10     the same in groups of 10: about the tokens of an update of `tree`
    summed            the same, with what lines are charged added to the outcome
    line_local W      outcome, and W times a line's own charge to that line
    potential         charges as the steps of a potential
    tree              groups of [4, 2, 2]: see `credit.tree`
    tree late         the same, where a state is left at a chance of 0.3 instead of 0.5
    tree 8,2          groups of [8, 2], at the same chance
    tree 2,2          groups of [2, 2], at a chance of 0.5
    one line          groups of [4, 4]: four continuations of a state of each of four trajectories
    ... of 10         line_local 1.0 and potential in groups of 10

Each arm is trained with each learning rate of `--rates` and each seed. Success is on held-out
problems, against sampled tokens, or at `--at` tokens; intervals are over seeds, by drawing them
again 10,000 times.
`--set` and `--model` are those of `repl-rl train`, so the same is asked of other tiers
(`--set task.tiers=[3]`) and other models. With `--small` the model is a small starter of the task,
for tasks of few words such as `doors:Doors`. A call that is ended goes on when it is called again.

Raw rows go to DIR/runs.jsonl. A second table has each arm at the rate that suits it best, by the
very seeds that the table is of. A picture of some arms, DIR/learning.svg, has a panel for each
rate. What would tell of cheating, DIR/habits.svg, has one for each habit: shares of code, comments
and errors, and of submissions at line 1. `tree late`, `tree 8,2` and `tree 2,2` are there where
`--arms` names them.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from arms import (
    Arm,
    Run,
    by_arm,
    common_tokens,
    draw,
    draw_habits,
    mean,
    rate_at,
    setting,
    small_starter,
    table,
    train_all,
)

HERE = Path(__file__).parent
CREDITS: dict[str, dict[str, object]] = {
    "outcome": {"grpo.credit": "outcome"},
    "summed": {"grpo.credit": "outcome", "reward.function": "summed_reward:summed"},
    **{
        f"line_local {weight}": {"grpo.credit": "line_local", "grpo.line_credit_weight": weight}
        for weight in (0.25, 0.5, 1.0)
    },
    "potential": {"grpo.credit": "potential", "grpo.line_credit_weight": 0.5},
    "tree": {"grpo.credit": "tree", "grpo.branching": [4, 2, 2], "grpo.group_size": 16},
    "one line": {"grpo.credit": "tree", "grpo.branching": [4, 4], "grpo.group_size": 16},
}
CREDITS["tree late"] = {**CREDITS["tree"], "grpo.branch_probability": 0.3}
CREDITS["tree 8,2"] = {**CREDITS["tree late"], "grpo.branching": [8, 2]}
CREDITS["tree 2,2"] = {**CREDITS["tree"], "grpo.branching": [2, 2], "grpo.group_size": 4}
for _name in ("outcome", "line_local 1.0", "potential"):
    CREDITS[f"{_name} of 10"] = {**CREDITS[_name], "grpo.group_size": 10}

BY_NAME = ("tree late", "tree 8,2", "tree 2,2")
"""Arms that a call has to name."""
DRAWN = ("outcome", "outcome of 10", "line_local 1.0 of 10", "tree")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="sympy-proofs")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument(
        "--arms",
        nargs="+",
        default=[name for name in CREDITS if name not in BY_NAME],
        choices=[*CREDITS],
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--at", type=int, help="sampled tokens; otherwise as many as all runs have")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    common: dict[str, object] = {
        "task": args.task,
        "grpo.steps": args.steps,
        "grpo.group_size": 16,
        "grpo.problems_per_step": 4,
        "eval.problems": 200,
        "eval.every": max(1, args.steps // 6),
        "report.curve": False,
        **dict(setting(override) for override in args.overrides),
    }
    if "outcome" not in args.arms:
        parser.error("--arms lacks outcome, which all others are held against")
    chosen, output = list(arms(args.arms, args.rates)), args.output.resolve()
    if args.small:
        args.model = small_starter(args.task, output / "starter", beside=HERE)
    if args.model:
        common["model"] = str(args.model.resolve())
    runs = train_all(chosen, args.seeds, output, common, beside=HERE)
    rows = "".join(json.dumps(asdict(run)) + "\n" for run in runs)
    (output / "runs.jsonl").write_text(rows)
    panels = {f"learning rate {rate:g}": list(drawn(runs, rate)) for rate in args.rates}
    if len(args.rates) > 1:
        print(table(runs, baseline=next(arms(["outcome"], args.rates)).name, tokens=args.at), "\n")
        runs = tuned(runs)
    baseline = next(run.arm for run in runs if run.arm.startswith("outcome at"))
    print(table(runs, baseline=baseline, tokens=args.at))
    draw(panels, output / "learning.svg")
    draw_habits(runs, output / "habits.svg")


def arms(names: list[str], rates: list[float]) -> Iterator[Arm]:
    for name in names:
        for rate in rates:
            settings = {**CREDITS[name], "grpo.learning_rate": rate}
            yield Arm(name=f"{name} at {rate:g}", settings=settings)


def drawn(runs: Sequence[Run], rate: float) -> Iterator[Run]:
    """Those of `DRAWN` at this rate, by the arm's name alone."""
    for run in runs:
        name, _, at = run.arm.partition(" at ")
        if name in DRAWN and at == f"{rate:g}":
            yield replace(run, arm=name)


def tuned(runs: Sequence[Run]) -> list[Run]:
    """Those of each arm's best rate, by the mean at the tokens that all runs have sampled."""
    tokens, best = common_tokens(runs), dict[str, list[Run]]()

    def solved(found: Sequence[Run]) -> float:
        return mean(found, lambda run: rate_at(run.points, tokens))

    for arm, found in by_arm(runs).items():
        name = arm.partition(" at ")[0]
        if name not in best or solved(found) > solved(best[name]):
            best[name] = found
    return [run for found in best.values() for run in found]


if __name__ == "__main__":
    main()
