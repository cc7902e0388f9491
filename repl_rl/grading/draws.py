"""Secret points: exact numbers for the symbols of a problem, each from where its symbol lives.

    symbols, a domain for those that declare nothing, a seed -> points

A symbol that was declared (`parse.declared`) never gets a number that contradicts it. Integers
begin with the small ones, where formulas break most. All signs come up, and all magnitudes.

Knows no expressions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

import sympy

MANY = 10**4
MOST_PRIME = 10**12
"""Above it the next prime takes its time."""
SCALES = tuple(sympy.Rational(scale) for scale in (8, 100, 1, MANY, "1/100"))


class Domain(StrEnum):
    """Domain of a problem's symbols; what is true on one may fail on a wider one."""

    NATURALS = "naturals"
    """1, 2, 3, ..."""
    INTEGERS = "integers"
    RATIONALS = "rationals"
    REALS = "reals"
    COMPLEXES = "complexes"


ASSUMPTIONS: Mapping[Domain, Mapping[str, bool]] = {
    Domain.NATURALS: {"integer": True, "positive": True},
    Domain.INTEGERS: {"integer": True},
    Domain.RATIONALS: {"rational": True},
    Domain.REALS: {"real": True},
    Domain.COMPLEXES: {"complex": True},
}
"""Assumptions that sympy is told of the symbols of each domain."""
WHOLE = (Domain.NATURALS, Domain.INTEGERS)
SMALL = (0, 1, -1, *(sign * size for size in range(2, 12) for sign in (1, -1)))
NUM_FIRST = 3
"""Small whole numbers that are always among the points."""

Point = dict[Any, Any]
"""Symbols and exact numbers; sympy ships no types."""


def points(
    symbols: Sequence[Any], *, domain: Domain, seed: str, limit: int
) -> Iterator[tuple[Point, bool]]:
    """Up to `limit` points, and whether each was drawn: the first whole numbers are known to all.

    Without symbols there is one point.
    """
    if not symbols:
        yield {}, True
        return
    rng = random.Random(seed)
    first = {s: _first(s, domain) for s in symbols if _domain(s, domain) in WHOLE}
    num_first = NUM_FIRST if first else 0
    for index in range(limit):
        point = {s: _drawn(s, domain, rng, index, axis) for axis, s in enumerate(symbols)}
        if index < num_first:
            point |= {s: numbers[index] for s, numbers in first.items()}
        yield point, index >= num_first


def near(symbols: Sequence[Any], size: Any, *, domain: Domain) -> Iterator[Point]:
    """Points whose coordinates all have this size, or twice of it, on both sides of 0."""
    for sign in (1, -1):
        for number in (size, 2 * size + 1):
            signs = {s: 1 if _domain(s, domain) is Domain.NATURALS else sign for s in symbols}
            coordinates = {s: _fitted(s, number * signs[s]) for s in symbols}
            if None not in coordinates.values():
                yield coordinates


def can_be_drawn(symbol: Any) -> bool:
    """Say whether some number has all that `symbol` claims, and points can find it."""
    domain = _domain(symbol, Domain.COMPLEXES)
    return _fitted(symbol, _coordinate(domain, random.Random(0), 0, 0)) is not None


def _domain(symbol: Any, default: Domain) -> Domain:
    if symbol.is_integer:
        return Domain.INTEGERS
    if symbol.is_rational:
        return Domain.RATIONALS
    if symbol.is_real:
        return Domain.REALS
    return Domain.COMPLEXES if symbol.is_complex else default


def _first(symbol: Any, default: Domain) -> list[Any]:
    """The small whole numbers that `symbol` can be, those next to 0 first."""
    is_natural = _domain(symbol, default) is Domain.NATURALS
    numbers = (sympy.Integer(n) for n in SMALL if n > 0 or not is_natural)
    return list(islice((n for n in numbers if _fits(symbol, n)), NUM_FIRST))


def _drawn(symbol: Any, default: Domain, rng: random.Random, index: int, axis: int) -> Any:
    number = _fitted(symbol, _coordinate(_domain(symbol, default), rng, index, axis))
    assert number is not None, f"{symbol} was declared without a look whether it can be drawn"
    return number


def _fitted(symbol: Any, number: Any) -> Any:
    """`number`, or what is left of it where `symbol` claims a sign, a parity or to be prime."""
    sizes = [number, 2 * number, 2 * number + 1]
    if symbol.is_prime and number.is_Integer and abs(number) <= MOST_PRIME:
        sizes.append(sympy.Integer(sympy.nextprime(abs(number))))
    shapes = (sign * size for size in sizes for sign in (1, -1))
    return next((shape for shape in shapes if _fits(symbol, shape)), None)


def _fits(symbol: Any, number: Any) -> bool:
    return all(
        getattr(number, f"is_{name}") is is_so for name, is_so in symbol.assumptions0.items()
    )


def _coordinate(domain: Domain, rng: random.Random, index: int, axis: int) -> Any:
    """One coordinate of the drawn point `index`: all signs come up, and all magnitudes."""
    sign = -1 if index >> axis & 1 else 1
    if domain in WHOLE:
        size = rng.randint(*((4, 60), (61, MANY))[(index + index // 2 + axis) % 2])
        return sympy.Integer(size if domain is Domain.NATURALS else sign * size)
    scale = SCALES[(index // 2 + axis) % len(SCALES)]
    if domain is Domain.COMPLEXES:
        return scale * (sign * _fraction(rng) + sympy.I * rng.choice((-1, 1)) * _fraction(rng))
    return sign * scale * _fraction(rng)


def _fraction(rng: random.Random) -> Any:
    """Between 0 and 1."""
    denominator = rng.randint(501, 999)
    return sympy.Rational(rng.randint(1, denominator - 1), denominator)
