"""Rollouts that say what a line was worth: others that go on from the states around it.

    Scored, K -> K attempts from each state -> (a runner) -> `credit.worth`

Continuations are exact: the lines before run again in a kernel with the same seed, and their tokens
are those that were sampled. Knows attempts and prompts. Does not know engines, nor who runs them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from repl_rl.base.concurrency import derive_seed
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Scored, Stem
from repl_rl.rollout.stems import can_leave
from repl_rl.rollout.volatile import kernel_sources, volatile_lines
from repl_rl.transcript.encoding import prompt_ids
from repl_rl.transcript.format import Prompt
from repl_rl.transcript.tokens import Codec


def check_asked(scored: Scored, prompt: Prompt, codec: Codec, *, source: str) -> None:
    """ConfigError where the model from `source` would have been asked in other tokens."""
    if tuple(prompt_ids(prompt, codec)) != scored.trajectory.prompt_ids:
        raise ConfigError(
            f"the prompt of problem {scored.problem.id} has other tokens with {source!r}; give "
            f"the model that sampled its trajectory"
        )


def attempts_around(
    scored: Scored,
    setup: Sequence[str],
    *,
    num_branches: int,
    states: Container[int] | None = None,
) -> list[Attempt]:
    """`num_branches` for each state before a line that can be had again; `group_index` is the line.

    `setup` is what its kernel had run before the first line. `states` are the lines that are asked
    for, by default all.
    """
    trajectory = scored.trajectory
    reasons_L = volatile_lines(kernel_sources(trajectory.lines), setup=setup)
    attempts = []
    for at in range(len(trajectory.lines)):
        is_asked = states is None or at in states
        if not is_asked or not can_leave(trajectory.lines[:at]) or any(reasons_L[:at]):
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
