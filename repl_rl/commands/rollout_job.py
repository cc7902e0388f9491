"""Sample one trajectory, show it as it grows, and check it.

    config, problem -> policy -> one rollout, shown as it grows -> Subject -> findings

Knows the order of things. Does not know flags, nor what is checked.
"""

from __future__ import annotations

from dataclasses import replace

from repl_rl.commands.attempts import find_attempt
from repl_rl.commands.rollout_subject import Subject, score
from repl_rl.engines.models import LoadedModel
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.sampler import LineSampler
from repl_rl.show.display import Screen
from repl_rl.show.rollout_view import LineStream
from repl_rl.tasks.base import make_prompt
from repl_rl.training.audit import Counts, Witness
from repl_rl.training.runtime import Runtime, load_policy, open_runtime
from repl_rl.training.train import policy_folder, say_runtime
from repl_rl.transcript.encoding import Encoding
from repl_rl.types import Attempt, Origin, Scored


def roll_out(plan: Plan, problem_id: str | None, screen: Screen) -> tuple[Subject, Origin]:
    """One rollout of the plan's policy, and where it comes from; raises as `train`."""
    plan = alone(plan)
    attempt = find_attempt(plan.task, problem_id, seed=plan.config.seed, screen=screen)
    loaded = load_policy(plan, policy_folder(plan, screen), say=screen.say)
    witness = Witness()
    with open_runtime(plan, loaded, watch=witness.watch) as runtime:
        say_runtime(runtime, screen)
        screen.say(f"problem {attempt.problem.id}, seed {attempt.seed}\n")
        scored = run_shown(runtime, attempt, loaded, screen)
        subject = _subject(plan, loaded, scored, witness, context_tokens=runtime.context_tokens)
        return subject, runtime.origin


def alone(plan: Plan) -> Plan:
    """The same plan for one trajectory, which needs one row of the cache and one kernel."""
    config = plan.config
    return plan.changed(
        sampling=replace(config.sampling, max_in_flight=1),
        sandbox=replace(config.sandbox, standby=1),
    )


def run_shown(runtime: Runtime, attempt: Attempt, loaded: LoadedModel, screen: Screen) -> Scored:
    """Make one trajectory. Its lines are shown as they come; those of another loop at its end."""
    sampler = runtime.sampler
    if isinstance(sampler, LineSampler):
        sampler.on_line = LineStream(loaded.codec, screen.say).hear
        return runtime.run([attempt])[0]
    scored = runtime.run([attempt])[0]
    screen.transcript(scored, loaded.codec.decode)
    return scored


def _subject(
    plan: Plan,
    loaded: LoadedModel,
    scored: Scored,
    witness: Witness,
    *,
    context_tokens: int,
) -> Subject:
    trajectory, counts = scored.trajectory, Counts()
    fmt, config = plan.format(loaded.chat_template), plan.config
    counts.take_witnessed(trajectory, witness)
    return Subject(
        scored=scored,
        prompt=make_prompt(plan.task, scored.problem, fmt),
        encoding=Encoding(fmt, loaded.codec),
        config=config,
        context_tokens=context_tokens,
        scores=score(loaded, trajectory, temperature=config.sampling.temperature),
        is_exact=loaded.precision.is_exact,
        num_drifted=counts.drifted,
    )
