"""Lines that a trajectory shares with another: run again in a kernel of its own.

    Stem -> Session in the state that the other one had

Knows sessions. Does not know tokens or engines.
"""

from __future__ import annotations

from collections.abc import Sequence

from repl_rl.errors import StemError
from repl_rl.rollout.session import Session
from repl_rl.transcript.format import strip_line
from repl_rl.types import Line, OutcomeKind, Stem


def can_leave(before: Sequence[Line]) -> bool:
    """Whether another trajectory can leave one behind these lines of it, as far as they show.

    The next line begins a statement, and no line before it met a limit or had its output cut.
    Whether lines print the same again is for those who read sources to say.
    """
    if any(line.outcome.is_truncated for line in before):
        return False
    kinds = [line.outcome.kind for line in before]
    if kinds and kinds[-1] is OutcomeKind.INCOMPLETE:
        return False
    return not any(kind.traits.is_limit or kind.traits.ends for kind in kinds)


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
