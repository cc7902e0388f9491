"""What a stored trajectory was worth, and what it is worth now.

    stored Scored, Scored anew -> Change

Pure. Knows verdicts and rewards. Does not know files, graders or screens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from repl_rl.show.verdict_words import kind_words
from repl_rl.terminal import signed
from repl_rl.types import Reward, Scored, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Verdict and reward of a trajectory."""

    verdict: VerdictKind | None
    reward: Reward

    @classmethod
    def of(cls, scored: Scored) -> Judgement:
        kind = None if scored.verdict is None else scored.verdict.kind
        return cls(verdict=kind, reward=scored.reward)

    @property
    def is_ungraded(self) -> bool:
        """True where something was submitted and could not be scored."""
        return self.verdict is not None and self.reward.outcome_reward is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one trajectory was worth, and what it is worth now."""

    id: str
    before: Judgement
    after: Judgement

    @property
    def is_scored(self) -> bool:
        """True where both have an outcome reward: only then their totals can be compared."""
        return None not in (self.before.reward.outcome_reward, self.after.reward.outcome_reward)

    @property
    def gain(self) -> float | None:
        """Of the total reward; None where one of the two could not be scored."""
        if not self.is_scored:
            return None
        return self.after.reward.total - self.before.reward.total

    def differences(self) -> Iterator[str]:
        """What differs, a few words each: the verdict, the outcome reward, lines from 1."""
        was, now = self.before, self.after
        if was.verdict is not now.verdict:
            yield f"{kind_words(was.verdict)} -> {kind_words(now.verdict)}"
        outcomes = was.reward.outcome_reward, now.reward.outcome_reward
        if not _is_same(*outcomes):
            yield f"outcome {_numbers(*outcomes)}"
        pairs = zip(was.reward.line_rewards, now.reward.line_rewards, strict=True)
        for number, (old, new) in enumerate(pairs, 1):
            if not _is_same(old, new):
                yield f"line {number} {_numbers(old, new)}"

    @property
    def is_real(self) -> bool:
        """False where verdict and rewards agree: evidence and milliseconds do not count."""
        return any(True for _ in self.differences())


def _is_same(was: float | None, now: float | None) -> bool:
    if was is None or now is None:
        return was is now
    return math.isclose(was, now, abs_tol=1e-9)


def _numbers(was: float | None, now: float | None) -> str:
    """Both, with as many digits as it takes to tell them apart."""
    shown = [_number(value, "+.3f") for value in (was, now)]
    if shown[0] == shown[1]:
        shown = [_number(value, "+.12g") for value in (was, now)]
    return " -> ".join(shown)


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else signed(value, form)
