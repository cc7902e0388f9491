"""What each line of a stored trajectory was worth: other continuations of the states around it.

    Scored, Plan, K -> K rollouts from the state before each line -> [Worth]

Knows rollouts. Does not know how a state is had again, nor flags.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from repl_rl.credit.worth import Worth, worths
from repl_rl.engines.models import LoadedModel
from repl_rl.rollout.continuations import attempts_around, check_asked
from repl_rl.rollout.plan import Plan
from repl_rl.show.display import Screen
from repl_rl.tasks.base import make_prompt
from repl_rl.training.evaluate import run_shown
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.train import policy_folder
from repl_rl.types import Scored


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
        check_asked(scored, asked, loaded.codec, source=loaded.source)
        setup = (*self._runtime.origin.setup, *problem.setup)
        attempts = attempts_around(scored, setup, num_branches=num_branches)
        return worths(scored, run_shown(self._runtime, attempts, "branches", self._screen))
