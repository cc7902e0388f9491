"""A strategy: a few template lines with a weight.

Fields in braces are facts of the problem; beside them stand
    {seen}      what the interpreter said last
    {claim}     True if that was 0 or True, `_` if it was another number, else a guess
A line that begins with `?` is played only if the interpreter said neither 0 nor True last.

Knows no family. Weights are relative within a table; they set how often a model sees a way of
working, so they set what reinforcement has to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SUBMIT_LAST = "submit_final_answer(_)"
HOLDS = ("0", "True")
"""Said of an identity that holds."""
GUESS = "3"
"""Where an identity fails, without a look: right one time in three."""


@dataclass(frozen=True, slots=True)
class Strategy:
    weight: float
    lines: tuple[str, ...]
    thought: str = ""
    """A comment that some demonstrations put first."""


def way(weight: float, *lines: str, thought: str = "") -> Strategy:
    """Lines that end in a submission of their own."""
    return Strategy(weight, lines, thought)


def tool(weight: float, *lines: str, thought: str = "") -> Strategy:
    """Lines whose last value is submitted."""
    return Strategy(weight, (*lines, SUBMIT_LAST), thought)


def loop(header: str, condition: str, variable: str) -> Sequence[str]:
    """Collect in a block what satisfies a condition, then show it."""
    body = (f"    if {condition}:", f"        found.append({variable})", "")
    return "found = []", header, *body, "found"
