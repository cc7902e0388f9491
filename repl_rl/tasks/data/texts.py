r"""Statements and answers as data sets write them, down to what a problem is made of.

    messages -> the last user's text;  "... Put your answer in \boxed{}." -> "..."
    "... #### 72" -> "72";  "... so \boxed{\frac12}." -> "\frac12"

Pure functions of text. Raises ValueError with a reason; whoever knows the row says where.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MAX_CHARS = 1 << 15
"""Most characters of a statement or an answer. Both travel in one message to the grader's
process."""
_MAX_BARE_SOLUTION = 200
"""Characters of a solution that is nothing but its answer."""

_SENTENCE = re.compile(r"((?<=[.!?])\s+|\n+)")
_FORM = r"(?:\\boxed|####|[\"'`]?Answer:)"
_REQUEST = re.compile(
    r"(?:^|[,;]?\s*\b(?:and|then)\b|[,;])\s*(?:then\s+|please\s+|also\s+|remember to\s+|"
    r"make sure (?:to|that you)\s+|be sure to\s+|you (?:should|must)\s+)*"
    r"(?:put|writ\w+|give|giv\w+|present\w*|output\w*|enclos\w+|express\w*|plac\w+|return\w*|"
    r"provid\w+|box\w*|wrap\w*|stat\w+|report\w*|submit\w*|end\w*|format\w*|conclud\w+)\b"
    r"(?=.*\b(?:answer|result|solution|response|it|value)\b)[^\n]*" + _FORM + r".*$",
    re.IGNORECASE,
)
_RULE = re.compile(
    r"(?:the )?(?:last line of your response|(?:your )?(?:final )?answer) (?:should|must)\b.*"
    + _FORM
    + r".*$",
    re.IGNORECASE,
)
_STOCK = re.compile(
    r"(?:(?:please |let'?s )?(?:reason|think) step by step|"
    r"solve the following (?:math )?problem(?: step by step| efficiently and clearly)?)[.:,]?",
    re.IGNORECASE,
)
"""Remainder of such a request, where nothing else stands beside it."""


def last_user_text(value: Any) -> str:
    """A text itself, or the last message of a user in a conversation."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence):
        raise ValueError(f"{_kind(value)} where a text or messages are expected")
    messages = [one for one in value if isinstance(one, dict) and one.get("role") == "user"]
    if not messages:
        raise ValueError("messages without one of a user")
    content = messages[-1].get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise ValueError("a message with more than text in it")
        content = "\n".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise ValueError("a message without text")
    return content


def statement_of(value: Any) -> str:
    """Statement for a policy, without requests for a form of the answer and control characters."""
    text = _printable(last_user_text(value))
    return _sized(without_requests(text))


def without_requests(text: str) -> str:
    r"""The text without "put your answer in \boxed{}" and its like: the REPL takes answers."""
    parts = _SENTENCE.split(text)
    sentences, has_cut = [], False
    for sentence, gap in zip(parts[::2], [*parts[1::2], ""], strict=True):
        rest = _RULE.sub("", _REQUEST.sub("", sentence)).strip()
        if rest != sentence.strip():
            has_cut = True
            if not rest or _STOCK.fullmatch(rest):
                continue
            sentence = rest if rest[-1] in ".!?:" else f"{rest}."
        sentences.append((sentence, gap))
    if has_cut:
        sentences = [one for one in sentences if not _STOCK.fullmatch(one[0].strip())]
    stated = "".join(f"{sentence}{gap}" for sentence, gap in sentences)
    return _tidy(stated) or _tidy(text)


def answer_of(value: Any, *, is_solution: bool = False) -> str:
    r"""The gold answer in a cell: after `####`, in the last `\boxed{}`, or all of it."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool | int | float):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"{_kind(value)} where one answer is expected")
    text = _printable(value)
    if "####" in text:
        answer = text.rpartition("####")[2].strip()
    elif (boxed := last_boxed(text)) is not None:
        answer = boxed.strip()
    elif is_solution and ("\n" in text.strip() or len(text) > _MAX_BARE_SOLUTION):
        raise ValueError(r"a solution with neither #### nor \boxed{}")
    else:
        answer = text.strip()
    return _sized(answer)


def tests_of(value: Any) -> str:
    """Source of tests: a text, or a list of statements."""
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise ValueError(f"{_kind(value)} where source of tests is expected")
    return _sized(value)


def _sized(text: str) -> str:
    """Return the text. Raises ValueError for an empty one and for one that is too long."""
    if not text:
        raise ValueError("an empty text")
    if len(text) > MAX_CHARS:
        raise ValueError(f"{len(text):,} characters; expected at most {MAX_CHARS:,}")
    return text


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}`; None where there is none that closes."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    depth, begin = 0, text.index("{", start) + 1
    for at in range(begin, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}" and depth:
            depth -= 1
        elif text[at] == "}":
            return text[begin:at]
    return None


def _printable(text: str) -> str:
    """Lines of the text, without control characters: a prompt shows each as a comment."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a character: a surrogate without its other half") from None
    lines = text.splitlines()
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return {dict: "an object", type(None): "nothing"}.get(type(value), f"a {type(value).__name__}")
