r"""Choices of a row: shown below its statement, answered by a letter, and compared as texts.

    ["red", "blue"], answer "1" -> "(A) red\n(B) blue", answer "B"
    {"text": ["red", "blue"], "label": ["1", "2"]}, answer "1" -> the same choices, answer "A"

Brings texts of choices to one form (`normal_text`, `undressed`), as graders compare them. Pure
functions of text. Raises ValueError with a reason; whoever knows the row says where.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from repl_rl.tasks.data.texts import answer_of, statement_of

_FONTS = (
    r"(?:text(?:bf|it|rm|sf|tt|up|sl|normal)?|math(?:bf|it|rm|sf|tt|normal)|mbox|hbox|emph|"
    r"boxed|fbox|boldsymbol|bm)"
)
_DRESSED = re.compile(
    rf"\\{_FONTS}\s*\{{(?P<argument>[^{{}}]*)\}}|\{{\\\w+\s(?P<declared>[^{{}}]*)\}}"
)
_SPACES = re.compile(r"\\[ ,;:!]|~|\\q?quad(?![a-z])")
_MATH = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"))
_WORD = re.compile(r"\(?[A-J]\)?|\([a-j]\)|(?i:true|false|yes|no)")
"""A choice or a word; a small letter alone is an unknown."""
_LETTER = r"\(?[A-J]\)?"
_CHOICES = re.compile(rf"{_LETTER}(?:\s*(?:,|;|&|,?\s+and\s+|,?\s+or\s+)\s*{_LETTER})+")
_ANY_CASE = ("true", "false", "yes", "no")


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
    """Say whether it is a choice, a list of choices, or a word such as yes."""
    return _WORD.fullmatch(text) is not None or _CHOICES.fullmatch(text) is not None


def normal_text(text: str) -> str:
    """One form for texts that a reader would call the same."""
    text = undressed(" ".join(unicodedata.normalize("NFKC", text).split()))
    if choice := re.fullmatch(r"\(?\s*([A-Za-z])\s*\)?\.?", text):
        return choice[1].upper()
    if _CHOICES.fullmatch(text):
        return ", ".join(sorted(set(re.findall(r"\b[A-J]\b", text))))
    return text.casefold() if text.casefold() in _ANY_CASE else text


_FORM = "Submit the letter of the right choice, as a string."
_LETTERED = re.compile(r"\(?([A-Z])[).:]\s*(.+)")
"""A choice that begins with its letter."""
_MOST = len(string.ascii_uppercase)


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
        return "\n".join([statement, *listed, _FORM])

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
    """Say whether answers of all rows are places of their choices, and some no text of theirs."""
    seen = [(choices.is_index(answer), answer in choices.texts) for choices, answer in rows]
    return all(is_index for is_index, _ in seen) and not all(is_text for _, is_text in seen)


def choices_of(value: Any) -> Choices:
    """The choices in a cell: texts, texts by their labels, or both in two lists."""
    labels: Sequence[Any] = ()
    if isinstance(value, dict) and {"text", "label"} <= value.keys():
        value, labels = value["text"], value["label"]
    elif isinstance(value, dict):
        value, labels = list(value.values()), list(value)
    if not isinstance(value, list) or not isinstance(labels, list | tuple):
        raise ValueError("a list of texts is expected, or texts by their labels")
    if not 2 <= len(value) <= _MOST or (labels and len(labels) != len(value)):
        raise ValueError(f"{len(value)} texts; expected 2 to {_MOST}, each with its label")
    texts = tuple(" ".join(statement_of(answer_of(one)).split()) for one in value)
    lettered = [match for text in texts if (match := _LETTERED.fullmatch(text))]
    if [match[1] for match in lettered] == list(string.ascii_uppercase[: len(texts)]):
        texts = tuple(match[2] for match in lettered)
    return Choices(texts, tuple(answer_of(one) for one in labels))
