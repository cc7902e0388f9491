"""Lines that a trajectory shares with another: run again in a kernel of its own.

    Stem -> Session in the state that the other one had

Knows sessions. Does not know tokens or engines.
"""

from __future__ import annotations

from collections.abc import Sequence

from repl_rl.errors import StemError
from repl_rl.records import Line, OutcomeKind, Stem
from repl_rl.rollout.session import Session
from repl_rl.rollout.volatile import kernel_sources, volatile_lines
from repl_rl.transcript.format import strip_line


def can_leave(before: Sequence[Line]) -> bool:
    """Say whether another trajectory can leave one behind these lines of it, as far as they show.

    The next line begins a statement, and no line before it met a limit or had its output cut.
    Whether lines print the same again is what `can_be_had_again` reads their sources for.
    """
    if any(line.outcome.is_truncated for line in before):
        return False
    kinds = [line.outcome.kind for line in before]
    if kinds and kinds[-1] is OutcomeKind.INCOMPLETE:
        return False
    return not any(kind.traits.is_limit or kind.traits.ends for kind in kinds)


def can_be_had_again(before: Sequence[Line], setup: Sequence[str]) -> bool:
    """Say whether another kernel gets into the state behind these lines, run after `setup`."""
    return can_leave(before) and not any(volatile_lines(kernel_sources(before), setup=setup))


async def run_again(stem: Stem, session: Session) -> None:
    """Bring a fresh session into the state after the lines of `stem`.

    Raises StemError where a line is not what it was, and SandboxError if our own side fails.
    """
    for line in stem.trajectory.lines[: stem.num_lines]:
        outcome = await session.run(strip_line(line.source))
        was = line.outcome
        if (outcome.kind, outcome.observation) != (was.kind, was.observation):
            raise StemError(
                f"line {line.index + 1} of {stem.trajectory.problem_id} is {outcome.kind} when it "
                f"runs again, and was {was.kind}"
            )
        session.advance(outcome.kind)
