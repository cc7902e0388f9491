r"""A value and its unit: 12 \text{ cm}^2, \$5, 50\%, 30^\circ, 25^\circ\text{C}.

A unit is what stood in a font for text, or words behind a lone number. A letter alone behind a
number may be both, so it is read as both. Within `2\pi r h` nothing is a unit.

`is_unit` tells a unit of measure, as data sets write them, from a word.
"""

from __future__ import annotations

import re

from repl_rl.tasks.data.latex.atoms import FUNCTIONS, PROSE, Atom, Atoms, flattened, outside

LETTERS = frozenset(("m", "s", "h", "g", "L", "l", "Omega", "nm"))
"""Units that are unknowns, or products of them, as often where they stand without a font of their
own."""

_PREFIXED = ("m", "g", "s", "L", "l", "W", "J", "N", "V", "A", "F", "C", "K", "T", "Pa", "Hz")
_PREFIXES = ("", "k", "c", "m", "M", "G", "n", "d", "h")
_METRIC = {f"{prefix}{unit}" for prefix in _PREFIXES for unit in _PREFIXED}
_SHORT = """
    h d ft yd mi oz lb lbs sec min hr hrs mph mol rad rpm eV keV MeV cal kcal kWh atm ha deg degC
    degF degK in in. ft. sq u kph cc Btu gal qt pt dB bar a.m. p.m. ohm Omega USD EUR
    """
_LONG = """
    unit meter metre gram second minute hour day week month year inch yard mile degree radian dollar
    cent euro pound ounce ton tonne liter litre gallon quart pint cup point way student people
    person watt joule newton volt ampere amp coulomb kelvin hertz pascal mole acre hectare knot bit
    byte item apple orange book ball coin card page game marble car child children boy girl men
    women man woman piece bottle box ticket tree side solution triangle square integer number digit
    value root edge vertex vertice face diagonal color colour rectangle circle step move match team
    player word letter line path arrangement combination permutation outcome pair tuple subset set
    element term factor divisor calorie cookie candie pencil penny pennie nickel dime quarter flower
    animal dog cat chicken cow worker teacher passenger
    """
_LONG_PREFIXES = ("", "kilo", "centi", "milli", "deci", "micro", "mega")
_NAMES = {f"{prefix}{name}" for name in _LONG.split() for prefix in _LONG_PREFIXES}
_PLURALS = {f"{name}s" for name in _NAMES} | {f"{name}es" for name in _NAMES} | {"feet", "foot"}
_ALL = _METRIC | set(_SHORT.split()) | _NAMES | _PLURALS
_POWER = r"(?:\s*\^\s*[({]?\s*-?\d\s*[)}]?)?"
_ONE = rf"(?:(?:square|cubic|sq\.?|cu\.?)\s+)?(?:[A-Za-z\\]+(?:\.[a-z]\.|\.)?){_POWER}"
_UNITS = re.compile(rf"{_ONE}(?:(?:\s*[*/]\s*|\s+per\s+|\s+){_ONE})*")
_WORD = re.compile(r"[A-Za-z\\]+(?:\.[a-z]\.)?")
_BETWEEN = frozenset(("square", "cubic", "sq", "cu", "per"))


def is_unit(text: str) -> bool:
    """Say whether all of `text` is a unit: `cm^2`, `m/s`, `square feet`, `miles per hour`."""
    if not _UNITS.fullmatch(text):
        return False
    words = [word for word in _WORD.findall(text) if word.lower() not in _BETWEEN]
    if not words:
        return False
    return all(word in _ALL or word.lower() in _NAMES | _PLURALS for word in words)


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
    letters = [one.text for one in behind if one.kind == "letter" or one.text in LETTERS]
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
