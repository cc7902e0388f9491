r"""What others wrote and what they measured, made fit for one row of a terminal.

    "\x1b[31ma\nb" -> "a\\nb";  "long" * 10**6 -> its ends;  1e99 -> "+1e+99"

Pure. Does not know what a row is about, nor who prints it.
"""

from __future__ import annotations

from repl_sandbox.render import clean

_LONG = 1e9
"""From here on a number is told by its size: it would fill the row with digits."""

_HEAD, _TAIL = 1500, 500
"""Characters that are kept of a text that is longer: an error ends in what one may do."""


def one_row(text: str) -> str:
    r"""`text` without what a terminal obeys, its newlines shown as `\n`, its middle left out."""
    if (num_omitted := len(text) - _HEAD - _TAIL) > 0:
        text = f"{text[:_HEAD]} ... [{num_omitted:,} characters] ... {text[-_TAIL:]}"
    return clean(text).replace("\n", "\\n")


def signed(value: float, form: str = "+.3f") -> str:
    """The number in `form`, or by its size where that would be long."""
    return format(value, form if abs(value) < _LONG else "+.4g")
