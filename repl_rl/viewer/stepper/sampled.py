"""The trajectory of a policy that went on here, and the tokens of one of its lines.

    Policy.continue_from -> Sampled -> Tokens

Pure. Knows trajectories and vocabularies. Does not know screens, nor who scores.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from repl_rl.records import Line, Trajectory
from repl_rl.transcript.tokens import Decode
from repl_rl.viewer.replay.live import Live, LiveLine
from repl_rl.viewer.replay.vocabulary import token_texts

# T completion tokens, L lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One line of a trajectory, for a table of its tokens."""

    trajectory: Trajectory
    line: Line
    texts: tuple[str, ...] | None  # [T]
    """None where no vocabulary is at hand."""
    reward: float | None
    """The line's own; None where nobody scores."""
    trainer_logprobs: tuple[float, ...] | None = None  # [T]
    advantage: float | None = None
    """None for a line that was in no update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A trajectory as its policy ended it, in the policy's own tokens."""

    trajectory: Trajectory
    tokenizer: str | None
    """Tokenizer, as in `Origin.tokenizer`."""
    texts: tuple[str, ...] | None  # [T]
    num_before: int
    """Lines that the policy went on after."""
    lines: tuple[LiveLine, ...]
    """All that had run at its end; a line that was cut is in the trajectory alone."""

    @classmethod
    def of(
        cls,
        trajectory: Trajectory,
        live: Live,
        *,
        tokenizer: str | None,
        decode: Decode,
        num_before: int,
    ) -> Sampled:
        """Call it before anything else runs. Slow: it decodes each token by itself."""
        return cls(
            trajectory=trajectory,
            tokenizer=tokenizer,
            texts=token_texts(trajectory, decode),
            num_before=num_before,
            lines=tuple(live.lines),
        )

    def is_all_of(self, live: Live) -> bool:
        """True while `live` holds exactly the lines that the policy left."""
        # By identity: a line by hand may read the same, and was not sampled.
        return len(self.lines) == live.at and all(map(operator.is_, self.lines, live.lines))

    def tokens_of(self, index: int, *, reward: float | None) -> Tokens | None:
        """None for a line that stood there before the policy went on."""
        if index < self.num_before:
            return None
        line = self.trajectory.lines[index]
        return Tokens(trajectory=self.trajectory, line=line, texts=self.texts, reward=reward)
