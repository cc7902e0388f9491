"""One line decides and the rest are forced: `python benchmarks/length.py --output DIR`.

The task is `examples/bifurcation.py`, where the worth of every line is known. A small starter that
opens the right door in 40 % of trajectories is trained on those of 2, 4, 8 and 16 lines, by the
outcome alone and with groups that branch, at the same number of updates. What an estimate of credit
says of the forced lines is noise: if it matters, the outcome alone learns the less the longer
trajectories are.

A table a length, raw rows in DIR/runs.jsonl, a picture in DIR/length.svg.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from arms import Arm, draw, small_starter, table, train_all

EXAMPLES = Path(__file__).parents[1] / "examples"
TASK = "bifurcation:Bifurcation"
ARMS = (
    Arm(name="outcome", settings={"grpo.credit": "outcome"}),
    Arm(name="tree (4,2)", settings={"grpo.credit": "tree", "grpo.branching": [4, 2]}),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    output = args.output.resolve()
    starter = small_starter(TASK, output / "starter", beside=EXAMPLES)
    found, panels = [], {}
    for length in args.lengths:
        common = {
            "task": f"{TASK}{length}",
            "model": str(starter),
            "grpo.steps": args.steps,
            "grpo.learning_rate": args.rate,
            "grpo.group_size": 8,
            "grpo.problems_per_step": 8,
            "eval.problems": 64,
            "eval.every": max(1, args.steps // 10),
            "report.curve": False,
            "sandbox.preload": [],
        }
        runs = train_all(ARMS, args.seeds, output / f"length-{length}", common, beside=EXAMPLES)
        print(f"\n{length} lines\n{table(runs, baseline='outcome')}\n", flush=True)
        panels[f"{length} lines"] = runs
        found += [{"length": length, **asdict(run)} for run in runs]
    draw(panels, output / "length.svg")
    (output / "runs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in found))


if __name__ == "__main__":
    main()
