"""Constructors of expressions, each bounded before it is computed: powers, factorials, parts.

The vocabulary, the names that a submission may use, stands here too. Knows values alone: no
syntax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import sympy

CONSTANTS: Mapping[str, Any] = {  # sympy ships no types
    "pi": sympy.pi,
    "E": sympy.E,
    "I": sympy.I,
    "oo": sympy.oo,
    "inf": sympy.oo,
    "zoo": sympy.zoo,
    "nan": sympy.nan,
    "GoldenRatio": sympy.GoldenRatio,
    "EulerGamma": sympy.EulerGamma,
    "Catalan": sympy.Catalan,
    "true": True,
    "false": False,
    "EmptySet": frozenset(),
    "Naturals": sympy.S.Naturals,
    "Naturals0": sympy.S.Naturals0,
    "Integers": sympy.S.Integers,
    "Rationals": sympy.S.Rationals,
    "Reals": sympy.S.Reals,
    "Complexes": sympy.S.Complexes,
}

# Called with expressions, and with nothing else.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: getattr(sympy, name)
    for name in (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "atan2"),
        *("acot", "asec", "acsc", "acoth", "asech", "acsch", "sinc"),
        *("sinh", "cosh", "tanh", "coth", "sech", "csch", "asinh", "acosh", "atanh"),
        *("log", "ln", "Abs", "sign", "re", "im", "conjugate", "arg"),
        *("LambertW", "Ei", "Si", "Ci", "li", "Shi", "Chi", "Max", "Min"),
        *("erf", "erfc", "erfi", "fresnels", "fresnelc", "polylog"),
        *("beta", "lowergamma", "uppergamma"),
        *("floor", "ceiling", "Mod", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"),
    )
}

# Called with whole numbers, or with symbols; the numbers are bounded.
COUNTED: Mapping[str, Callable[..., Any]] = {
    name: getattr(sympy, name)
    for name in (
        *("factorial", "factorial2", "subfactorial", "binomial", "gamma", "loggamma"),
        *("fibonacci", "lucas", "catalan", "harmonic", "zeta", "digamma", "polygamma"),
    )
}

# Of those, what is called with fractions, too.
CONTINUOUS = ("factorial", "binomial", "gamma", "loggamma", "zeta", "digamma", "polygamma")

# As large as their arguments are many, and larger.
FACTORIALS: tuple[Any, ...] = (
    *(sympy.factorial, sympy.factorial2, sympy.subfactorial, sympy.binomial, sympy.gamma),
    *(sympy.RisingFactorial, sympy.FallingFactorial, sympy.fibonacci, sympy.lucas, sympy.catalan),
)

# To split a number into parts, or to round it, sympy multiplies it out.
EXPANDING = ("re", "im", "arg", "conjugate", "Abs", "sign", "floor", "ceiling", "Mod", "atan2")

# As large as exp of their argument, somewhere.
GROWING = (
    *("sin", "cos", "tan", "cot", "sec", "csc", "sinc"),
    *("sinh", "cosh", "tanh", "coth", "sech", "csch"),
)

# Their digits take longer, the larger their arguments are.
COSTLY = (
    *("erf", "erfc", "erfi", "fresnels", "fresnelc", "Shi", "Chi", "polylog"),
    *("beta", "lowergamma", "uppergamma"),
)

# Called with sets, conditions or tuples as well.
STRUCTURES: Mapping[str, Callable[..., Any]] = {
    name: getattr(sympy, name)
    for name in (
        *("Interval", "Union", "Intersection", "Complement"),
        *("Piecewise", "And", "Or", "Not", "Xor"),
    )
}

# They restate a question instead of answering it.
UNEVALUATED = (
    *("Integral", "Sum", "Product", "Limit", "Derivative", "Subs", "ConditionSet", "ImageSet"),
    *("RootSum", "RootOf", "CRootOf", "ComplexRootOf", "Lambda", "Order", "O"),
)


MAX_BITS = 8192
"""Most bits of a numerator or denominator, written or computed."""
MAGNITUDE_DIGITS = 30
"""Digits in which a number shows how large it is; one that does not is next to 0."""
MAX_EXPONENT = 4096
MAX_RADICAND_BITS = 512
"""A fractional power looks for factors of its base."""
MAX_FACTORIAL = 2000
MAX_FACTORS = 60
"""Most factors of a rising or falling factorial that is multiplied out."""
MAX_TERMS = 1000
"""Most terms of an expression that is multiplied out to split it into parts, or to round it."""


class Malformed(ValueError):
    """The text is not an answer in the accepted language; the message says why.

    >>> try:
    ...     parse("open('secret')")
    ... except Malformed as error:
    ...     print("refused")
    refused
    """


def function(name: str, args: list[Any]) -> Any:
    if name in EXPANDING and any(_num_terms(arg) > MAX_TERMS for arg in args):
        raise Malformed(f"{name} of a product of more than {MAX_TERMS} terms")
    for arg in args if name in GROWING else ():
        if arg.is_number and not arg.is_Rational:
            _check_exponent(arg)
    for arg in args if name in COSTLY else ():
        _check_exponent(arg)
    return bounded(FUNCTIONS[name](*args))


def _num_terms(expression: Any) -> int:
    """The most terms that multiplying out all products and powers of sums can give."""
    if expression.is_Add:
        return sum(_num_terms(term) for term in expression.args)
    if expression.is_Pow and expression.exp.is_Rational:
        # Beyond the bound it does not matter by how much.
        factors = [_num_terms(expression.base)] * min(MAX_TERMS, math.ceil(abs(expression.exp)))
        return min(math.prod(factors), 2 * MAX_TERMS)
    parts: list[int] = [_num_terms(part) for part in expression.args]
    return math.prod(parts) if expression.is_Mul else max(parts, default=1)


def power(base: Any, exponent: Any) -> Any:
    """`base**exponent`, refused while it is still cheap to refuse."""
    _check_exponent(exponent)
    if base.is_zero and not exponent.is_number:
        raise Malformed("a power of 0 with a symbol in its exponent")
    if base.is_Rational and exponent.is_Rational and base not in (-1, 0, 1):
        if _bits(base) * abs(exponent) > MAX_BITS:
            raise Malformed(f"a power of more than {MAX_BITS} bits")
        if not exponent.is_Integer and _bits(base) > MAX_RADICAND_BITS:
            raise Malformed(f"a root of more than {MAX_RADICAND_BITS} bits")
    return bounded(base**exponent)


def _check_exponent(exponent: Any) -> None:
    if not exponent.is_number:
        if any(power.args[-1].free_symbols for power in exponent.atoms(sympy.Pow, sympy.exp)):
            raise Malformed("a power with a symbol in the exponent of its exponent")
        return
    if exponent.is_Rational and exponent.q > MAX_EXPONENT:
        raise Malformed(f"a root of order above {MAX_EXPONENT}")
    # Its own parts are bounded already, so 15 digits of it are cheap.
    size = exponent if exponent.is_Rational else exponent.evalf(15)
    if not abs(size) <= MAX_EXPONENT:
        raise Malformed(f"an exponent above {MAX_EXPONENT}")


def _exp(exponent: Any) -> Any:
    _check_exponent(exponent)
    return sympy.exp(exponent)


def _product_of(function: Callable[[Any, Any], Any], base: Any, count: Any) -> Any:
    """A rising or falling factorial."""
    _check_small(base, is_whole=True)
    _check_small(count, is_whole=True)
    if count.is_number and not base.is_number and abs(count) > MAX_FACTORS:
        raise Malformed(f"a product of more than {MAX_FACTORS} factors")
    return function(base, count)


def _counted(name: str, *args: Any) -> Any:
    for arg in args:
        _check_small(arg, is_whole=name not in CONTINUOUS)
    return COUNTED[name](*args)


def _check_small(argument: Any, *, is_whole: bool) -> None:
    if argument.is_number and not (argument.is_Integer if is_whole else argument.is_Rational):
        kind = "whole" if is_whole else "rational"
        raise Malformed(f"a factorial of a number that is not {kind}")
    numbers = argument.atoms(sympy.Rational)
    if any(abs(number) > MAX_FACTORIAL or number.q > MAX_FACTORIAL for number in numbers):
        raise Malformed(f"factorials are read of numbers up to {MAX_FACTORIAL}")
    if argument.has(sympy.Pow, sympy.exp, *FACTORIALS):
        raise Malformed("a factorial that grows faster than factorials do")


def _fraction(numerator: Any, denominator: Any = sympy.S.One) -> Any:
    if not (numerator.is_Rational and denominator.is_Rational and denominator != 0):
        raise Malformed("a fraction of anything but whole numbers")
    return sympy.Rational(numerator, denominator)


def expression(value: Any) -> Any:
    """`value` where arithmetic is meant: True is no number here, a list no summand."""
    if not isinstance(value, sympy.Expr) or value.is_Matrix:
        raise Malformed(f"a {type(value).__name__} where an expression is expected")
    return value


def bounded(value: Any) -> Any:
    """`value`, refused if it is a number too large, too small or too long to be judged in time."""
    if isinstance(value, sympy.Rational):
        num_bits = float(_bits(value))
    elif isinstance(value, sympy.Expr) and value.is_number and value.has(sympy.Pow, sympy.exp):
        num_bits = _magnitude_bits(value)
    else:
        return value
    if num_bits > MAX_BITS:
        raise Malformed(f"a number of more than {MAX_BITS} bits")
    return value


def _magnitude_bits(number: Any) -> float:
    """Size of the logarithm to the base 2; 0 where the number is none."""
    size = abs(number.evalf(3, maxn=MAGNITUDE_DIGITS))
    return float(abs(sympy.log(size, 2))) if size.is_Float and size != 0 else 0.0


def _bits(number: Any) -> int:
    return max(int(number.p).bit_length(), int(number.q).bit_length())


CONSTRUCTORS: Mapping[str, Callable[..., Any]] = {
    "sqrt": lambda base: power(base, sympy.Rational(1, 2)),
    "cbrt": lambda base: power(base, sympy.Rational(1, 3)),
    "Pow": power,
    "exp": _exp,
    **dict.fromkeys(("RisingFactorial", "rf"), partial(_product_of, sympy.RisingFactorial)),
    **dict.fromkeys(("FallingFactorial", "ff"), partial(_product_of, sympy.FallingFactorial)),
    **{name: partial(_counted, name) for name in COUNTED},
    "Rational": _fraction,
    "Fraction": _fraction,
    "Integer": lambda number: _fraction(number),
}
