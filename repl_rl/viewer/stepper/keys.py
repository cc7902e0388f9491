"""The keys of the stepper in one table: what each does, and its words in the help.

Knows names. Does not know what an action does.
"""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding


class KeyRow(NamedTuple):
    """One row of help; several keys where they go together."""

    actions: dict[str, str]
    """Action by key, in textual's names; keys that do the same stand together, with commas."""
    shown: str
    meaning: str
    word: str = ""
    """In the last row of the screen, where there is room."""


_DIGITS = {digit: f"ask_line('{digit}')" for digit in "123456789"}

KEYS = (
    KeyRow({"n,space,down": "run('next')"}, "n  space  down", "run the next line", "next"),
    KeyRow({"b,up": "previous_line"}, "b  up", "back one line, in a fresh kernel", "back"),
    KeyRow(
        {"g": "first_line", "G": "run('end')", "colon": "ask_line('')", **_DIGITS},
        "g  G  4 Enter",
        "to the start; to the end; to line 4, or :4 Enter",
    ),
    KeyRow({"e": "run('error')"}, "e", "run to the next error", "error"),
    KeyRow(
        {"r": "run('reward')"},
        "r",
        "run to the next line with a reward of its own",
        "reward",
    ),
    KeyRow(
        {"d": "run('difference')"},
        "d",
        "run to the next line that differs from its record",
        "diff",
    ),
    KeyRow({"i": "edit"}, "i", "write a line in place of the next, and go on by hand", "edit"),
    KeyRow({"m": "let"}, "m", "let the policy go on from here", "model"),
    KeyRow({"c": "continuations"}, "c", "what the line was worth, by continuations of the policy"),
    KeyRow({"w": "save"}, "w", "save what ran here as a trajectory of its own", "save"),
    KeyRow({"v": "variables"}, "v", "variables of the kernel", "vars"),
    KeyRow({"t": "tokens"}, "t", "tokens of the line at hand and of its output", "tokens"),
    KeyRow({"s": "details"}, "s", "statement, verdict, submission, reward in full", "about"),
    KeyRow({"pagedown": "page(1)", "pageup": "page(-1)"}, "page up/down", "scroll both outputs"),
    KeyRow(
        {"left_square_bracket": "turn(-1)", "right_square_bracket": "turn(1)"},
        "[  ]",
        "previous trajectory; next",
    ),
    KeyRow({"escape": "leave"}, "Esc", "call off what runs; leave a question or a sheet"),
    KeyRow({"question_mark": "keys"}, "?", "this help", "help"),
    KeyRow({"q": "quit"}, "q  Ctrl-C", "quit", "quit"),
)

MARKS = (
    ("green  cyan", "sampled or by hand, an error in red; what was answered"),
    ("!", "it did something else here than its record says"),
    ("*  (0)", "a line of a branch; the reward of the one it replaces"),
)


def bindings() -> list[Binding]:
    found = [
        Binding(key, action, show=False) for row in KEYS for key, action in row.actions.items()
    ]
    return [*found, Binding("ctrl+c", "quit", show=False, priority=True)]


def footer(width: int) -> list[tuple[str, str]]:
    """(key, word) of as many as fit, the last two always among them."""
    known = [(row.shown.split()[0], row.word) for row in KEYS if row.word]
    found: list[tuple[str, str]] = []
    last = known[-2:]
    for pair in known[:-2]:
        taken = [len(key) + len(word) + 3 for key, word in (*found, pair, *last)]
        if sum(taken) <= width + 2:
            found.append(pair)
    return [*found, *last]
