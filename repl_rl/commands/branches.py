"""What each line of a stored trajectory was worth: other continuations of the states around it.

    Scored, Plan, K -> K rollouts from the state before each line -> [Worth]

Continuations are exact: the lines before run again in a kernel with the same seed, and their tokens
are those that were sampled. Knows rollouts. Does not know screens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from repl_rl.credit.worth import Worth, worths
from repl_rl.engines.models import LoadedModel
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.stems import can_leave
from repl_rl.rollout.volatile import kernel_sources, volatile_lines
from repl_rl.seeds import derive_seed
from repl_rl.show.display import Screen
from repl_rl.tasks.base import make_prompt
from repl_rl.training.evaluate import run_shown
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.train import policy_folder
from repl_rl.transcript.encoding import prompt_ids
from repl_rl.transcript.format import problem_sources
from repl_rl.types import Attempt, Scored, Stem


def attempts_around(scored: Scored, setup: Sequence[str], *, num_branches: int) -> list[Attempt]:
    """`num_branches` for each state before a line that can be had again; `group_index` is the line.

    `setup` is what its kernel had run before the first line.
    """
    trajectory = scored.trajectory
    reasons_L = volatile_lines(kernel_sources(trajectory.lines), setup=setup)
    attempts = []
    for at in range(len(trajectory.lines)):
        if not can_leave(trajectory, at) or any(reasons_L[:at]):
            continue
        attempts += [
            Attempt(
                problem=scored.problem,
                group_index=at,
                sibling_index=sibling,
                seed=derive_seed(trajectory.seed, "branches", at, sibling),
                stem=Stem(trajectory=trajectory, num_lines=at) if at else None,
            )
            for sibling in range(num_branches)
        ]
    return attempts


@contextlib.contextmanager
def open_referee(plan: Plan, screen: Screen) -> Iterator[Referee]:
    """A policy that goes on from the lines of stored trajectories; see `Referee`.

    Raises ConfigError as `open_runtime`.
    """
    policy = policy_folder(plan, screen)
    loaded = load_policy(plan, policy, say=screen.say)
    with open_runtime(plan, loaded) as runtime:
        yield Referee(plan, loaded, runtime, screen)


class Referee:
    """Says what lines were worth, by rollouts of one policy."""

    def __init__(self, plan: Plan, loaded: LoadedModel, runtime: Runtime, screen: Screen) -> None:
        self._plan = plan
        self._loaded = loaded
        self._runtime = runtime
        self._screen = screen

    def worths(self, scored: Scored, *, num_branches: int) -> list[Worth]:
        """What each line was worth, [L], by `num_branches` continuations of the state before it.

        Raises ConfigError where this policy would have been asked in other tokens.
        """
        plan, loaded, problem = self._plan, self._loaded, scored.problem
        asked = make_prompt(plan.task, problem, plan.format(loaded.chat_template))
        if tuple(prompt_ids(asked, loaded.codec)) != scored.trajectory.prompt_ids:
            raise ConfigError(
                f"the prompt of problem {problem.id} has other tokens with {loaded.source!r}; give "
                f"the model that sampled its trajectory"
            )
        setup = (*self._runtime.origin.setup, *problem_sources(problem))
        attempts = attempts_around(scored, setup, num_branches=num_branches)
        return worths(scored, run_shown(self._runtime, attempts, "branches", self._screen))
