"""Numbers at secret points, and sets of real numbers, compared with bounds.

    two expressions, a domain, a seed -> how many points agree, or the first that does not

At a point three things are asked of `balls`: whether the known answer has a value there, whether
the submission has one by itself, and whether their difference is 0. Nothing counts as 0 without a
bound that says so, and what has no certain value where the known answer has one does not agree. The
seed comes with the problem and never enters a kernel, so no expression can be bent to fit the
points.

Sets of reals are compared exactly (`differ`): two sets -> all their ends, in order -> the pieces
between them -> in which piece they differ. A condition on one symbol that is compared with numbers
is the set of what it allows. One that is not solved for its symbol (`x**2 < 4`) is none: it
restates the question.

Knows nothing of proofs and verdicts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from repl_rl.grading.balls import CONNECTIVES, RELATIONS, is_nonzero, log2_sizes, sign_of, value_of
from repl_rl.grading.bounded import FACTORIALS
from repl_rl.grading.draws import Domain, Point, near, points

SPARE_DIGITS = 100
"""exp(pi*sqrt(163)) is no integer, though near one by 3e-30 of itself."""
MOST_DIGITS = 5000
SPECIAL_DIGITS = 500
"""With functions that take seconds for thousands of digits."""
MIN_NAMED = 4
"""`draws` begins with smaller numbers."""
NAMED_DIGITS = 400
"""Taken at numbers that a submission names: what shows in none of them decides nothing."""
MOST_NAMED = 40
"""Numbers in a submission that are tried as points."""
BEYOND = tuple(sympy.Integer(2) ** bits for bits in (100, 2000, 100_000))
"""A step that stays may wait for a number that nobody names: a root of one, its exponential."""
ENOUGH_TO_DRAW = 4
"""Points among which one is drawn, whatever the domain."""

GROWING = (
    *(sympy.Pow, sympy.exp, *FACTORIALS),
    *(sympy.erfc, sympy.erfi, sympy.uppergamma, sympy.beta, sympy.Ei, sympy.Shi, sympy.Chi),
)
"""Functions whose values are large or small although they are written short."""
SATURATING = (
    *(sympy.sinh, sympy.cosh, sympy.tanh, sympy.coth, sympy.sech, sympy.csch),
    *(sympy.erf, sympy.zeta, sympy.polylog, sympy.lowergamma),
)
"""Functions as large as exp of their argument, or as near to a limit as its inverse is to 0."""
MOST_ARGUMENT_BITS = 20.0
"""An argument above 2**20 takes more than MOST_DIGITS."""
SLOW = (
    *(sympy.gamma, sympy.loggamma, sympy.polygamma, sympy.zeta, sympy.LambertW, sympy.harmonic),
    *(sympy.Ei, sympy.Si, sympy.Ci, sympy.li, sympy.RisingFactorial, sympy.FallingFactorial),
)
"""Special functions, which take seconds where elementary ones take milliseconds."""

MAX_ENDS = 40

_CONNECTIVES: Mapping[Any, Callable[[list[bool]], bool]] = {
    **CONNECTIVES,
    sympy.Union: any,
    sympy.Intersection: all,
    sympy.Complement: lambda parts: parts[0] and not parts[1],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    num_agreed: int
    is_enough: bool = False
    """True where as many points agreed as were asked for, or the only one, for two constants."""
    counterexample: str | None = None
    """A point where both sides have values, which differ."""
    undefined: str | None = None
    """A drawn point where the right side alone has a value, or digits do not show whether both are
    one."""


def probe(
    left: Any, right: Any, *, domain: Domain, seed: str, num_points: int, max_digits: int | None
) -> Probe:
    """Compare at `num_points` points where the right side has a value, or until they differ.

    Two numbers are equal if `max_digits` of them are; None: as many as the texts of both could hide
    a difference in.

    `left` may have no value where `right` has one at the small whole numbers that are known to all,
    as (n**2 - 1)/(n - 1) at 1: drawn points do not hit a gap that can be closed.
    """
    pair, num_agreed = _Pair(left, right), 0
    for point, is_drawn in _points(left, right, domain=domain, seed=seed, limit=3 * num_points):
        met = pair.at(point, max_digits)
        if not met.is_comparable:
            continue
        if met.differs:
            return Probe(num_agreed=num_agreed, counterexample=_point_text(point))
        if met.differs is None and is_drawn:
            return Probe(num_agreed=num_agreed, undefined=_point_text(point))
        num_agreed += met.differs is False
        if num_agreed == num_points or not point:
            return Probe(num_agreed=num_agreed, is_enough=True)
    return Probe(num_agreed=num_agreed)


def probe_named(left: Any, right: Any, *, domain: Domain) -> Probe:
    """Look at the numbers that `left` names, and far beyond them: a step may wait there.

    Whoever wrote `left` chose these points, so where they agree, that says nothing.
    """
    difference = left - right
    symbols = sorted(difference.free_symbols, key=str)
    for size in (*BEYOND, *_named(left)) if symbols else ():
        for point in near(symbols, size, domain=domain):
            if is_nonzero(difference, point, zero_digits=SPARE_DIGITS, max_digits=NAMED_DIGITS):
                return Probe(num_agreed=0, counterexample=_point_text(point))
    return Probe(num_agreed=0)


def has_value(expression: Any, *, domain: Domain, seed: str) -> bool:
    """Say whether `expression` is a certain number at the points that are drawn from `domain`."""
    drawn = _points(expression, expression, domain=domain, seed=seed, limit=ENOUGH_TO_DRAW)
    return all(_has_value_at(expression, point) for point, is_drawn in drawn if is_drawn)


def is_defined(expression: Any) -> bool:
    """Say whether `expression` is a certain number where symbols are fractions of no meaning."""
    rng, modulus = random.Random(0), 10**6 + 3
    symbols = sorted(expression.free_symbols, key=str)
    point = {symbol: sympy.Rational(rng.randint(1, 10**6), modulus) for symbol in symbols}
    return _has_value_at(expression, point)


def is_different(left: Any, right: Any, point: Point) -> bool:
    """Say whether both have values at `point`, which is exact, and different ones."""
    return _Pair(left, right).at(point).differs is True


def order_of(left: Any, right: Any) -> int | None:
    """Order of constants: -1, 0 or 1 for less, equal as far as digits show, and more.

    None where one has no certain value, or they are in no order.
    """
    digits, most = _Pair(left, right).digits({})
    values = [value_of(side, {}, max_digits=most) for side in (left, right)]
    if None in values:
        return None
    return sign_of(left - right, size=values[1], zero_digits=digits, max_digits=most)


def is_condition(value: Any) -> bool:
    """A symbol alone is none, though sympy lets it stand for a truth value."""
    return isinstance(value, bool | Boolean) and not isinstance(value, sympy.Expr)


class Unsolved(ValueError):
    """A value is no set of reals that can be read off; the message says why."""


@dataclass(frozen=True, slots=True)
class RegionDifference:
    """Difference of two sets of reals; none if `position` is empty."""

    position: str
    merged: Sequence[tuple[Any, Any]]
    """Ends that count as one because no digit tells them apart."""


def differ(left: Any, right: Any) -> RegionDifference:
    """Raises Unsolved where one of them is no set of reals, or is infinitely hard to tell."""
    ends = _Ends()
    for value in (left, right):
        for end in _ends_of(value):
            ends.add(end)
    symbol = _symbol(left, right)
    ends.add(sympy.S.Zero)
    for position in range(-1, 2 * len(ends.numbers)):
        if symbol is not None and not _may_be(symbol, position - ends[sympy.S.Zero]):
            continue
        if _holds(left, position, ends) != _holds(right, position, ends):
            return RegionDifference(ends.position_text(position), ends.merged)
    return RegionDifference("", ends.merged)


def _named(expression: Any) -> list[Any]:
    """Sizes of its largest numbers, and those right before them where it rounds."""
    parts = expression.atoms(sympy.Rational)
    sizes = {sympy.Integer(abs(size)) for part in parts for size in (part.p, part.q)}
    named = sorted((size for size in sizes if size >= MIN_NAMED), reverse=True)[:MOST_NAMED]
    # floor((n + 1)/60) differs from floor(n/60) right before 60.
    is_rounded = expression.has(sympy.floor, sympy.ceiling, sympy.Mod)
    return [one for size in named for one in ((size, size - 1) if is_rounded else (size,))]


def _has_value_at(expression: Any, point: Point) -> bool:
    _, most = _Pair(expression, sympy.S.Zero).digits(point)
    return value_of(expression, point, max_digits=most) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meeting:
    """Two expressions at a point."""

    is_comparable: bool = True
    """True where the right one has a value."""
    differs: bool | None = None
    """None where one of them has no value, or no digits tell."""


class _Pair:
    """Two expressions, and in how many digits their texts can hide a difference.

    That follows from the length of their numbers and the size of what grows in them: 10**-60 hides
    in 60, a fraction of 1,900 digits that was cut from pi in twice as many.
    """

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right
        # What both have in common is gone from the difference: the rest shows however small.
        self.difference = left - right
        self._growing: list[Any] = []
        self._saturating: list[Any] = []
        self._bits = self._read(left) + self._read(right)
        self._most = SPECIAL_DIGITS if left.has(*SLOW) or right.has(*SLOW) else MOST_DIGITS

    def _read(self, expression: Any) -> int:
        bits = 0
        for part in sympy.preorder_traversal(expression):
            if part.is_Rational:
                bits += int(part.p).bit_length() + int(part.q).bit_length()
            elif isinstance(part, GROWING):
                self._growing.append(part)
            elif isinstance(part, SATURATING):
                self._saturating += part.args if part.func != sympy.erf else [part.args[0] ** 2]
        return bits

    def digits(self, point: Point) -> tuple[int, int]:
        """Digits that can hide a difference, and those taken to find so many certain ones."""
        bits = float(self._bits + sum(map(_length, point.values())))
        bits += sum(map(abs, log2_sizes(self._growing, point)))
        arguments = log2_sizes(self._saturating, point)
        bits += sum(3 * 2.0 ** min(size, MOST_ARGUMENT_BITS) for size in arguments)
        hidden = SPARE_DIGITS + int(0.31 * bits)
        digits = min(self._most, hidden)
        return digits, digits + min(2 * self._most, hidden) + SPARE_DIGITS

    def at(self, point: Point, max_digits: int | None = None) -> _Meeting:
        digits, most = self.digits(point)
        size = value_of(self.right, point, max_digits=most)
        if size is None:
            return _Meeting(is_comparable=False)
        if value_of(self.left, point, max_digits=most) is None:
            return _Meeting()
        digits = max_digits or digits
        differs = is_nonzero(self.difference, point, zero_digits=digits, max_digits=most, size=size)
        return _Meeting(differs=differs)


def _length(expression: Any) -> int:
    """Length of its numbers, in bits."""
    parts = expression.atoms(sympy.Rational)
    return sum(int(part.p).bit_length() + int(part.q).bit_length() for part in parts)


def _points(
    left: Any, right: Any, *, domain: Domain, seed: str, limit: int
) -> Iterator[tuple[Point, bool]]:
    """Up to `limit` points for the symbols of both sides, and whether each was drawn."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    return points(symbols, domain=domain, seed=seed, limit=limit)


def _point_text(point: Point) -> str:
    return ", ".join(f"{symbol} = {_number(value)}" for symbol, value in point.items()) or (
        "their value"
    )


def _number(value: Any) -> str:
    is_long = value.is_Integer and abs(value) > BEYOND[0]
    return f"a number of {int(value).bit_length()} bits" if is_long else str(value)


class _Ends:
    """Numbers in their order. The one at index i has the position 2 i, what follows it 2 i + 1."""

    def __init__(self) -> None:
        self.numbers: list[Any] = []
        self.merged: list[tuple[Any, Any]] = []

    def add(self, end: Any) -> None:
        """Insert it, unless it is equal to one that is there. Raises Unsolved."""
        if end.is_infinite:
            return
        if len(self.numbers) >= MAX_ENDS:
            raise Unsolved(f"more than {MAX_ENDS} ends")
        for index, number in enumerate(self.numbers):
            sign = _sign(end, number)
            if sign == 0:
                if end != number:
                    self.merged.append((end, number))
                return
            if sign < 0:
                self.numbers.insert(index, end)
                return
        self.numbers.append(end)

    def __getitem__(self, end: Any) -> float:
        """Position of an end."""
        if end.is_infinite:
            return math.inf if end.is_extended_positive else -math.inf
        number = next((number for other, number in self.merged if other == end), end)
        return 2 * self.numbers.index(number)

    def position_text(self, position: int) -> str:
        if position % 2 == 0:
            return f"{self.numbers[position // 2]}"
        below, above = [sympy.S.NegativeInfinity, *self.numbers], [*self.numbers, sympy.oo]
        return f"between {below[(position + 1) // 2]} and {above[(position + 1) // 2]}"


def _sign(left: Any, right: Any) -> int:
    if left == right:
        return 0
    sign = order_of(left, right)
    if sign is None:
        raise Unsolved(f"{left} and {right} are in no order")
    return sign


def _ends_of(value: Any) -> Sequence[Any]:
    """All numbers at which `value` may begin or end. Raises Unsolved."""
    match value:
        case bool() | sympy.logic.boolalg.BooleanAtom():
            return ()
        case frozenset() | sympy.FiniteSet():
            ends = tuple(value)
            if any(isinstance(end, sympy.Expr) and end.is_infinite for end in ends):
                raise Unsolved("a set of reals holds no infinity")
        case sympy.Interval():
            ends = value.args[:2]
        case Relational():
            ends = (_solved(value)[2],)
        case _ if value is sympy.S.Reals:
            return ()
        case _ if getattr(value, "func", None) in _CONNECTIVES:
            return [end for part in value.args for end in _ends_of(part)]
        case _:
            raise Unsolved(f"{type(value).__name__} is no set of reals")
    for end in ends:
        if not (isinstance(end, sympy.Expr) and end.is_number) or end.has(sympy.Float):
            raise Unsolved(f"{end} is no exact number")
    return ends


def _solved(relation: Any) -> tuple[Any, str, Any]:
    """Symbol, operator, number."""
    if relation.lhs.is_Symbol and relation.rhs.is_number:
        return relation.lhs, relation.rel_op, relation.rhs
    if relation.rhs.is_Symbol and relation.lhs.is_number:
        return relation.rhs, relation.reversed.rel_op, relation.lhs
    raise Unsolved(f"{relation} is not solved for a symbol")


def _symbol(left: Any, right: Any) -> Any:
    """The one that conditions speak of, None where both are sets. Raises Unsolved."""
    free = {symbol for value in (left, right) for symbol in getattr(value, "free_symbols", ())}
    if len(free) > 1:
        raise Unsolved("conditions on several symbols")
    symbol = next(iter(free), None)
    if symbol is not None and symbol.is_rational:
        raise Unsolved(f"{symbol} is not every real number")
    return symbol


def _may_be(symbol: Any, sign: float) -> bool:
    """Say whether the declaration of `symbol` leaves room for numbers of this sign."""
    if sign == 0:
        return symbol.is_zero is not False
    return (symbol.is_positive if sign > 0 else symbol.is_negative) is not False


def _holds(value: Any, position: int, ends: _Ends) -> bool:
    match value:
        case bool() | sympy.logic.boolalg.BooleanAtom():
            return bool(value)
        case frozenset() | sympy.FiniteSet():
            return any(position == ends[element] for element in value)
        case sympy.Interval():
            low, high = ends[value.start], ends[value.end]
            is_after = position > low or (position == low and not value.left_open)
            return is_after and (position < high or (position == high and not value.right_open))
        case Relational():
            _, relation, number = _solved(value)
            return RELATIONS[relation](position, ends[number])
    if value is sympy.S.Reals:
        return True
    return _CONNECTIVES[value.func]([_holds(part, position, ends) for part in value.args])
