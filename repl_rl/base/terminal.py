r"""Text and numbers from elsewhere, made fit for one row of a terminal.

    "\x1b[31ma\nb" -> "a\\nb";  "long" * 10**6 -> its ends;  1e99 -> "+1e+99"

Does not know what a row is about, nor who prints it.
"""

from __future__ import annotations

import os

from repl_sandbox.render import clean

_SIZES = {"COLUMNS": range(20, 1001), "LINES": range(4, 1001)}
"""Sizes of a readable terminal, by the names that the environment has for them."""

_LONG = 1e9
"""From here on a number is shown with an exponent: its digits would fill the row."""

_HEAD, _TAIL = 1500, 500
"""Characters kept of a longer text, both ends of it: an error ends in how to go on."""


def forget_odd_size() -> None:
    """Take a size that no terminal has out of the environment, such as the 0 of a container.

    Every library that prints would believe it. Without one a terminal is asked, and a pipe has 80
    columns.
    """
    for name, sizes in _SIZES.items():
        value = os.environ.get(name, "")
        if not (value.isascii() and value.isdigit() and len(value) < 9 and int(value) in sizes):
            os.environ.pop(name, None)


def one_row(text: str) -> str:
    r"""`text` without control sequences, newlines shown as `\n`, a long one without its middle."""
    if (num_omitted := len(text) - _HEAD - _TAIL) > 0:
        text = f"{text[:_HEAD]} ... [{num_omitted:,} characters] ... {text[-_TAIL:]}"
    return clean(text).replace("\n", "\\n")


def signed(value: float, form: str = "+.3f") -> str:
    """The number in `form`, or with an exponent where that would be long."""
    return format(value, form if abs(value) < _LONG else "+.4g")


def shorten(text: str, width: int) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."
