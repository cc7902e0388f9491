"""Units of measure as data sets write them behind a number, where they are left out.

A table and what tells a unit from a word. Knows text alone.
"""

from __future__ import annotations

import re

LETTERS = frozenset(("m", "s", "h", "g", "L", "l", "Omega"))
"""Units that are unknowns as often where they stand without a font of their own."""

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
