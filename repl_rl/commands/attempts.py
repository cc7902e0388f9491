"""The one attempt that a person wants to see, by a person or by a policy, and who makes it.

    TaskPlan, id -> Attempt;  Plan -> an open policy, Attempt -> Scored, shown as it grows

Knows tasks and the order in which a policy is opened. Does not know why it is looked at.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from repl_rl.base.concurrency import derive_seed
from repl_rl.engines.base import Engine
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Problem, Scored, Split
from repl_rl.rollout.plan import Plan, TaskPlan, is_line_loop
from repl_rl.viewer.show.display import Screen
from repl_rl.viewer.show.rollout_view import LineStream

if TYPE_CHECKING:
    from repl_rl.models.loading import LoadedModel
    from repl_rl.training.runtime import Runtime

NUM_LOOKED_AT = 5_000
"""Problems of each source that are searched for an id: drawing one may take 20 ms."""
PROBLEM = click.option(
    "--problem", metavar="ID", help="Problem id, from `repl-rl tasks` or a trajectory [the first]."
)


def find_attempt(plan: TaskPlan, problem_id: str | None, screen: Screen) -> Attempt:
    """Make an attempt at the problem of this id, or at the first one of training.

    Its own seed is that of the first rollout of such a training. Raises ConfigError where the id is
    not found, or the task has no problems.
    """
    if problem_id is None:
        problem = next(_sources(plan)[0], None)
    else:
        problem = _search(plan, problem_id, screen)
    if problem is None:
        raise ConfigError(f"task {plan.task_name!r} has no problems in its split {Split.TRAIN!s}")
    return first_attempt(problem, seed=plan.seed)


def first_attempt(problem: Problem, *, seed: int) -> Attempt:
    """Make an attempt at `problem`, with the seed of the first rollout of training with `seed`."""
    rollout_seed = derive_seed(seed, "rollout", 0, 0, 0)
    return Attempt(problem=problem, group_index=0, sibling_index=0, seed=rollout_seed)


def _sources(plan: TaskPlan) -> list[Iterator[Problem]]:
    """Return the problems of training, the held-out ones, and those of `repl-rl tasks NAME`."""
    task, seed = plan.task, plan.seed
    return [
        task.problems(Split.TRAIN, seed=derive_seed(seed, "train")),
        task.problems(Split.HELD_OUT, seed=derive_seed(seed, "held-out")),
        task.problems(Split.TRAIN, seed=seed),
    ]


def _search(plan: TaskPlan, problem_id: str, screen: Screen) -> Problem | None:
    """Search all sources side by side, so an early problem is found early. None: they are empty."""
    rounds: Iterator[tuple[Problem | None, ...]] = itertools.zip_longest(*_sources(plan))
    seen: dict[str, Problem] = {}  # several sources may hold the same problem
    with screen.bar("looking for the problem", NUM_LOOKED_AT) as update:
        for number, drawn in enumerate(itertools.islice(rounds, NUM_LOOKED_AT), 1):
            update(number)
            seen |= {problem.id: problem for problem in filter(None, drawn)}
            if problem_id in seen:
                return seen[problem_id]
    if not seen:
        return None
    raise ConfigError(
        f"no problem {problem_id!r} among {len(seen):,} of task {plan.task_name!r} at seed "
        f"{plan.seed}; expected an id such as {next(iter(seen))!r}, or one that `repl-rl tasks "
        f"{plan.task_name}` prints"
    )


@contextlib.contextmanager
def open_policy(
    plan: Plan,
    screen: Screen,
    *,
    problem: Problem | None = None,
    watch: Callable[[Engine], Engine] = lambda engine: engine,
) -> Iterator[tuple[LoadedModel, Runtime]]:
    """The plan's policy for one trajectory at a time, which takes one row of the cache.

    `problem` is one that nobody grades, in place of the task's; `watch` is that of `open_runtime`.
    Raises as `train`.
    """
    from repl_rl.training import evaluate as asked  # torch: seconds
    from repl_rl.training import runtime, train

    plan = plan.changed(
        sampling=replace(plan.sampling, max_in_flight=1),
        sandbox=replace(plan.sandbox, standby=1),
    )
    policy = train.policy_folder(plan, screen)
    if problem is not None:
        plan = asked.asking(plan, [problem])
    loaded = runtime.load_policy(plan, policy, say=screen.say)
    with runtime.open_runtime(plan, loaded, say=screen.say, watch=watch) as opened:
        train.say_runtime(opened, screen)
        yield loaded, opened


def run_shown(runtime: Runtime, attempt: Attempt, loaded: LoadedModel, screen: Screen) -> Scored:
    """Make one trajectory. Its lines are shown as they come; those of another loop at its end."""
    sampler = runtime.runner.sampler
    if is_line_loop(sampler):
        sampler.on_line = LineStream(loaded.codec, screen.say).show_line
        return runtime.run([attempt])[0]
    scored = runtime.run([attempt])[0]
    screen.transcript(scored, loaded.codec.decode)
    return scored
