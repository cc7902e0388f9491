"""Does the start decide? `python benchmarks/density.py --output DIR`.

Three starters learn the same problems from as many demonstrations, of about 2, 4 and 8 lines
(`dense_scripts.py`), and then are trained alike. It shows what each has gained, and whether its
trajectories keep their lines or collapse to few (ASTER, arXiv 2602.01204, found that dense starts
keep them).

`--set` is that of `repl-rl train`. Raw rows go to DIR/runs.jsonl, a picture to DIR/density.svg.
"""

import argparse
import json
import statistics
from dataclasses import asdict
from pathlib import Path

from arms import Arm, by_arm, draw, setting, table, train_all

from repl_rl.runs.metrics import read_rows
from repl_rl.tasks.base import load_task
from repl_rl.training.starter import Recipe, starter_sandbox
from repl_rl.training.train import make_starter
from repl_rl.viewer.show.display import Screen

HERE = Path(__file__).parent
LENGTH = "line/per_trajectory"
LINES = {"Two": 2, "Four": 4, "Eight": 8}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demonstrations", type=int, default=Recipe().num_demonstrations)
    parser.add_argument("--starter-steps", type=int, default=Recipe().steps)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    output = args.output.resolve()
    recipe = Recipe(num_demonstrations=args.demonstrations, steps=args.starter_steps)
    arms = []
    for name, lines in LINES.items():
        starter = output / f"starter-{lines}"
        if not starter.exists():
            output.mkdir(parents=True, exist_ok=True)
            task, _ = load_task(f"dense_scripts:{name}")
            with Screen() as screen:
                make_starter(task, recipe, starter, screen, isolation=starter_sandbox().isolation)
        arms.append(Arm(name=f"{lines} lines", settings={"model": str(starter)}))
    common: dict[str, object] = {
        "task": "sympy-proofs",
        "grpo.steps": args.steps,
        "eval.problems": 200,
        "eval.every": max(1, args.steps // 6),
        "report.curve": False,
        **dict(setting(override) for override in args.overrides),
    }
    runs = train_all(arms, args.seeds, output, common, beside=HERE)
    print(table(runs, baseline=arms[0].name))
    print(f"\n{'':<22} lines of a trajectory, first and last step  dead groups a step")
    for name, found in by_arm(runs).items():
        rows = [read_rows(output / name.replace(" ", "-") / f"seed-{run.seed}") for run in found]
        steps = [[one.numbers for one in each if LENGTH in one.numbers] for each in rows]
        lines_of = [statistics.fmean(each[place][LENGTH] for each in steps) for place in (0, -1)]
        dead = statistics.fmean(one["group/dead"] for each in steps for one in each)
        print(f"{name:<22} {lines_of[0]:>6.2f} {lines_of[1]:>6.2f} {dead:>40.2f}")
    (output / "runs.jsonl").write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs))
    draw({"": runs}, output / "density.svg")


if __name__ == "__main__":
    main()
