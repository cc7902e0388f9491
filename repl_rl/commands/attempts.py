"""The one attempt that a person wants, at a problem named by its id.

    task, id, seed -> Attempt

Knows tasks. Does not know who attempts it, a policy or a person.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from repl_rl.errors import ConfigError
from repl_rl.seeds import derive_seed
from repl_rl.show.display import Screen
from repl_rl.tasks.base import Task
from repl_rl.types import Attempt, Problem, Split

NUM_LOOKED_AT = 5_000
"""How many problems of each source are searched for an id: drawing one may take 20 ms."""


def find_attempt(task: Task, problem_id: str | None, *, seed: int, screen: Screen) -> Attempt:
    """At the problem of this id, or at the first one that training with `seed` would draw.

    Its own seed is that of the first rollout of such a training. Raises ConfigError where the id is
    not found, or the task has no problems.
    """
    if problem_id is None:
        problem = next(_sources(task, seed=seed)[0], None)
    else:
        problem = _found(task, problem_id, seed=seed, screen=screen)
    if problem is None:
        raise ConfigError(f"task {task.name!r} has no problems in its split {Split.TRAIN!s}")
    return first_attempt(problem, seed=seed)


def first_attempt(problem: Problem, *, seed: int) -> Attempt:
    """At `problem`, with the seed of the first rollout of a training with `seed`."""
    rollout_seed = derive_seed(seed, "rollout", 0, 0, 0)
    return Attempt(problem=problem, group_index=0, sibling_index=0, seed=rollout_seed)


def _sources(task: Task, *, seed: int) -> list[Iterator[Problem]]:
    """What training draws, what is held out, and what `repl-rl tasks NAME` prints."""
    return [
        task.problems(Split.TRAIN, seed=derive_seed(seed, "train")),
        task.problems(Split.HELD_OUT, seed=derive_seed(seed, "held-out")),
        task.problems(Split.TRAIN, seed=seed),
    ]


def _found(task: Task, problem_id: str, *, seed: int, screen: Screen) -> Problem:
    """Search all sources side by side, so an early problem is found early."""
    sources = _sources(task, seed=seed)
    rounds: Iterator[tuple[Problem | None, ...]] = itertools.zip_longest(*sources)
    num_seen, example = 0, None
    with screen.bar("looking for the problem", NUM_LOOKED_AT) as update:
        for number, drawn in enumerate(itertools.islice(rounds, NUM_LOOKED_AT), 1):
            update(number)
            for problem in filter(None, drawn):
                if problem.id == problem_id:
                    return problem
                num_seen, example = num_seen + 1, example or problem.id
    raise ConfigError(
        f"no problem {problem_id!r} among {num_seen:,} of task {task.name!r} at seed {seed}; "
        f"expected an id such as {example!r}, as `repl-rl tasks {task.name}` prints them"
    )
