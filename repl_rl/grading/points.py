"""Numbers at secret points: a cheap way to catch a wrong expression, never a proof of a right one.

    two expressions, a domain, a seed -> how many points agree, or the first that does not

The difference of the two is evaluated. sympy raises its precision until the digits are certain, so
a difference counts however small it is. Only one that shows no certain digit within `max_digits`
counts as zero. The seed comes with the problem and never enters a kernel, so no expression can be
bent to fit the points.

Knows nothing of proofs and verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from repl_rl.grading.draws import Domain, Point, near, points
from repl_rl.grading.vocabulary import FACTORIALS

__all__ = [
    "SLOW",
    "Domain",
    "Point",
    "Probe",
    "difference_of",
    "is_different",
    "is_finite",
    "probe",
    "probe_named",
]

DIGITS = 15
"""Digits asked for; an uncertain one among them raises the precision."""
NOISE = sympy.Float("1e-5")
"""The share of a value by which two precisions may differ."""
SPARE_DIGITS = 100
"""exp(pi*sqrt(163)) is no integer, though near one by 3e-30 of itself."""
MOST_DIGITS = 5000
SPECIAL_DIGITS = 200
"""With functions that take seconds for thousands of digits."""
MIN_NAMED, MAX_NAMED = 4, 10**6
"""Numbers in a submission that are tried as points; those of a formula are smaller as a rule."""
NUM_NAMED = 4
GROWING = (sympy.Pow, sympy.exp, sympy.sinh, sympy.cosh, *FACTORIALS)
"""What is large or small although it is written short."""

ENOUGH_TO_DRAW = 4
"""Points among which one is drawn, whatever the domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    num_agreed: int
    is_enough: bool = False
    """As many agreed as were asked for, or the only one, for two constants."""
    counterexample: str | None = None
    """A point where both sides are finite and differ."""
    undefined: str | None = None
    """A drawn point where only the right side is finite."""


def probe(
    left: Any, right: Any, *, domain: Domain, seed: str, num_points: int, max_digits: int | None
) -> Probe:
    """Compare at `num_points` points where both sides are defined, or until they differ.

    Each takes at most `max_digits`; None: as many as the texts of both could hide a difference in.

    `left` may be undefined where `right` is not at one of the `FIRST` points alone, as (n**2 - 1) /
    (n - 1) is at 1: drawn points do not hit a gap that can be closed.
    """
    left, right = _numeric(left), _numeric(right)
    difference = left - right
    num_agreed = 0
    for point, is_drawn in _points(left, right, domain=domain, seed=seed, limit=3 * num_points):
        most = max_digits or _hidden_digits(difference, point)
        value = _certain(difference, point, max_digits=most)
        if value is None and is_drawn and _certain(right, point, max_digits=most) is not None:
            return Probe(num_agreed=num_agreed, undefined=_shown(point))
        value = _trusted(value, difference, point, most)
        if value is None:
            continue
        if value != 0:
            return Probe(num_agreed=num_agreed, counterexample=_shown(point))
        num_agreed += 1
        if num_agreed == num_points or not point:
            return Probe(num_agreed=num_agreed, is_enough=True)
    return Probe(num_agreed=num_agreed)


def probe_named(left: Any, right: Any, *, domain: Domain) -> Probe:
    """Look at the numbers that `left` names and beyond them: a step may wait there.

    Whoever wrote `left` chose these points, so where they agree, that says nothing.
    """
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    named = {abs(part) for part in left.atoms(sympy.Integer)}
    named |= {sympy.Integer(part.q) for part in left.atoms(sympy.Rational)}
    sizes = sorted((size for size in named if MIN_NAMED <= size <= MAX_NAMED), reverse=True)
    left, right = _numeric(left), _numeric(right)
    for size in sizes[:NUM_NAMED]:
        for point in near(symbols, size, domain=domain):
            value = _certain(left - right, point, max_digits=SPARE_DIGITS)
            if _trusted(value, left - right, point, SPARE_DIGITS):
                return Probe(num_agreed=0, counterexample=_shown(point))
    return Probe(num_agreed=0)


def is_finite(expression: Any, *, domain: Domain, seed: str) -> bool:
    """Whether `expression` is a number at a point that is drawn from `domain`."""
    drawn = _points(expression, expression, domain=domain, seed=seed, limit=ENOUGH_TO_DRAW)
    point = next(point for point, is_drawn in drawn if is_drawn)
    return _certain(expression, point, max_digits=SPARE_DIGITS) is not None


def is_different(left: Any, right: Any, point: Point) -> bool:
    """Whether both are finite and different at `point`, which is exact."""
    return bool(difference_of(left.subs(point), right.subs(point)))


def difference_of(left: Any, right: Any) -> Any:
    """Of two constants: 0 where no digit tells them apart, None where one is not finite."""
    difference = _numeric(left - right)
    return _certain(difference, {}, max_digits=_hidden_digits(difference, {}))


def _certain(expression: Any, point: Point, *, max_digits: int) -> Any:
    """`expression` at `point`, 0 where no digit of it is certain, None where it is not finite.

    The point is not substituted first: an exact power of a power would not fit into memory.
    """
    value = _evaluated(expression, point, DIGITS, max_digits)
    if value is None or value == 0:
        return value
    finer = _evaluated(expression, point, 2 * DIGITS, 2 * max_digits)
    if finer is None or abs(finer - value) <= NOISE * abs(value):
        return finer
    # The finer digits are other ones. The rest of a cancellation shrinks with the precision; the
    # result of a division by a hidden zero does not.
    return sympy.S.Zero if abs(finer) < NOISE * abs(value) else None


def _trusted(value: Any, expression: Any, point: Point, max_digits: int) -> Any:
    """`value`, or None where it is the quotient of digits that cancel, which is any number."""
    if not value or not _divides_by_noise(expression, point, max_digits):
        return value
    most = _hidden_digits(expression, point)
    if _divides_by_noise(expression, point, most):
        return None
    return _certain(expression, point, max_digits=most)


def _divides_by_noise(expression: Any, point: Point, max_digits: int) -> bool:
    """Whether some divisor is a sum without one certain digit within `max_digits`."""
    divisors = (
        power.base
        for power in expression.atoms(sympy.Pow)
        if power.base.is_Add and power.exp.could_extract_minus_sign()
    )
    return any(_evaluated(base, point, DIGITS, max_digits) == 0 for base in divisors)


def _hidden_digits(expression: Any, point: Point) -> int:
    """In how many digits of `expression` at `point` its text can hide something.

    That follows from the length of its numbers and the size of what grows in it: 10**-60
    hides in 60, a fraction of 1,900 digits that was cut from pi in twice as many.
    """
    most = SPECIAL_DIGITS if expression.has(*SLOW) else MOST_DIGITS
    bits = 0.0
    for part in sympy.preorder_traversal(expression):
        if part.is_Rational:
            bits += int(part.p).bit_length() + int(part.q).bit_length()
        elif isinstance(part, GROWING):
            bits += _magnitude_bits(part, point)
    return min(most, SPARE_DIGITS + int(0.31 * bits))


def _points(
    left: Any, right: Any, *, domain: Domain, seed: str, limit: int
) -> Iterator[tuple[Point, bool]]:
    """Up to `limit` points for the symbols of both sides, and whether each was drawn."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    return points(symbols, domain=domain, seed=seed, limit=limit)


def _numeric(expression: Any) -> Any:
    """With functions that take their time, or round to 1, as others that do not."""
    for exact, numeric in {**_AT_ONCE, **_ROUNDED}.items():
        expression = expression.replace(exact, numeric)
    return expression


def _evaluated(expression: Any, point: Point, count: int, max_digits: int) -> Any:
    try:
        number = expression.evalf(count, subs=point, maxn=max_digits)
    except (ArithmeticError, TypeError, ValueError, NotImplementedError):
        return None  # how sympy says that it cannot
    if not number.is_number or not number.is_finite:
        return None
    parts = number.as_real_imag()
    if not all(part.is_Number for part in parts):
        return None
    return sum(
        (part * unit for part, unit in zip(parts, (1, sympy.I), strict=True) if _has_digits(part)),
        start=sympy.S.Zero,
    )


def _has_digits(part: Any) -> bool:
    """sympy gives a number without a certain digit a precision of one bit."""
    return bool(part != 0) and not (part.is_Float and part._prec == 1)


def _magnitude_bits(part: Any, point: Point) -> float:
    value = _evaluated(part, point, DIGITS, SPARE_DIGITS)
    return float(abs(sympy.log(abs(value), 2))) if value else 0.0


def _shown(point: Point) -> str:
    return ", ".join(f"{symbol} = {value}" for symbol, value in point.items()) or "their value"


def _of_mpmath(name: str) -> Any:
    """A function that sympy evaluates by the one of this name in mpmath, and knows nothing of."""
    return type(name, (sympy.Function,), {})


# sympy would write these out in thousands of terms.
_AT_ONCE: Mapping[Any, Any] = {
    sympy.RisingFactorial: _of_mpmath("rf"),
    sympy.FallingFactorial: _of_mpmath("ff"),
    sympy.harmonic: _of_mpmath("harmonic"),
    sympy.polygamma: _of_mpmath("psi"),
}
_ROUNDED: Mapping[Any, Any] = {
    # What is left of 1 - tanh(5000) shows in these alone: sympy takes tanh of mpmath, which is 1.
    sympy.tanh: lambda argument: 1 - 2 / (sympy.exp(2 * argument) + 1),
    sympy.coth: lambda argument: 1 + 2 / (sympy.exp(2 * argument) - 1),
}
SLOW = (
    *(sympy.gamma, sympy.loggamma, sympy.polygamma, sympy.zeta, sympy.LambertW),
    *(sympy.Ei, sympy.Si, sympy.Ci, sympy.li, *_AT_ONCE, *_AT_ONCE.values()),
)
"""Special functions, which take seconds where elementary ones take milliseconds."""
