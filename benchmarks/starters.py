"""Measure recipes of starters: `python benchmarks/starters.py --output DIR`.

Starters of `sympy-proofs` are made with each number of demonstrations and of steps, and with each
`SKILL` of the scripts (the chance of a strategy that is always right). Each is measured on the 200
held-out problems of `repl-rl train`, several attempts at each. A starter that DIR holds is not made
again. Raw rows go to DIR/starters.jsonl.
"""

import argparse
import importlib
import itertools
import json
from pathlib import Path
from unittest.mock import patch

from repl_rl.config.resolve import resolve
from repl_rl.rollout.plan import make_plan
from repl_rl.training.evaluate import held_out_attempts
from repl_rl.training.runtime import load_policy, open_runtime
from repl_rl.training.starter import Recipe, starter_sandbox
from repl_rl.training.train import make_starter
from repl_rl.viewer.show.display import Screen

# Its package has a function of this name.
scripts = importlib.import_module("repl_rl.tasks.sympy_proofs.demonstration")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Recipe()
    parser.add_argument("--demonstrations", type=int, nargs="+", default=[usual.num_demonstrations])
    parser.add_argument("--steps", type=int, nargs="+", default=[usual.steps])
    parser.add_argument("--skill", type=float, nargs="+", default=[scripts.SKILL])
    parser.add_argument("--hidden-size", type=int, default=usual.hidden_size)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--attempts", type=int, default=3, help="at each problem")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    output = args.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    rows = []
    for num, steps, skill in itertools.product(args.demonstrations, args.steps, args.skill):
        recipe = Recipe(
            num_demonstrations=num, steps=steps, hidden_size=args.hidden_size, seed=args.seed
        )
        name = f"{num}-{steps}-{skill}-{args.hidden_size}-{args.seed}"
        rates = measured(recipe, skill, output / name, args.problems, args.attempts)
        rows.append({"demonstrations": num, "steps": steps, "skill": skill, **rates})
        cells = "  ".join(f"{family} {100 * rate:.1f} %" for family, rate in rates.items())
        print(f"{num} demonstrations, {steps} steps, skill {skill}: {cells}", flush=True)
    (output / "starters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def measured(
    recipe: Recipe, skill: float, folder: Path, num_problems: int, num_attempts: int
) -> dict[str, float]:
    """Shares of attempts of a starter that solve their problem: of all, and by family."""
    flags = {"model": str(folder), "preset": "starter"}
    plan = make_plan(resolve(flags=flags))
    with Screen() as screen:
        if not folder.exists():
            with patch.object(scripts, "SKILL", skill):
                isolation = starter_sandbox().isolation
                make_starter(plan.task, recipe, folder, screen, isolation=isolation)
        loaded = load_policy(plan, str(folder), say=screen.say)
    attempts = held_out_attempts(plan.task, count=num_problems, seed=0, samples=num_attempts)
    with open_runtime(plan, loaded) as runtime:
        scored = runtime.run(attempts)
    by_family: dict[str, list[bool]] = {"all": []}
    for one in scored:
        solved = one.verdict is not None and one.verdict.is_solved
        for name in ("all", one.problem.meta["family"]):
            by_family.setdefault(name, []).append(solved)
    return {name: sum(found) / len(found) for name, found in by_family.items()}


if __name__ == "__main__":
    main()
