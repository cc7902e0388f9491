"""What a line was worth, in words for the row of status.

Pure. Knows values. Does not know how they came about.
"""

from __future__ import annotations

from repl_rl.credit.worth import Value, Worth
from repl_rl.replay.stepper.texts import number


def worth_words(worth: Worth, *, is_end: bool) -> str:
    """`is_end`: nothing follows the line, so the value after it is what was earned.

    >>> from repl_rl.types import Line, LineOutcome, OutcomeKind
    >>> outcome = LineOutcome(kind=OutcomeKind.OK_SILENT)
    >>> line = Line(index=2, source=" x = 2\\n", start=0, stop=7, outcome=outcome)
    >>> before = Value(mean=0.25, error=0.25, count=4)
    >>> print(worth_words(Worth(line=line, before=before, after=None), is_end=False))
    nobody can say what line 3 was worth: before it +0.250 (4 continuations), after it unknown \
(its state cannot be had again)
    """
    place, gain = f"line {worth.line.index + 1}", worth.gain
    head = (
        f"nobody can say what {place} was worth"
        if gain is None
        else f"{place} was worth {number(gain.mean)}{_error(gain)}"
    )
    after = _value(worth.after, is_end=is_end)
    return f"{head}: before it {_value(worth.before)}, after it {after}"


def _error(gain: Value) -> str:
    return "" if gain.error is None else f", standard error {gain.error:.3f}"


def _value(value: Value | None, *, is_end: bool = False) -> str:
    if value is None:
        return f"unknown ({'it was not scored' if is_end else 'its state cannot be had again'})"
    plural = "" if value.count == 1 else "s"
    how = "where it ended" if is_end else f"{value.count} continuation{plural}"
    return f"{number(value.mean)} ({how})"
