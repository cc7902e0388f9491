"""Worth of each line of a stored trajectory, by other continuations of the states around it.

    Scored, Plan, K -> K rollouts from the state before each line -> [Worth]

Knows rollouts. Does not know how a state is had again, nor flags.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from repl_rl.credit.worth import Worth, worths
from repl_rl.records import Scored
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.prefixes import attempts_around, check_asked
from repl_rl.tasks.base import make_prompt
from repl_rl.training.evaluate import run_shown
from repl_rl.training.runtime import load_policy, open_runtime
from repl_rl.training.train import policy_folder
from repl_rl.viewer.show.display import Screen


@contextlib.contextmanager
def open_worths(plan: Plan, screen: Screen) -> Iterator[Callable[[Scored, int], list[Worth]]]:
    """A policy that goes on from the lines of stored trajectories, as a function.

    Of a trajectory and a number of branches it returns what each line was worth, [L], by so many
    continuations of the state before it. It raises ConfigError where the policy would have been
    asked in other tokens. Raises ConfigError as `open_runtime`.
    """
    loaded = load_policy(plan, policy_folder(plan, screen), say=screen.say)
    fmt = plan.format(loaded.chat_template)
    with open_runtime(plan, loaded) as runtime:

        def worths_of(scored: Scored, num_branches: int) -> list[Worth]:
            problem = scored.problem
            asked = make_prompt(plan.task, problem, fmt)
            check_asked(scored, asked, loaded.codec, source=loaded.source)
            setup = (*runtime.origin.setup, *problem.setup)
            attempts = attempts_around(scored, setup, num_branches=num_branches)
            return worths(scored, run_shown(runtime, attempts, "branches", screen))

        yield worths_of
