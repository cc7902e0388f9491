"""Functions with their Taylor series at 0, exact: what limits are made of.

    Germ: text that Python reads, and the function on truncated power series

Series are computed by polynomial arithmetic, so a coefficient is known before anybody asks sympy
for it. Knows no problem.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.polys import ring_series as rs
from sympy.polys.rings import ring

ORDER = 10
"""The first power of x that is not known."""

_RING, _X, _P = ring("x, p", sympy.QQ)
_PARAMETER = sympy.Symbol("p", positive=True)

Series = Any
"""An element of the ring: a polynomial in x and p; sympy ships no types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Germ:
    """A function near 0."""

    template: str
    """With {x} where its argument goes."""
    on_series: Callable[[Series], Series]

    @property
    def expression(self) -> str:
        return self.template.replace("{x}", "x")

    def after(self, inner: Germ) -> Germ:
        """Germ of this function of that one."""
        return Germ(
            template=self.template.replace("{x}", f"({inner.template})"),
            on_series=lambda x: self.on_series(inner.on_series(x)),
        )


def coefficients(germ: Germ) -> list[Any]:
    """Coefficients of x**0, x**1, ..., as sympy's expressions in p.  [ORDER]"""
    series = germ.on_series(_X)
    terms: list[Any] = [sympy.S.Zero] * ORDER
    for (power, parameter), c in series.terms():
        terms[power] += sympy.Rational(c.numerator, c.denominator) * _PARAMETER**parameter
    return terms


def unit(rng: random.Random, first: Any, second: int) -> Germ:
    """A function that is 1 at 0, of first*x + second*x**2; `first` is a number or p."""
    slope = _P if first == _PARAMETER else _RING(int(first))
    inner = f"({first}*{{x}} + {second}*{{x}}**2)".replace("+ -", "- ")
    template, on_series = rng.choice(_UNITS)
    return Germ(
        template=template.replace("{x}", inner),
        on_series=lambda x: on_series(rs.rs_trunc(slope * x + second * x**2, _X, ORDER)),
    )


def iterable(rng: random.Random, powers: tuple[int, ...]) -> tuple[Germ, int]:
    """A function x*(1 - c*x**m + ...) with c > 0, a series in x**m times x; and m from `powers`."""
    m = rng.choice(powers)
    outer, inner = (_shrinking(rng.choice(_SHRINKING[m]), rng.randint(1, 6), m) for _ in range(2))
    return outer.after(inner), m


def _shrinking(of: tuple[str, Callable[[Series, int], Series]], k: int, m: int) -> Germ:
    template, on_series = of
    text = template.replace("{k}", str(k)).replace("**{m}", f"**{m}" if m > 1 else "")
    return Germ(template=text, on_series=lambda x: on_series(x, k))


def _on_series(function: Callable[..., Series]) -> Callable[[Series], Series]:
    return lambda x: function(x, _X, ORDER)


_exp, _log, _sin, _cos = map(_on_series, (rs.rs_exp, rs.rs_log, rs.rs_sin, rs.rs_cos))
_tanh, _atan = map(_on_series, (rs.rs_tanh, rs.rs_atan))
_inverse = _on_series(rs.rs_series_inversion)


def _times(left: Series, right: Series) -> Series:
    return rs.rs_mul(left, right, _X, ORDER)


_UNITS: tuple[tuple[str, Callable[[Series], Series]], ...] = (
    ("exp{x}", _exp),
    ("(1 + sin{x})", lambda x: 1 + _sin(x)),
    ("(1 + log(1 + {x}))", lambda x: 1 + _log(1 + x)),
    ("(1 + atan{x})", lambda x: 1 + _atan(x)),
    ("sqrt(1 + {x})", lambda x: rs.rs_nth_root(1 + x, 2, _X, ORDER)),
    ("1/(1 - {x})", lambda x: _inverse(1 - x)),
)


def _power(x: Series, k: int, m: int) -> Series:
    return k * rs.rs_pow(x, m, _X, ORDER)


def _damped(m: int) -> tuple[tuple[str, Callable[[Series, int], Series]], ...]:
    """Any m: x*exp(-k*x**m) and x/(1 + k*x**m)."""
    return (
        ("{x}*exp(-{k}*{x}**{m})", lambda x, k: _times(x, _exp(-_power(x, k, m)))),
        ("{x}/(1 + {k}*{x}**{m})", lambda x, k: _times(x, _inverse(1 + _power(x, k, m)))),
    )


_SHRINKING: dict[int, tuple[tuple[str, Callable[[Series, int], Series]], ...]] = {
    1: (
        *_damped(1),
        ("log(1 + {k}*{x})/{k}", lambda x, k: _log(1 + k * x) / k),
        ("(1 - exp(-{k}*{x}))/{k}", lambda x, k: (1 - _exp(-k * x)) / k),
    ),
    2: (
        *_damped(2),
        ("sin({k}*{x})/{k}", lambda x, k: _sin(k * x) / k),
        ("atan({k}*{x})/{k}", lambda x, k: _atan(k * x) / k),
        ("tanh({k}*{x})/{k}", lambda x, k: _tanh(k * x) / k),
        ("{x}*cos({k}*{x})", lambda x, k: _times(x, _cos(k * x))),
    ),
    3: _damped(3),
}
"""By m: functions x*(1 - c*x**m + ...) with c > 0, of a whole number k > 0."""
