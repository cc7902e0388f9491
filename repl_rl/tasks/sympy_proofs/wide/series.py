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


def _by(function: Callable[..., Series]) -> Callable[[Series], Series]:
    return lambda x: function(x, _X, ORDER)


def _cut(series: Series) -> Series:
    return rs.rs_trunc(series, _X, ORDER)


def _times(left: Series, right: Series) -> Series:
    return rs.rs_mul(left, right, _X, ORDER)


_UNITS: tuple[tuple[str, Callable[[Series], Series]], ...] = (
    ("exp{x}", _by(rs.rs_exp)),
    ("(1 + sin{x})", lambda x: 1 + rs.rs_sin(x, _X, ORDER)),
    ("(1 + log(1 + {x}))", lambda x: 1 + rs.rs_log(1 + x, _X, ORDER)),
    ("(1 + atan{x})", lambda x: 1 + rs.rs_atan(x, _X, ORDER)),
    ("sqrt(1 + {x})", lambda x: rs.rs_nth_root(1 + x, 2, _X, ORDER)),
    ("1/(1 - {x})", lambda x: rs.rs_series_inversion(1 - x, _X, ORDER)),
)


def _power(x: Series, k: int, m: int) -> Series:
    return _cut(k * rs.rs_pow(x, m, _X, ORDER))


def _damped(m: int) -> tuple[tuple[str, Callable[[Series, int], Series]], ...]:
    """Any m: x*exp(-k*x**m) and x/(1 + k*x**m)."""
    return (
        (
            "{x}*exp(-{k}*{x}**{m})",
            lambda x, k: _times(x, rs.rs_exp(-_power(x, k, m), _X, ORDER)),
        ),
        (
            "{x}/(1 + {k}*{x}**{m})",
            lambda x, k: _times(x, rs.rs_series_inversion(1 + _power(x, k, m), _X, ORDER)),
        ),
    )


_SHRINKING: dict[int, tuple[tuple[str, Callable[[Series, int], Series]], ...]] = {
    1: (
        *_damped(1),
        ("log(1 + {k}*{x})/{k}", lambda x, k: rs.rs_log(1 + k * x, _X, ORDER) / k),
        ("(1 - exp(-{k}*{x}))/{k}", lambda x, k: (1 - rs.rs_exp(-k * x, _X, ORDER)) / k),
    ),
    2: (
        *_damped(2),
        ("sin({k}*{x})/{k}", lambda x, k: rs.rs_sin(k * x, _X, ORDER) / k),
        ("atan({k}*{x})/{k}", lambda x, k: rs.rs_atan(k * x, _X, ORDER) / k),
        ("tanh({k}*{x})/{k}", lambda x, k: rs.rs_tanh(k * x, _X, ORDER) / k),
        ("{x}*cos({k}*{x})", lambda x, k: _times(x, rs.rs_cos(k * x, _X, ORDER))),
    ),
    3: _damped(3),
}
"""By m: functions x*(1 - c*x**m + ...) with c > 0, of a whole number k > 0."""
