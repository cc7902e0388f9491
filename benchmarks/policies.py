"""A policy that scripts roll out: `--model`, `--set` -> a plan and its runtime, and attempts."""

import contextlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from repl_rl.base.concurrency import derive_seed
from repl_rl.commands import options as shared
from repl_rl.records import Attempt
from repl_rl.rollout.plan import Plan
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.steps import ProblemSequence
from repl_rl.training.train import policy_folder
from repl_rl.viewer.show.display import Screen


def add_policy(parser: ArgumentParser) -> None:
    parser.add_argument("--model", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[])


@contextlib.contextmanager
def opened(args: Namespace) -> Iterator[tuple[Plan, Runtime]]:
    """The policy of `add_policy`, by default the task's starter."""
    options = {"files": (), "overrides": tuple(args.overrides)}
    plan = shared.plan_of({**options, "model": args.model and str(args.model)})
    with Screen() as screen:
        policy = policy_folder(plan, screen)
        loaded = load_policy(plan, policy, say=screen.say)
    with open_runtime(plan, loaded) as runtime:
        yield plan, runtime


def group_attempts(
    problems: ProblemSequence, numbers: Iterable[int], *, size: int, seed: int, name: str
) -> list[Attempt]:
    """Whole groups of `size` siblings; `name` tells their seeds from those of other groups."""
    return [
        Attempt(
            problem=problems[number],
            group_index=number,
            sibling_index=sibling,
            seed=derive_seed(seed, name, number, sibling),
        )
        for number in numbers
        for sibling in range(size)
    ]
