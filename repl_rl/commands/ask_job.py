"""One rollout at a problem that nobody knows the answer to, shown as it grows.

    plan, Problem -> policy -> one rollout -> Trajectory

Knows the order of things. Does not know flags. Nothing is graded.
"""

from __future__ import annotations

from repl_rl.commands.attempts import first_attempt
from repl_rl.commands.rollout_job import alone, run_shown
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.scoring import open_unscored
from repl_rl.show.display import Screen
from repl_rl.show.rollout_view import ending_rows
from repl_rl.training.asked import asking
from repl_rl.training.runtime import load_policy, open_runtime
from repl_rl.training.train import policy_folder, say_runtime
from repl_rl.types import Problem, Trajectory


def answer(plan: Plan, problem: Problem, screen: Screen) -> Trajectory:
    """What the plan's policy does about `problem`; raises as `train`."""
    policy = policy_folder(plan, screen)
    plan = asking(alone(plan), [problem])
    loaded = load_policy(plan, policy, say=screen.say)
    with open_runtime(plan, loaded, open_scorer=open_unscored) as runtime:
        say_runtime(runtime, screen)
        screen.say("")
        attempt = first_attempt(problem, seed=plan.config.seed)
        trajectory = run_shown(runtime, attempt, loaded, screen).trajectory
    screen.say("")
    for row in ending_rows(trajectory):
        screen.say(row)
    return trajectory
