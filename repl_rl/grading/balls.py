"""Certain digits of an expression at a point, by ball arithmetic: numbers with bounds of errors.

    expression, point, number of digits -> a ball in which its value lies, None where it has none

Every operation bounds its own rounding (Johansson 2017, Arb: efficient arbitrary-precision
midpoint-radius interval arithmetic). So a divisor that may be 0, the logarithm of what may be 0 or
a pole that may be hit give no ball at any precision, wherever they stand and however they are
written: such an expression has no value. Fractions stay exact.

Knows expressions. Does not know what is compared, nor where points come from.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

import sympy
from flint import acb, arb, ctx, fmpq, fmpz
from sympy.core.relational import Relational

Point = Mapping[Any, Any]
"""Symbols and numbers, both of sympy, which ships no types."""
Ball = Any
"""A `fmpq`, which is exact, or an `acb`. flint's stubs leave the results of arithmetic open."""

ZERO = fmpq(0)
FIRST_BITS = 64
BITS_PER_DIGIT = 3.33
VALUE_DIGITS = 15
"""Digits that have to be certain in a value, after the point where it is below 1."""
MAX_EXACT_BITS = 1 << 14
"""Longer fractions are rounded."""
MOST_SQUARINGS = 128
"""For a power; above that it is an exponential."""


class NoBallError(ArithmeticError):
    """The value may lie anywhere, as far as the digits of this precision show."""


def value_of(expression: Any, point: Point, *, max_digits: int) -> Ball | None:
    """A ball with certain digits; None where `max_digits` show none.

    Its radius is below 10**-15 of its size, or of 1 where that is larger.
    """
    for ball in _balls(expression, point, max_digits):
        if ball is not None and acb(ball).rad() <= _bound(VALUE_DIGITS, ball):
            return ball
    return None


def is_nonzero(
    expression: Any, point: Point, *, zero_digits: int, max_digits: int, size: Ball = ZERO
) -> bool | None:
    """False where a bound below 10**-zero_digits of `size`, or of 1 where that is larger, says so;
    None where `max_digits` show neither."""
    bound = _bound(zero_digits, size)
    for ball in _balls(expression, point, max_digits):
        if ball is not None and not _may_be_zero(ball):
            return True
        if ball is not None and abs(acb(ball)) <= bound:
            return False
    return None


def sign_of(expression: Any, *, size: Ball, zero_digits: int, max_digits: int) -> int | None:
    """Sign of a real constant, as by `is_nonzero`; None for one that is not real, too."""
    bound = _bound(zero_digits, size)
    for ball in _balls(expression, {}, max_digits):
        if ball is None or not abs(acb(ball).imag) <= bound:
            continue
        real = acb(ball).real
        if not real.contains(0):
            return 1 if real > 0 else -1
        if abs(real) <= bound:
            return 0
    return None


def log2_sizes(expressions: Iterable[Any], point: Point) -> list[float]:
    """Logarithms of their absolute values to the base 2, rounded; 0 for 0 and for no value."""
    with ctx.workprec(FIRST_BITS):
        evaluation = _BallsAtPoint(point, snaps=True)
        return [evaluation.log2_size(expression) for expression in expressions]


def _balls(expression: Any, point: Point, max_digits: int) -> Iterator[Ball | None]:
    """Yield balls of the expression at growing precisions, None where one has none.

    The last one takes what shows no certain digit for 0 where a function jumps there: a square root
    has one value on its cut, and which one no digit can tell.
    """
    bits, most = FIRST_BITS, int(BITS_PER_DIGIT * max_digits)
    while True:
        is_last = bits >= most
        with ctx.workprec(bits):
            try:
                ball = _BallsAtPoint(point, snaps=is_last).ball(expression)
            except NoBallError:
                ball = None
        yield ball
        if is_last:
            return
        bits = 2 * bits


def _bound(digits: int, size: Ball) -> Any:
    """10**-digits of `size`, or of 1 where that is larger."""
    return arb(10) ** -digits * abs(acb(size)).max(arb(1)).mid()


def _may_be_zero(ball: Ball) -> bool:
    return bool(acb(ball).contains(0))


class _BallsAtPoint:
    """One pass over an expression, from its leaves up, at the precision that is set."""

    def __init__(self, point: Point, *, snaps: bool) -> None:
        self._point = point
        self._snaps = snaps
        self._balls: dict[Any, Ball] = {}

    def ball(self, expression: Any) -> Ball:
        """Raises NoBallError where it has none, or where some part has none."""
        ball = self._balls.get(expression)
        if ball is None:
            ball = self._evaluated(expression)
            if isinstance(ball, acb) and not ball.is_finite():
                raise NoBallError(expression)
            self._balls[expression] = ball
        return ball

    def log2_size(self, expression: Any) -> float:
        """0 for 0 and for no value."""
        try:
            ball = self.ball(expression)
        except NoBallError:
            return 0.0
        if _may_be_zero(ball):
            return 0.0
        mantissa, exponent = abs(acb(ball)).mid().man_exp()
        return float(int(exponent) + int(mantissa).bit_length())

    def _evaluated(self, expression: Any) -> Ball:
        if expression.is_Rational or expression.is_Float:
            exact = sympy.Rational(expression)
            return fmpq(int(exact.p), int(exact.q))
        if expression.is_Symbol and expression in self._point:
            return self.ball(self._point[expression])
        if expression.is_Piecewise:
            return self._piece(expression)
        if (constant := _CONSTANTS.get(expression)) is not None:
            return constant()
        if (rule := _RULES.get(expression.func)) is None:
            raise NoBallError(expression)
        return rule(self, *map(self.ball, expression.args))

    def _piece(self, expression: Any) -> Ball:
        for piece, condition in expression.args:
            if self._holds(condition):
                return self.ball(piece)
        raise NoBallError(expression)

    def _holds(self, condition: Any) -> bool:
        match condition:
            case bool() | sympy.logic.boolalg.BooleanAtom():
                return bool(condition)
            case Relational():
                difference = self.ball(condition.lhs) - self.ball(condition.rhs)
                if condition.rel_op in ("==", "!="):
                    return self._is_zero(difference) is (condition.rel_op == "==")
                return RELATIONS[condition.rel_op](self._sign(difference), 0)
        if condition.func not in CONNECTIVES:
            raise NoBallError(condition)
        return CONNECTIVES[condition.func]([self._holds(part) for part in condition.args])

    def _is_zero(self, ball: Ball) -> bool:
        if not _may_be_zero(ball):
            return False
        if self.snapped(acb(ball)).is_zero():
            return True
        raise NoBallError(ball)

    def _sign(self, ball: Ball) -> int:
        """Sign of a real number."""
        if self._is_zero(ball):
            return 0
        number = self.snapped(acb(ball))
        if not number.imag.is_zero():
            raise NoBallError(ball)
        return 1 if number.real > 0 else -1

    def snapped(self, ball: acb) -> acb:
        """Snap parts that show no certain digit at the last precision to exact zeros."""
        if not self._snaps or ball.is_exact():
            return ball
        bound = arb(2) ** -(ctx.prec // 2)
        parts = [
            arb(0) if part.contains(0) and part.rad() <= bound else part
            for part in (ball.real, ball.imag)
        ]
        return acb(*parts)

    def floor(self, ball: Ball) -> Ball:
        if isinstance(ball, fmpq):
            return fmpq(ball.p // ball.q)
        real, imaginary = self._whole_below(ball.real), self._whole_below(ball.imag)
        return fmpq(real) if imaginary == 0 else acb(real, imaginary)

    def _whole_below(self, part: arb) -> fmpz:
        """Floor of `part`, or the whole number that it cannot be told from."""
        if (whole := part.floor().unique_fmpz()) is not None:
            return whole
        near = (part + arb(0.5)).floor().unique_fmpz()
        if near is None or not self.snapped(acb(part - near)).is_zero():
            raise NoBallError(part)
        return near


def _sum(_: _BallsAtPoint, *terms: Ball) -> Ball:
    return _shortened(sum(terms, start=fmpq(0)))


def _product(_: _BallsAtPoint, *factors: Ball) -> Ball:
    return _shortened(math.prod(factors, start=fmpq(1)))


def _shortened(ball: Ball) -> Ball:
    is_long = isinstance(ball, fmpq) and ball.height_bits() > MAX_EXACT_BITS
    return acb(ball) if is_long else ball


def _power(now: _BallsAtPoint, base: Ball, exponent: Ball) -> Ball:
    if isinstance(exponent, fmpq) and exponent.q == 1:
        return _whole_power(base, int(exponent.p))
    if isinstance(exponent, fmpq) and exponent.q == 2:
        return _whole_power(now.snapped(acb(base)).sqrt(), int(exponent.p))
    base = now.snapped(acb(base))
    if not _may_be_zero(base):
        return base.pow(acb(exponent))
    if base.is_zero() and acb(exponent).real > 0:
        return fmpq(0)
    raise NoBallError


def _whole_power(base: Ball, exponent: int) -> Ball:
    """Power of a ball; of 0 none that is negative. The power 0 is 1, as for sympy."""
    if exponent < 0 and _may_be_zero(base):
        raise NoBallError
    if isinstance(base, fmpq) and base.height_bits() * abs(exponent) <= MAX_EXACT_BITS:
        return base**exponent
    if exponent.bit_length() > MOST_SQUARINGS:
        return (acb(base).log() * exponent).exp()
    return acb(base) ** exponent


def _binomial(_: _BallsAtPoint, n: Ball, k: Ball) -> Ball:
    whole = _whole(k)
    if whole is None:
        return _factorial_of(n) / (_factorial_of(k) * _factorial_of(n - k))
    if whole < 0:
        return fmpq(0)
    top = _whole(n)
    if top is not None and top < 0:
        return (-1) ** whole * _binomial(_, fmpq(whole - top - 1), k)
    if top is not None and top < whole:
        return fmpq(0)
    if top is not None:
        whole = min(whole, top - whole)
    return acb(n - whole + 1).rising(acb(whole)) / acb(whole + 1).gamma()


def _whole(ball: Ball) -> int | None:
    return int(ball.p) if isinstance(ball, fmpq) and ball.q == 1 else None


def _factorial_of(ball: Ball) -> acb:
    return acb(ball + 1).gamma()


def _double_factorial(_: _BallsAtPoint, n: Ball) -> Ball:
    """n!! as sympy rewrites it: 2**(n/2) * gamma(n/2 + 1), sqrt(2/pi) of it where n is odd."""
    half, odd = acb(n) / 2, (1 - acb(n).cos_pi()) / 2
    return acb(2).pow(half) * (half + 1).gamma() * (2 / acb.pi()).pow(odd / 2)


def _rising(_: _BallsAtPoint, x: Ball, k: Ball) -> Ball:
    count = _whole(k)
    if count is not None and count >= 0:
        return acb(x).rising(acb(count))
    return acb(x + k).gamma() / acb(x).gamma()


def _golden() -> acb:
    return (1 + acb(5).sqrt()) / 2


def _fibonacci(_: _BallsAtPoint, n: Ball) -> Ball:
    up, down = _golden_powers(n)
    return (up - down) / acb(5).sqrt()


def _golden_powers(n: Ball) -> tuple[acb, acb]:
    """Powers of both roots of x**2 = x + 1; between whole n the second's real part."""
    up = (_golden().log() * n).exp()
    return up, acb(n).cos_pi() / up


def _catalan(_: _BallsAtPoint, n: Ball) -> Ball:
    n = acb(n)
    return acb(4).pow(n) * (n + fmpq(1, 2)).gamma() / (acb.pi().sqrt() * (n + 2).gamma())


def _harmonic(_: _BallsAtPoint, n: Ball, *order: Ball) -> Ball:
    """The sum of 1/k**order up to n, by the tails of series."""
    if not order or order[0] == 1:
        return acb(n + 1).digamma() + arb.const_euler()
    return acb(order[0]).zeta() - acb(order[0]).zeta(acb(n + 1))


def _lambert(now: _BallsAtPoint, z: Ball, *branch: Ball) -> Ball:
    number = _whole(branch[0]) if branch else 0
    if number is None:
        raise NoBallError
    return now.snapped(acb(z)).lambertw(number)


def _unit(now: _BallsAtPoint, ball: Ball) -> Ball:
    ball = now.snapped(acb(ball))
    return fmpq(0) if ball.is_zero() else ball / abs(ball)


def _angle(now: _BallsAtPoint, ball: Ball) -> Ball:
    """Argument of a complex number; 0 has none."""
    ball = now.snapped(acb(ball))
    if _may_be_zero(ball):
        raise NoBallError
    return acb(ball.arg())


def _angle_of_pair(now: _BallsAtPoint, y: Ball, x: Ball) -> Ball:
    x, y = acb(x), acb(y)
    norm = (x * x + y * y).sqrt()
    if x.imag.is_zero() and y.imag.is_zero():
        return _angle(now, acb(x.real, y.real))
    return acb(0, -1) * now.snapped((x + acb(0, 1) * y) / norm).log()


def _extreme(pick: Callable[[arb, arb], arb]) -> Callable[..., Ball]:
    """Rule for the least or the greatest of real numbers."""

    def rule(now: _BallsAtPoint, *balls: Ball) -> Ball:
        parts = [now.snapped(acb(ball)) for ball in balls]
        if not all(part.imag.is_zero() for part in parts):
            raise NoBallError
        return acb(reduce(pick, (part.real for part in parts)))

    return rule


def _remainder(now: _BallsAtPoint, a: Ball, b: Ball) -> Ball:
    return a - b * now.floor(_product(now, a, _whole_power(b, -1)))


def _plain(function: Callable[..., acb]) -> Callable[..., Ball]:
    """A function that is continuous wherever it is finite."""
    return lambda _, *balls: function(*map(acb, balls))


def _cut(function: Callable[..., acb]) -> Callable[..., Ball]:
    """A function that jumps along a cut, which may be where a part of its argument is 0."""
    return lambda now, *balls: function(*(now.snapped(acb(ball)) for ball in balls))


RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CONNECTIVES: Mapping[Any, Callable[[list[bool]], bool]] = {
    sympy.And: all,
    sympy.Or: any,
    sympy.Not: lambda parts: not parts[0],
    sympy.Xor: lambda parts: sum(parts) % 2 == 1,
}
_CONSTANTS: Mapping[Any, Callable[[], Ball]] = {
    sympy.pi: acb.pi,
    sympy.E: lambda: acb(arb.const_e()),
    sympy.I: lambda: acb(0, 1),
    sympy.EulerGamma: lambda: acb(arb.const_euler()),
    sympy.Catalan: lambda: acb(arb.const_catalan()),
    sympy.GoldenRatio: _golden,
}
_CONTINUOUS: Mapping[Any, Callable[..., acb]] = {
    sympy.exp: acb.exp,
    **{
        getattr(sympy, name): getattr(acb, name)
        for name in (
            *("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth"),
            *("sech", "csch", "gamma", "digamma", "erf", "erfc", "erfi", "zeta"),
        )
    },
    sympy.Si: acb.si,
    sympy.Shi: acb.shi,
    sympy.sinc: acb.sinc,
    sympy.fresnels: acb.fresnel_s,
    sympy.fresnelc: acb.fresnel_c,
    sympy.beta: lambda x, y: x.gamma() * y.gamma() / (x + y).gamma(),
    sympy.factorial: _factorial_of,
    sympy.polygamma: lambda order, x: x.digamma() if order == 0 else x.polygamma(order),
    sympy.conjugate: acb.conjugate,
    sympy.re: lambda z: acb(z.real),
    sympy.im: lambda z: acb(z.imag),
}
_WITH_CUTS: Mapping[Any, Callable[..., acb]] = {
    sympy.log: acb.log,
    **{
        getattr(sympy, name): getattr(acb, name)
        for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
    },
    sympy.acot: lambda z: (1 / z).atan() if not z.is_zero() else acb.pi() / 2,
    sympy.asec: lambda z: (1 / z).acos(),
    sympy.acsc: lambda z: (1 / z).asin(),
    sympy.acoth: lambda z: (1 / z).atanh(),
    sympy.asech: lambda z: (1 / z).acosh(),
    sympy.acsch: lambda z: (1 / z).asinh(),
    sympy.loggamma: acb.lgamma,
    sympy.Ei: acb.ei,
    sympy.Ci: acb.ci,
    sympy.Chi: acb.chi,
    sympy.li: acb.li,
    sympy.polylog: lambda order, z: z.polylog(order),
    sympy.lowergamma: lambda order, z: z.gamma_lower(order),
    sympy.uppergamma: lambda order, z: z.gamma_upper(order),
}
_RULES: Mapping[Any, Callable[..., Ball]] = {
    **{function: _plain(rule) for function, rule in _CONTINUOUS.items()},
    **{function: _cut(rule) for function, rule in _WITH_CUTS.items()},
    sympy.Add: _sum,
    sympy.Mul: _product,
    sympy.Pow: _power,
    sympy.Abs: lambda _, ball: abs(ball) if isinstance(ball, fmpq) else acb(abs(ball)),
    sympy.sign: _unit,
    sympy.arg: _angle,
    sympy.atan2: _angle_of_pair,
    sympy.Max: _extreme(arb.max),
    sympy.Min: _extreme(arb.min),
    sympy.floor: _BallsAtPoint.floor,
    sympy.ceiling: lambda now, ball: -now.floor(-ball),
    sympy.Mod: _remainder,
    sympy.binomial: _binomial,
    sympy.factorial2: _double_factorial,
    sympy.subfactorial: lambda _, n: acb(-1).gamma_upper(acb(n + 1)) / arb.const_e(),
    sympy.RisingFactorial: _rising,
    sympy.FallingFactorial: lambda now, x, k: _rising(now, x - k + 1, k),
    sympy.fibonacci: _fibonacci,
    sympy.lucas: lambda _, n: sum(_golden_powers(n)),
    sympy.catalan: _catalan,
    sympy.harmonic: _harmonic,
    sympy.LambertW: _lambert,
}
