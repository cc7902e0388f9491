"""What the cells of sympy-proofs are worth: `python benchmarks/sympy_proofs.py [--families F]`.

For each family and tier n problems are made, and each is answered in sealed kernels and judged by
the grader: by its scripted solution, by an answer that was changed a little, by the calls that
somebody would try in one line (2 s of CPU each), and by answers that do not look at the problem.
Prints the share that each solves, the most that a blind answer earns on average, and the lines of
the shortest solution. Exit code 1 where a solution fails, a changed answer is proved, a blind
answer pays, or one call solves a problem from tier 2 on. With --write the rates, and a new list of
1,000 problems to measure on, become those that the package knows; with --families and --tiers the
part of both that belongs to these.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from repl_rl.config.sections import TaskConfig
from repl_rl.records import Problem, Scored, Split, StopReason, Trajectory, VerdictKind
from repl_rl.rollout.env import Env, open_env
from repl_rl.tasks.base import Cell, Script, TieredTask, choose
from repl_rl.tasks.sympy_proofs import Known, SympyProofs, draw, known
from repl_rl.tasks.sympy_proofs.demonstration import TABLES, facts_of
from repl_rl.tasks.sympy_proofs.demonstration import played as template_lines
from repl_rl.tasks.sympy_proofs.family import LINES

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from rule_kit import WITNESSED, digest_of, mutants, single_calls, solution_of

T = TypeVar("T")
Rates = defaultdict[str, dict[str, float]]
NUM_FROZEN = 1000
AT_ONCE = 4
BLIND = ("True", "False", "0", "1", "2", "3", "-1", "[]", "x", "1/2", "[0]", "[1]", "oo", "(1, 1)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20, help="Problems of a cell.")
    parser.add_argument("--families", nargs="+")
    parser.add_argument("--tiers", nargs="+", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--no-calls", action="store_true", help="Solutions and changed answers only."
    )
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    sys.exit(not asyncio.run(table(args)))


async def table(args: argparse.Namespace) -> bool:
    """Prints a row for each cell; whether all is as it should be."""
    columns = ["items/s", "solution", "changed", "one call", "blind", "earns", "lines"]
    if args.no_calls:
        del columns[3:6]
    print(f"{'':<15}" + "".join(f"{name:>10}" for name in columns))
    fine, rates, frozen = True, Rates(dict), {}
    overrides = ["sandbox.line_cpu_s=2", "sandbox.line_wall_s=6", "sandbox.standby=4"]
    async with open_env(overrides=overrides) as env:
        task = env.plan.task
        assert isinstance(task, TieredTask)
        for number, cell in enumerate(task.cells):
            if cell.family not in (args.families or [cell.family]):
                continue
            if cell.tier not in (args.tiers or [cell.tier]):
                continue
            fine &= await row(env, cell, args, rates)
            if args.write:
                share_of_all = (NUM_FROZEN + number) // len(task.cells)
                frozen[str(cell)] = await hard_seeds(env, cell, share_of_all)
        if args.write:
            write(rates, frozen, task)
    return fine


async def hard_seeds(env: Env, cell: Cell, count: int) -> tuple[int, ...]:
    """The first seeds of different held-out problems that no call alone solves, but in tier 1."""
    found: dict[str, int] = {}

    async def is_easy(problem: Problem) -> bool:
        return cell.tier > 1 and await try_single_calls(env, problem) is not None

    for begin in itertools.count(0, AT_ONCE):
        seeds = range(begin, begin + AT_ONCE)
        drawn = [SympyProofs().problem(cell, Split.HELD_OUT, seed=seed) for seed in seeds]
        easy = await few_at_once(map(is_easy, drawn))
        for seed, problem, is_out in zip(seeds, drawn, easy, strict=True):
            if not is_out and len(found) < count:
                found.setdefault(problem.id, seed)
        if len(found) == count:
            return tuple(found.values())
    raise AssertionError("seeds do not end")


def write(rates: Rates, frozen: dict[str, tuple[int, ...]], task: TieredTask) -> None:
    path = Path(sys.modules[SympyProofs.__module__].__file__ or "").with_name("known.json")
    old = known()
    baselines = {name: old.baselines[name] | rates[name] for name in old.baselines}
    listed = Known(baselines=baselines, frozen=old.frozen | frozen, digest="")
    path.write_bytes(msgspec.json.encode(listed))
    known.cache_clear()
    chosen = choose(task, TaskConfig(families=("all",), tiers=tuple(LINES), frozen=True))
    digest = digest_of(chosen.problems(Split.HELD_OUT, seed=0))
    whole = msgspec.structs.replace(listed, digest=digest)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")


async def row(env: Env, cell: Cell, args: argparse.Namespace, rates: Rates) -> bool:
    rng = random.Random(f"{args.seed}/{cell}")
    started = time.perf_counter()
    drawn = [draw(cell, Split.HELD_OUT, rng) for _ in range(args.n)]
    per_s = args.n / (time.perf_counter() - started)
    solved = await few_at_once(is_solved_by(env, problem) for problem in drawn)
    changed = await few_at_once(proved_mutant(env, problem) for problem in drawn)
    lines = min(max(1, len(solution_of(problem)) - 1) for problem in drawn)
    shares = [f"{share(solved):.0%}", f"{share(changed):.0%}"]
    earned = 0.0
    calls: list[str | None] = [None] * args.n
    if not args.no_calls:
        calls = await few_at_once(try_single_calls(env, problem) for problem in drawn)
        rate, earned = await best_blind(env, drawn)
        rates["best single call"][str(cell)] = share(calls) if cell.tier > 1 else share(solved)
        rates["guessing"][str(cell)] = rate
        shares += [f"{share(calls):.0%}", f"{rate:.0%}", f"{earned:+.2f}"]
    cells = (f"{per_s:.0f}", *shares, str(lines))
    print(f"{cell.family} {cell.tier}".ljust(15) + "".join(f"{x:>10}" for x in cells), flush=True)
    for problem, is_solved, mutant, call in zip(drawn, solved, changed, calls, strict=True):
        if not is_solved:
            print(f"  not solved: {problem.meta['kind']}: {problem.setup} {solution_of(problem)}")
        if mutant:
            print(f"  changed: {problem.meta['kind']}: {mutant}: {problem.setup}")
        if call and cell.tier > 1:
            print(f"  one call: {problem.meta['kind']}: {call}: {problem.setup}")
    is_one_call = cell.tier == 1
    is_long = is_one_call or lines >= LINES[cell.tier]
    is_sound = all(solved) and not any(changed) and earned <= 0
    return is_long and is_sound and (is_one_call or not any(calls))


async def few_at_once(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """Their results, in order."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(job: Awaitable[T]) -> T:
        async with free:
            return await job

    return await asyncio.gather(*map(one, jobs))


def share(found: Sequence[object]) -> float:
    return sum(map(bool, found)) / len(found)


async def is_solved_by(env: Env, problem: Problem) -> bool:
    """Whether the scripted solution is proved; for the oldest rules it is one call."""
    solution = solution_of(problem)
    lines = solution or TABLES[problem.meta["family"]][problem.meta["kind"]][0].lines
    scored = await played(env, problem, lines, is_template=not solution)
    return scored.verdict is not None and scored.verdict.kind is VerdictKind.PROVED


async def proved_mutant(env: Env, problem: Problem) -> str | None:
    """A changed answer that the grader proves; rules with many right answers are left out."""
    if problem.meta["kind"] in WITNESSED:
        return None
    answer = problem.meta["answer"]
    # Of a false identity the answer is one of many points that refute it.
    is_false = problem.meta["family"] == "identity" and answer != "True"
    is_point = is_false and not solution_of(problem)
    for mutant in ["True"] if is_point else mutants(answer):
        scored = await judged(env, problem, mutant)
        if scored.verdict is not None and scored.verdict.is_solved:
            return mutant
    return None


async def played(
    env: Env, problem: Problem, lines: Sequence[str], *, is_template: bool = False
) -> Scored:
    episode, facts = await env.episode(problem), facts_of(problem) if is_template else {}
    script = template_lines(lines, facts, random.Random(0)) if is_template else scripted(lines)
    line: str | None = next(script)
    while line is not None and episode.stop is None:
        shown = (await episode.line(line)).outcome.observation
        try:
            line = script.send(shown)
        except StopIteration:
            line = None
    return await episode.score()


def scripted(lines: Sequence[str]) -> Script:
    for line in lines:  # noqa: UP028 a tuple's iterator takes no observations
        yield line


async def try_single_calls(env: Env, problem: Problem) -> str | None:
    """The first call that solves it."""
    for call in single_calls(problem):
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
