"""The words a submission may use: constants and constructors, each safe to call on sympy objects.

Tables; know nothing of syntax. Constructors that can blow up are bounded in `parse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
CONTINUOUS = frozenset(
    ("factorial", "binomial", "gamma", "loggamma", "zeta", "digamma", "polygamma")
)

# As large as their arguments are many, and larger.
FACTORIALS: tuple[Any, ...] = (
    *(sympy.factorial, sympy.factorial2, sympy.subfactorial, sympy.binomial, sympy.gamma),
    *(sympy.RisingFactorial, sympy.FallingFactorial, sympy.fibonacci, sympy.lucas, sympy.catalan),
)

# To split a number into parts, or to round it, sympy multiplies it out.
EXPANDING = frozenset(
    ("re", "im", "arg", "conjugate", "Abs", "sign", "floor", "ceiling", "Mod", "atan2")
)

# As large as exp of their argument, somewhere.
GROWING = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "sinc"),
        *("sinh", "cosh", "tanh", "coth", "sech", "csch"),
    )
)

# Their digits take longer, the larger their arguments are.
COSTLY = frozenset(
    (
        *("erf", "erfc", "erfi", "fresnels", "fresnelc", "Shi", "Chi", "polylog"),
        *("beta", "lowergamma", "uppergamma"),
    )
)

# Called with sets, conditions or tuples as well.
STRUCTURES: Mapping[str, Callable[..., Any]] = {
    name: getattr(sympy, name)
    for name in (
        "Interval",
        "Union",
        "Intersection",
        "Complement",
        "Piecewise",
        "And",
        "Or",
        "Not",
        "Xor",
    )
}

# They restate a question instead of answering it.
UNEVALUATED = frozenset(
    (
        *("Integral", "Sum", "Product", "Limit", "Derivative", "Subs", "ConditionSet", "ImageSet"),
        *("RootSum", "RootOf", "CRootOf", "ComplexRootOf", "Lambda", "Order", "O"),
    )
)
