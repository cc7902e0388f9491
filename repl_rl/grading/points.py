"""Numbers at secret points: a cheap way to catch a wrong expression, never a proof of a right one.

    two expressions, a domain, a seed -> how many points agree, or the first that does not

Points are exact; both sides are evaluated there to `DIGITS` digits. The seed comes with the problem
and never enters a kernel, so no expression can be bent to fit the points.

Floor 2. Knows nothing of proofs and verdicts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sympy

DIGITS = 60
CLEAR_DIFFERENCE = sympy.Float("1e-40")
"""Of the larger side. exp(pi*sqrt(163)) is no integer, though near one by 3e-30 of itself."""
AGREEMENT = sympy.Float("1e-50")


class Domain(StrEnum):
    """Where the symbols of a problem live; what is true on one domain may fail on a wider one."""

    NATURALS = "naturals"
    """1, 2, 3, ..."""
    INTEGERS = "integers"
    RATIONALS = "rationals"
    REALS = "reals"
    COMPLEXES = "complexes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    num_agreed: int
    counterexample: str | None = None
    """A point where both sides are finite and clearly differ."""


def probe(left: Any, right: Any, *, domain: Domain, seed: str, num_points: int) -> Probe:
    """Compare at `num_points` points where both sides are defined, or until they clearly differ."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    num_agreed = 0
    for point in _points(symbols, domain, seed=seed, limit=3 * num_points):
        sides = [digits(side, point) for side in (left, right)]
        if sides[0] is None or sides[1] is None:
            continue
        distance = _distance(sides[0], sides[1])
        if distance > CLEAR_DIFFERENCE:
            if _is_noise(left, sides[0], point) or _is_noise(right, sides[1], point):
                continue
            return Probe(num_agreed=num_agreed, counterexample=_shown(point))
        num_agreed += bool(distance < AGREEMENT)
        if num_agreed == num_points:
            break
    return Probe(num_agreed=num_agreed)


def digits(expression: Any, point: dict[Any, Any], *, count: int = DIGITS) -> Any:
    """`expression` at `point` in digits; None where it is undefined, infinite or no number.

    The point is not put in first: an exact power of a power would not fit into memory.
    """
    try:
        number = expression.evalf(count, subs=point)
    except (ArithmeticError, TypeError, ValueError, NotImplementedError):
        return None  # the ways in which sympy says that it cannot
    if not number.is_number or not number.is_finite:
        return None
    real, imaginary = number.as_real_imag()
    return number if real.is_Number and imaginary.is_Number else None


def _distance(left: Any, right: Any) -> Any:
    return abs(left - right) / max(1, abs(left), abs(right))


def _is_noise(expression: Any, value: Any, point: dict[Any, Any]) -> bool:
    """A division by a hidden zero has digits, but others at every precision."""
    finer = digits(expression, point, count=2 * DIGITS)
    return finer is None or bool(_distance(finer, value) > CLEAR_DIFFERENCE)


def _points(
    symbols: list[Any], domain: Domain, *, seed: str, limit: int
) -> Iterator[dict[Any, Any]]:
    if not symbols:
        yield {}
        return
    rng = random.Random(seed)
    for _ in range(limit):
        yield {symbol: _coordinate(domain, rng) for symbol in symbols}


def _coordinate(domain: Domain, rng: random.Random) -> Any:
    if domain is Domain.NATURALS:
        return sympy.Integer(rng.randint(1, 60))
    if domain is Domain.INTEGERS:
        return sympy.Integer(rng.randint(-60, 60))
    if domain is Domain.COMPLEXES:
        return _fraction(rng) + sympy.I * _fraction(rng)
    return _fraction(rng)


def _fraction(rng: random.Random) -> Any:
    return sympy.Rational(rng.randint(-4000, 4000), rng.randint(501, 999))


def _shown(point: dict[Any, Any]) -> str:
    return ", ".join(f"{symbol} = {value}" for symbol, value in point.items()) or "their value"
