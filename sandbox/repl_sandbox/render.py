r"""Text of a transcript, made from what a kernel reports.

"<object at 0x7f3a>\x1b[31m!" -> "<object at 0x1>!\n"

Pure. Applied on the trusted side, so code in a kernel cannot skip it. Knows text. Does not know
who wrote it, nor tokens: a cap in tokens is applied elsewhere, after the cap in characters.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping

# Whole sequences, so that their printable part goes with the escape character.
ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]"
)
# C0 except \t and \n, DEL and C1, and the marks that reorder text on a screen.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Lines, columns and places of the cursor: what stands behind these stands elsewhere on a screen.
MOVES = re.compile(r"\x1b\[[0-?]*[ -/]*[A-I`adefuZ]|\x1b[DEM78]|[\b\v\f\r\x1c-\x1e\x85]")
APART = re.compile("(?<=[^\r\n])\r+(?=[^\r\n])")
SURROGATE = re.compile("[\ud800-\udfff]")
ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]+")
# At most 12 digits: a hostile file may hold a number that is too long for `int`.
OMISSION = re.compile(r"^\.\.\. \[(\d{1,12}) characters omitted\] \.\.\.$", re.MULTILINE)
"""Line that stands where text was cut, with the number of characters that are missing."""


def clean(text: str) -> str:
    """`text` without terminal sequences, control characters, bidi marks and lone surrogates."""
    if text.isascii() and text.isprintable():
        return text
    return SURROGATE.sub("\ufffd", UNSEEN.sub("", ANSI.sub("", text)))


def set_apart(text: str) -> str:
    r"""`text` with a line for each place where a screen would show it: `12\r34` is `12\n34`."""
    if text.isascii() and text.isprintable():
        return text
    return APART.sub("\n", MOVES.sub("\r", text)).replace("\r", "")


def number_addresses(text: str, ordinals: MutableMapping[str, str]) -> str:
    """`text` with ` at 0x7f3a...` replaced by ` at 0x1`, ` at 0x2`... in order of appearance.

    `ordinals` belongs to one kernel and grows: the same address keeps its number from line to line.
    """
    if " at 0x" not in text:
        return text
    return ADDRESS.sub(
        lambda match: ordinals.setdefault(match[0], f"0x{len(ordinals) + 1:x}"), text
    )


def render(
    head: str,
    tail: str = "",
    *,
    num_omitted: int = 0,
    max_chars: int,
    ordinals: MutableMapping[str, str],
) -> tuple[str, bool]:
    """(text between two prompts, whether it is cut); it ends in a newline unless empty.

    `num_omitted` characters after `head` are already missing.

    Cut text keeps two thirds of `max_chars` from its head and one third from its tail, around a
    line that states how many characters are missing. That line and a closing newline are not
    counted.
    """
    if not num_omitted:
        head, tail = head + tail, ""
    head = number_addresses(clean(set_apart(head)), ordinals)
    tail = number_addresses(clean(set_apart(tail)), ordinals)
    if not num_omitted and len(head) <= max_chars:
        return _closed(head), False
    return _cut(head, tail, num_omitted, max_chars), True


def truncate(text: str, max_chars: int) -> str:
    """Rendered `text`, cut to `max_chars` by the same rule. Short text comes back unchanged."""
    return text if len(text) <= max_chars else _cut(text, "", 0, max_chars)


def _cut(head: str, tail: str, num_omitted: int, max_chars: int) -> str:
    num_omitted += len(head) + len(tail)
    first = head[: max_chars - max_chars // 3]
    last = _last(tail or head, max_chars // 3)
    num_omitted -= len(first) + len(last)
    return f"{_closed(first)}... [{num_omitted} characters omitted] ...\n{_closed(last)}"


def _last(text: str, num_chars: int) -> str:
    return text[max(0, len(text) - num_chars) :]


def _closed(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
