"""What the cells of sympy-proofs are worth: `python benchmarks/sympy_proofs.py [--families F]`.

For each family and tier n problems are made, and each is answered in sealed kernels and judged by
the grader: by its scripted solution, by the calls that somebody would try in one line (2 s of CPU
each), and by answers that do not look at the problem. Prints the share that each solves, the most
that a blind answer earns on average, and the lines of the shortest solution. Exit code 1 where a
solution fails, a blind answer pays, or one call solves a problem from tier 2 on.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence

from repl_rl.rollout.env import Env, open_env
from repl_rl.tasks.base import Cell, TieredTask
from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.family import LINES
from repl_rl.tasks.sympy_proofs.task import draw
from repl_rl.types import Problem, Scored, Split, StopReason, Trajectory, VerdictKind

BLIND = ("True", "False", "0", "1", "2", "3", "-1", "[]", "x", "1/2", "[0]", "[1]", "oo", "(1, 1)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20, help="Problems of a cell.")
    parser.add_argument("--families", nargs="+")
    parser.add_argument("--tiers", nargs="+", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sys.exit(not asyncio.run(table(args)))


async def table(args: argparse.Namespace) -> bool:
    """Prints a row for each cell; whether all is as it should be."""
    columns = ("items/s", "solution", "one call", "blind", "earns", "lines")
    print(f"{'':<15}" + "".join(f"{name:>10}" for name in columns))
    fine = True
    overrides = ["sandbox.line_cpu_s=2", "sandbox.line_wall_s=6", "sandbox.standby=2"]
    async with open_env(overrides=overrides) as env:
        task = env.plan.task
        assert isinstance(task, TieredTask)
        for cell in task.cells:
            if cell.family in (args.families or [cell.family]) and cell.tier in (
                args.tiers or [cell.tier]
            ):
                fine &= await row(env, cell, args.n, args.seed)
    return fine


async def row(env: Env, cell: Cell, count: int, seed: int) -> bool:
    rng = random.Random(f"{seed}/{cell}")
    started = time.perf_counter()
    drawn = [draw(cell, Split.TRAIN, rng) for _ in range(count)]
    per_s = count / (time.perf_counter() - started)
    solved = [await is_solved_by(env, problem, draft) for problem, draft in drawn]
    calls = [await try_one_liners(env, problem, draft) for problem, draft in drawn]
    rate, earned = await best_blind(env, [problem for problem, _ in drawn])
    lines = min(max(1, len(draft.solution) - 1) for _, draft in drawn)
    shares = f"{share(solved):.0%}", f"{share(calls):.0%}", f"{rate:.0%}", f"{earned:+.2f}"
    cells = (f"{per_s:.0f}", *shares, str(lines))
    print(f"{cell.family} {cell.tier}".ljust(15) + "".join(f"{x:>10}" for x in cells), flush=True)
    for (problem, draft), is_solved, call in zip(drawn, solved, calls, strict=True):
        if not is_solved:
            print(f"  not solved: {problem.meta['kind']}: {problem.setup} {draft.solution}")
        if call and cell.tier > 1:
            print(f"  one call: {problem.meta['kind']}: {call}: {problem.setup}")
    is_one_call = cell.tier == 1
    is_long = is_one_call or lines >= LINES[cell.tier]
    return all(solved) and is_long and earned <= 0 and (is_one_call or not any(calls))


def share(found: Sequence[object]) -> float:
    return sum(map(bool, found)) / len(found)


async def is_solved_by(env: Env, problem: Problem, draft: Draft) -> bool:
    """Whether the scripted solution is proved; without one, the answer of the draft."""
    if draft.solution:
        scored = await played(env, problem, draft.solution)
    else:
        scored = await judged(env, problem, draft.answer)
    return scored.verdict is not None and scored.verdict.kind is VerdictKind.PROVED


async def played(env: Env, problem: Problem, lines: Sequence[str]) -> Scored:
    episode = await env.episode(problem)
    for line in lines:
        if episode.stop is None:
            await episode.line(line)
    return await episode.score()


async def try_one_liners(env: Env, problem: Problem, draft: Draft) -> str | None:
    """The first call that solves it."""
    for call in draft.one_liners:
        scored = await played(env, problem, [f"submit_final_answer({call})"])
        if scored.verdict is not None and scored.verdict.is_solved:
            return call
    return None


async def best_blind(env: Env, problems: Sequence[Problem]) -> tuple[float, float]:
    """(share solved, mean outcome reward) of the blind answer that earns most."""
    found = [(0.0, 0.0)]
    for answer in dict.fromkeys([*BLIND, *(problem.meta["answer"] for problem in problems[:6])]):
        # The problem that it is the answer to was looked at.
        others = [p for p in problems if p.meta["answer"] != answer or answer in BLIND]
        scored = [await judged(env, problem, answer) for problem in others]
        if scored:
            rate = share([one.verdict is not None and one.verdict.is_solved for one in scored])
            earned = [one.reward.outcome_reward or 0.0 for one in scored]
            found.append((sum(earned) / len(earned), rate))
    earned_most, rate = max(found[1:], default=found[0])
    return rate, earned_most


async def judged(env: Env, problem: Problem, answer: str) -> Scored:
    trajectory = Trajectory(
        problem_id=problem.id, group_index=0, sibling_index=0, policy_version=0, seed=0,
        prompt_text="", prompt_ids=(), completion_ids=(), loss_mask=(), logprobs=(), lines=(),
        stop_reason=StopReason.SUBMITTED, submission=answer,
    )  # fmt: skip
    return await env.score(trajectory, problem)


if __name__ == "__main__":
    main()
