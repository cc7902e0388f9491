r"""Answers that are words: a choice such as (B), several of them, yes and no, any text.

    \textbf{(C)} -> (C);   A and C -> A, C

Two texts are the same answer where `normal_text` makes one of them. Knows no value and no grader.
"""

from __future__ import annotations

import re
import unicodedata

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
    bare = _SPACES.sub(" ", text)
    while found := _DRESSED.search(bare):
        inside = found["argument"] or found["declared"] or ""
        bare = f"{bare[: found.start()]}{inside}{bare[found.end() :]}"
    bare = bare.strip().removesuffix(".").strip()
    return bare if is_choice(bare) or _DRESSED.fullmatch(text) else text


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
