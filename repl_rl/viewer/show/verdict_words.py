"""A verdict in the words of a person: right or wrong, and how that is known.

    Verdict -> "right (exact)", "wrong (differs at x = 3)"; None -> "nothing submitted"

Files and settings have `VerdictKind` instead. Its names are those of arguments, not of answers: an
answer that refutes a statement is `proved`. Evidence comes from elsewhere, so it is cleaned here.
"""

from __future__ import annotations

from repl_rl.base.terminal import one_row, shorten
from repl_rl.records import Verdict, VerdictKind

_HOW = {
    VerdictKind.PROVED: "exact",
    VerdictKind.SUPPORTED: "by numbers",
    VerdictKind.REFUTED: "counterexample",
    VerdictKind.MALFORMED: "malformed",
}
_MAX_EVIDENCE = 40
"""Characters."""


def kind_words(kind: VerdictKind | None) -> str:
    """Words for all verdicts of a kind: `right (by numbers)`."""
    if kind is None:
        return "nothing submitted"
    return f"{kind.word} ({_HOW[kind]})" if kind in _HOW else kind.word


def verdict_words(verdict: Verdict | None) -> str:
    """Name the verdict with the evidence against a wrong answer, on one row."""
    if verdict is None or not verdict.kind.is_failed or not verdict.evidence:
        return kind_words(None if verdict is None else verdict.kind)
    evidence = shorten(one_row(verdict.evidence), _MAX_EVIDENCE)
    if verdict.kind is VerdictKind.MALFORMED:
        evidence = f"{_HOW[verdict.kind]}: {evidence}"
    return f"{verdict.kind.word} ({evidence})"
