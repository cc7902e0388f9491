r"""A value and its unit: 12 \text{ cm}^2, \$5, 50\%, 30^\circ, 25^\circ\text{C}.

A unit is what stood in a font for text, or words behind a lone number. A letter alone behind a
number may be both, so it is read as both. Within `2\pi r h` nothing is a unit.
"""

from __future__ import annotations

import re

from repl_rl.tasks.data.latex.atoms import FUNCTIONS, PROSE, Atom, Atoms
from repl_rl.tasks.data.latex.brackets import flattened, outside
from repl_rl.tasks.data.latex.units import LETTERS, is_unit

_PERCENT = re.compile(r"%|per ?cent|percentage points?", re.IGNORECASE)
_TEMPERATURE = re.compile(r"(?:deg|degrees?) (?:C|F|K|Celsius|Fahrenheit|Kelvin)", re.IGNORECASE)
_UPRIGHT = PROSE | {"mathrm", "mathsf", "rm", "sf"}
"""Fonts that tell a unit from an unknown."""
_MARKS = ("*", "/", "%", "deg", "'", "^")


def without_unit(atoms: Atoms, *, letters_are_units: bool) -> tuple[Atoms, str]:
    """(the value, its unit, empty if there is none)."""
    value, money = _without_dollar(atoms)
    for length in range(1, len(value)):
        behind = value[length:]
        text = plain_text(behind)
        if text is None or not _may_follow(value[:length], behind, text, letters_are_units):
            continue
        unit = "%" if _PERCENT.fullmatch(text) else text
        return value[:length], f"{money} {unit}".strip()
    return value, money


def _without_dollar(atoms: Atoms) -> tuple[Atoms, str]:
    for index in (0, 1):
        is_signed = index == 0 or (bool(atoms) and atoms[0].text in ("-", "+"))
        if is_signed and len(atoms) > index + 1 and _is_dollar(atoms[index]):
            return atoms[:index] + atoms[index + 1 :], "$"
    if len(atoms) > 1 and _is_dollar(atoms[-1]):
        return atoms[:-1], "$"
    return atoms, ""


def _is_dollar(atom: Atom) -> bool:
    return (atom.kind == "mark" and atom.text == "$") or (
        atom.kind == "text" and atom.text in ("$", "\\$", "USD")
    )


def _may_follow(before: Atoms, behind: Atoms, text: str, letters_are_units: bool) -> bool:
    is_percent = _PERCENT.fullmatch(text) is not None
    if not (is_percent or _TEMPERATURE.fullmatch(text) or is_unit(text)):
        return False
    if is_percent and any(mark.text in ("+", "-", "pm") for at, mark in outside(before) if at):
        return False  # 5 + 50 %
    inside = flattened(before)
    if before[-1].kind == "mark" and before[-1].text not in (")", "]", "|", "!", "}"):
        return False
    has_degrees = any(one.text == "deg" for one in behind)
    if has_degrees:
        is_angle = any(one.kind == "command" and one.text in FUNCTIONS.values() for one in inside)
        return not is_angle
    if all(one.font in _UPRIGHT for one in behind if one.kind in ("letter", "word", "text")):
        return True
    if any(one.kind == "text" and one.font not in _UPRIGHT for one in behind):
        return False
    is_number = not any(one.kind in ("letter", "word", "text") for one in inside)
    letters = [one.text for one in behind if one.kind == "letter"]
    if letters:
        return letters_are_units and is_number and LETTERS.issuperset(letters)
    return is_number or all(
        one.text == "pi" for one in inside if one.kind in ("letter", "word", "text")
    )


def plain_text(atoms: Atoms) -> str | None:
    """A unit as one would type it; None for what is none."""
    text = ""
    for index, atom in enumerate(atoms):
        piece = _piece(atoms, index)
        if piece is None:
            return None
        is_word = atom.kind in ("letter", "word", "text")
        text += f" {piece}" if is_word and text[-1:].isalnum() else piece
    return " ".join(text.split())


def _piece(atoms: Atoms, index: int) -> str | None:
    atom = atoms[index]
    match atom.kind:
        case "letter" | "word" | "text":
            return atom.text.strip()
        case "number" | "group" if index and atoms[index - 1].text == "^":
            inside = "".join(one.text for one in flattened((atom,)))
            return inside if re.fullmatch(r"-?\d", inside) else None
        case "mark" if atom.text in _MARKS:
            return atom.text
    return None
