"""Sets of real numbers, compared exactly: intervals and their unions, conditions on one symbol.

    two sets -> all their ends, in order -> the pieces between them -> in which piece they differ

Where one symbol is compared with numbers, a condition is the set of what it allows. A condition
that is not solved for its symbol (`x**2 < 4`) is none: it restates the question.

Knows nothing of other expressions: the order of two numbers is asked of `points`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from repl_rl.grading.balls import CONNECTIVES, RELATIONS
from repl_rl.grading.points import order_of

MAX_ENDS = 40


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
            if any(end.is_infinite for end in ends):
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


_CONNECTIVES: Mapping[Any, Callable[[list[bool]], bool]] = {
    **CONNECTIVES,
    sympy.Union: any,
    sympy.Intersection: all,
    sympy.Complement: lambda parts: parts[0] and not parts[1],
}
