r"""Statements and answers as data sets write them, down to what a problem is made of.

    messages -> the last user's text;  "... Put your answer in \boxed{}." -> "..."
    "... #### 72" -> "72";  "... so \boxed{\frac12}." -> "\frac12"

Pure functions of text. Raises ValueError with a reason; whoever knows the row says where.

Choices of a row are shown below its statement, answered by a letter, and compared as texts:

    ["red", "blue"], answer "1" -> "(A) red\n(B) blue", answer "B"
"""

from __future__ import annotations

import contextlib
import json
import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
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

_FONTS = (
    r"(?:text(?:bf|it|rm|sf|tt|up|sl|normal)?|math(?:bf|it|rm|sf|tt|normal)|mbox|hbox|emph|"
    r"boxed|fbox|boldsymbol|bm)"
)
_DRESSED = re.compile(
    rf"\\{_FONTS}\s*\{{(?P<argument>[^{{}}]*)\}}|\{{\\\w+\s(?P<declared>[^{{}}]*)\}}"
)
_SPACES = re.compile(r"\\[ ,;:!]|~|\\q?quad(?![a-z])")
_MATH = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"))
_WORD = re.compile(r"\(?[A-J]\)?|\([a-j]\)|(?i:true|false|yes|no)|\d{4}-\d\d-\d\d")
"""A choice, a word or a date; a small letter alone is an unknown."""
_LETTER = r"\(?[A-J]\)?"
_CHOICES = re.compile(rf"{_LETTER}(?:\s*(?:,|;|&|,?\s+and\s+|,?\s+or\s+)\s*{_LETTER})+")
_RAISED = re.compile("[\u00b2\u00b3\u00b9\u2070\u2074-\u2079]+")
_ANY_CASE = ("true", "false", "yes", "no")

_LETTER_ASKED = "Submit the letter of the right choice, as a string."
_LETTERED = re.compile(r"\(?([A-Z])[).:]\s*(.+)")
"""A choice that begins with its letter."""
_MOST = len(string.ascii_uppercase)


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
    answer = _single(value, is_solution=is_solution)
    if answer.casefold() == "n/a":
        raise ValueError("no answer")
    return answer


def only(value: Any) -> Any:
    """Return what a list of one holds, and any other value as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _single(value: Any, *, is_solution: bool = False) -> str:
    """The answer or the choice in a cell."""
    value = only(value)
    if isinstance(value, bool | int | float | Decimal):
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


def undressed(text: str) -> str:
    """Return a text without what surrounds all of it: dollars, fonts, a period, spaces.

    Fonts within it go where a choice is left, as of `(\\textbf{C})`.
    """
    text = text.strip().removesuffix(".").strip()
    for opening, closing in _MATH:
        inside = text.removeprefix(opening).removesuffix(closing)
        if len(inside) == len(text) - len(opening + closing) and "$" not in inside:
            text = inside.strip()
            break
    plain = _SPACES.sub(" ", text)
    while match := _DRESSED.search(plain):
        inside = match["argument"] or match["declared"] or ""
        plain = f"{plain[: match.start()]}{inside}{plain[match.end() :]}"
    plain = plain.strip().removesuffix(".").strip()
    return plain if is_choice(plain) or _DRESSED.fullmatch(text) else text


def is_choice(text: str) -> bool:
    """Say whether it is a choice, a list of choices, a date, or a word such as yes."""
    return _WORD.fullmatch(text) is not None or _CHOICES.fullmatch(text) is not None


def normal_text(text: str) -> str:
    """One form for texts that a reader would call the same."""
    text = _RAISED.sub(lambda match: "^" + match[0], text)  # 10² is not 102
    text = _without_marks(unicodedata.normalize("NFKC", text))
    text = undressed(" ".join(text.split()))
    if choice := re.fullmatch(r"\(?\s*([A-Za-z])\s*\)?\.?", text):
        return choice[1].upper()
    if _CHOICES.fullmatch(text):
        return ", ".join(re.findall(r"\b[A-J]\b", text))
    return text.casefold() if text.casefold() in _ANY_CASE else text


def is_same_text(text: str, known: str) -> bool:
    """Say whether a reader would call them the same.

    Known choices that rise, as in `A, C`, are a selection, which has no order. Others are an order.
    """
    if len(text) > MAX_CHARS:
        return False
    given, right = normal_text(text), normal_text(known)
    if _CHOICES.fullmatch(given) and _CHOICES.fullmatch(right):
        letters, known_letters = given.split(", "), right.split(", ")
        is_selection = known_letters == sorted(set(known_letters))
        return (sorted(letters) if is_selection else letters) == known_letters
    return given == right


@dataclass(frozen=True, slots=True)
class Choices:
    """Texts and labels to choose from, in the order of the row."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """The row's own names of them; empty: they have none."""

    def below(self, statement: str) -> str:
        """The statement with the choices below it, unless it has them already."""
        rows = list(zip(string.ascii_uppercase, self.texts, strict=False))
        has_them = all(
            re.search(rf"\b{letter}[).:]*\s*{re.escape(text)}", statement) for letter, text in rows
        )
        listed = [] if has_them else [f"({letter}) {text}" for letter, text in rows]
        return "\n".join([statement, *listed, _LETTER_ASKED])

    def letter(self, answer: str, *, are_indices: bool = False) -> str:
        """The letter that is shown for the right one, by its label, its text or its number from 0.

        `are_indices`: numbers are no texts. Raises ValueError where it is none of them, or may be
        two.
        """
        plain = answer.strip()
        letters = self.labels or tuple(string.ascii_uppercase[: len(self.texts)])
        label = undressed(plain).strip("().")
        matches = {index for index, one in enumerate(letters) if one == label}
        if spelled := _LETTERED.fullmatch(plain):
            pairs = enumerate(zip(letters, self.texts, strict=True))
            matches |= {index for index, pair in pairs if pair == spelled.groups()}
        if self.is_index(plain):
            matches.add(int(plain))
        if not (are_indices and self.is_index(plain)):
            matches |= {index for index, text in enumerate(self.texts) if text == plain}
        if len(matches) != 1:
            which = "none" if not matches else "more than one"
            raise ValueError(f"{which} of the {len(self.texts)} choices")
        return string.ascii_uppercase[matches.pop()]

    def is_index(self, answer: str) -> bool:
        """Say whether it may be a number of one, counted from 0."""
        is_number = answer.isdecimal() and len(answer) < 3
        return is_number and not self.labels and int(answer) < len(self.texts)


def are_indices(rows: Iterable[tuple[Choices, str]]) -> bool:
    """Say whether answers of all rows are indices of their choices, and some no text of theirs."""
    seen = [(choices.is_index(answer), answer in choices.texts) for choices, answer in rows]
    return all(is_index for is_index, _ in seen) and not all(is_text for _, is_text in seen)


def are_from_one(rows: Iterable[tuple[Choices, str]]) -> bool:
    """Say whether all answers are numbers, of which some can only be those of choices from 1 on."""
    pairs = [(choices, answer) for choices, answer in rows if not choices.labels]
    are_numbers = all(answer.isdecimal() and answer != "0" for _, answer in pairs)
    return are_numbers and any(
        answer == str(len(choices.texts)) and answer not in choices.texts
        for choices, answer in pairs
    )


def choices_of(value: Any) -> Choices:
    """The choices in a cell: texts, texts by their labels, or both in two lists.

    A table has them as text, in JSON.
    """
    labels: Sequence[Any] = ()
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):  # any other text is none of these
            value = json.loads(value, parse_int=str, parse_float=str)
    if isinstance(value, dict) and {"text", "label"} <= value.keys():
        value, labels = value["text"], value["label"]
    elif isinstance(value, dict):
        value, labels = list(value.values()), list(value)
    if not isinstance(value, list) or not isinstance(labels, list | tuple):
        raise ValueError("a list of texts is expected, or texts by their labels; or JSON of these")
    if not 2 <= len(value) <= _MOST or (labels and len(labels) != len(value)):
        raise ValueError(f"{len(value)} texts; expected 2 to {_MOST}, each with its label")
    texts = tuple(" ".join(statement_of(_single(one)).split()) for one in value)
    lettered = [match for text in texts if (match := _LETTERED.fullmatch(text))]
    if [match[1] for match in lettered] == list(string.ascii_uppercase[: len(texts)]):
        texts = tuple(match[2] for match in lettered)
    return Choices(texts, tuple(_single(one) for one in labels))


def _sized(text: str) -> str:
    """Return the text. Raises ValueError for an empty one and for one that is too long."""
    if not text:
        raise ValueError("an empty text")
    if len(text) > MAX_CHARS:
        raise ValueError(f"{len(text):,} characters; expected at most {MAX_CHARS:,}")
    return text


def _printable(text: str) -> str:
    """Lines of the text, without control characters: a prompt shows each as a comment."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a character: a surrogate without its other half") from None
    return "\n".join(map(_without_marks, text.splitlines()))


def _without_marks(line: str) -> str:
    """Return the text with spaces for what nobody sees, as a joiner of zero width."""
    return "".join(c if c.isprintable() else " " for c in line)


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return {dict: "an object", type(None): "nothing"}.get(type(value), f"a {type(value).__name__}")
