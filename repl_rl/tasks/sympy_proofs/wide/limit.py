"""Limits and asymptotics: cancellations, expansions, Pade, iterated maps, Riemann sums.

    numbers of a Taylor series (exact, by arithmetic of truncated series) -> expression -> problem

A `Germ` is a function with its Taylor series at 0, exact. Series are computed by polynomial
arithmetic, so a coefficient is known before anybody asks sympy for it.

Every answer from tier 2 on holds several values, of which the later depend on the earlier. Knows no
interpreter; takes no limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.polys import ring_series as rs
from sympy.polys.rings import ring

from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero
from repl_rl.tasks.sympy_proofs.wide.modes import BIND_P, NAMES, POSITIVE_P, by_value

X = sympy.Symbol("x")
P = sympy.Symbol("p", positive=True)
Q = sympy.Symbol("q")

ORDER = 10
"""The first power of x that is not known."""

_RING, _X, _P = ring("x, p", sympy.QQ)

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
        terms[power] += sympy.Rational(c.numerator, c.denominator) * P**parameter
    return terms


def unit(rng: random.Random, first: Any, second: int) -> Germ:
    """A function that is 1 at 0, of first*x + second*x**2; `first` is a number or p."""
    slope = _P if first == P else _RING(int(first))
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
_reciprocal = _on_series(rs.rs_series_inversion)


def _times(left: Series, right: Series) -> Series:
    return rs.rs_mul(left, right, _X, ORDER)


_UNITS: tuple[tuple[str, Callable[[Series], Series]], ...] = (
    ("exp{x}", _exp),
    ("(1 + sin{x})", lambda x: 1 + _sin(x)),
    ("(1 + log(1 + {x}))", lambda x: 1 + _log(1 + x)),
    ("(1 + atan{x})", lambda x: 1 + _atan(x)),
    ("sqrt(1 + {x})", lambda x: rs.rs_nth_root(1 + x, 2, _X, ORDER)),
    ("1/(1 - {x})", lambda x: _reciprocal(1 - x)),
)


def _power(x: Series, k: int, m: int) -> Series:
    return k * rs.rs_pow(x, m, _X, ORDER)


def _damped(m: int) -> tuple[tuple[str, Callable[[Series, int], Series]], ...]:
    """Any m: x*exp(-k*x**m) and x/(1 + k*x**m)."""
    return (
        ("{x}*exp(-{k}*{x}**{m})", lambda x, k: _times(x, _exp(-_power(x, k, m)))),
        ("{x}/(1 + {k}*{x}**{m})", lambda x, k: _times(x, _reciprocal(1 + _power(x, k, m)))),
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


def _ratio(rng: random.Random, tier: int) -> Draft:
    """One coefficient of a Taylor series, all before it taken away."""
    germ = unit(rng, nonzero(rng, 9), nonzero(rng, 9))
    order, k = rng.randint(2, 4), rng.randint(2, 99)
    known = [k * c for c in coefficients(germ)]
    if known[order] == 0:
        return _ratio(rng, tier)
    start = sum(known[i] * X**i for i in range(order))
    return Draft(
        question="Find the limit of f as x -> 0",
        form="the exact value",
        answer=str(known[order]),
        setup=(f"f = ({k}*{germ.expression} - ({start}))/x**{order}",),
        solution=("L = limit(f, x, 0)", "submit_final_answer(L)"),
    )


def _tune(rng: random.Random, tier: int) -> Draft:
    """Two unknown numbers cancel two terms; the third is the limit."""
    germ = unit(rng, nonzero(rng, 6), nonzero(rng, 9))
    _, c1, c2, c3 = coefficients(germ)[:4]
    k, m = nonzero(rng, 4), nonzero(rng, 4)
    # sin(k*x) has 0 at x**2, so b comes from c2 alone.
    b = c2 / sympy.Rational(m**2, 2)
    a = (c1 - b * m) / k
    limit = c3 - b * sympy.Rational(m**3, 6) + a * sympy.Rational(k**3, 6)
    if 0 in (a, b, limit):
        return _tune(rng, tier)
    f = f"{germ.expression} - 1 - a*sin({k * X}) - b*(exp({m * X}) - 1)"
    return Draft(
        question="f/x**3 has a finite limit L as x -> 0 for one pair of numbers (a, b); "
        "find a, b and L",
        form="a tuple (a, b, L)",
        answer=str((a, b, limit)),
        setup=("a, b = symbols('a b')", f"f = {f}"),
        solution=(
            "s = series(f, x, 0, 4).removeO()",
            "v = solve([s.coeff(x, 1), s.coeff(x, 2)], [a, b])",
            "submit_final_answer((v[a], v[b], s.coeff(x, 3).subs(v)))",
        ),
    )


def _fraction(rng: random.Random, tier: int) -> Draft:
    """The Pade approximant [1/1] of a function with a parameter, and its error."""
    germ = unit(rng, P, nonzero(rng, 9))
    _, c1, c2, c3 = coefficients(germ)[:4]
    b = sympy.cancel(-c2 / c1)
    a = sympy.cancel(c1 + b)
    limit = sympy.cancel(c3 - c1 * b**2)
    if limit == 0:
        return _fraction(rng, tier)
    return Draft(
        question="f/x**3 has a finite limit L as x -> 0 for one pair (a, b) that depends on p; "
        "find a, b and L for p > 0",
        form="a tuple (a, b, L) of expressions in p",
        answer=str((a, b, limit)),
        facts={NAMES: POSITIVE_P},
        setup=(
            "a, b = symbols('a b')",
            BIND_P,
            f"f = {germ.expression} - (1 + a*x)/(1 + b*x)",
        ),
        solution=(
            "s = series(f, x, 0, 4).removeO()",
            "c = [expand(s).coeff(x, i) for i in (1, 2, 3)]",
            "v = solve(c[:2], [a, b], dict=True)[0]",
            "submit_final_answer((v[a], v[b], simplify(c[2].subs(v))))",
        ),
    )


def _infinity(rng: random.Random, tier: int) -> Draft:
    """Two roots whose difference is A + B/x + ...; each is x*(1 + u/x + v/x**2 + ...)**(1/m)."""
    m, k = rng.choice(((3, 2), (4, 2), (3, 4), (5, 2), (2, 5), (4, 3)))
    u, w, v, z = (nonzero(rng, 9) for _ in range(4))
    first, second = _root_at_infinity(m, u * P, v), _root_at_infinity(k, w, z * P)
    a, b = (sympy.expand(one - other) for one, other in zip(first, second, strict=True))
    f = (
        f"root({X**m + u * P * X ** (m - 1) + v * X ** (m - 2)}, {m})"
        f" - root({X**k + w * X ** (k - 1) + z * P * X ** (k - 2)}, {k})"
    )
    return Draft(
        question="f = A + B/x + o(1/x) as x -> oo; find A and B",
        form="a tuple (A, B) of expressions in p",
        answer=str((a, b)),
        facts={NAMES: POSITIVE_P},
        setup=(BIND_P, f"f = {f}"),
        solution=(
            "A = limit(f, x, oo)",
            "B = limit(x*(f - A), x, oo)",
            "submit_final_answer((A, B))",
        ),
    )


def _root_at_infinity(m: int, u: Any, v: Any) -> tuple[Any, Any]:
    """The terms at 1 and 1/x of x*(1 + u/x + v/x**2)**(1/m), u and v possibly with symbols."""
    r = sympy.Rational(1, m)
    return r * u, r * v + r * (r - 1) / 2 * u**2


def _iterate(rng: random.Random, tier: int) -> Draft:
    """u(n+1) = f(u(n)) -> 0 as a power of n.

    With f = x - c*x**(m + 1) + d*x**(2*m + 1) + ...: u**-m grows by m*c in each step, and its next
    term is K*log(n), K = (m + 1)*c/2 - d/c.
    """
    germ, m = iterable(rng, (1, 1, 2, 2, 2, 3))
    known = coefficients(germ)
    c, d = -known[m + 1], known[2 * m + 1]
    if tier == 5:
        return _tuned_iterate(rng, germ.expression, m, c, d)
    rate, drift = m * c, (m + 1) * c / 2 - d / c
    if tier == 3:
        return Draft(
            question=f"{_LAW}; find the m and L > 0 for which n*u(n)**m -> L",
            form="a tuple (m, L)",
            answer=str((m, 1 / rate)),
            setup=(f"f = {germ.expression}",),
            solution=(*_LEADING, "submit_final_answer((e - 1, 1/((e - 1)*c)))"),
        )
    return Draft(
        question=f"{_LAW_OF_POWERS}; find m, R, K",
        form="a tuple (m, R, K)",
        answer=str((m, rate, drift)),
        setup=(f"f = {germ.expression}",),
        solution=(
            *_LEADING,
            "d = -series(x - f, x, 0, 2*e).removeO().coeff(x, 2*e - 1)",
            "K = e*c/2 - d/c",
            "submit_final_answer((e - 1, (e - 1)*c, K))",
        ),
    )


def _tuned_iterate(rng: random.Random, f: str, m: int, c: Any, d: Any) -> Draft:
    """Draft of an iterate with a free number q that takes the logarithm away."""
    k = nonzero(rng, 9)
    # f*(1 + k*q*x**(2*m)) adds k*q to d, and nothing before it.
    q = ((m + 1) * c**2 / 2 - d) / k
    if q == 0:
        return _iterate(rng, 5)
    return Draft(
        question=f"{_LAW_OF_POWERS}; find m, the number q for which K = 0, and R",
        form="a tuple (m, q, R)",
        answer=str((m, q, m * c)),
        setup=("q = symbols('q')", f"f = ({f})*(1 + ({k})*q*x**{2 * m})"),
        solution=(
            *_LEADING,
            "d = -expand(series(x - f, x, 0, 2*e).removeO()).coeff(x, 2*e - 1)",
            "K = e*c/2 - d/c",
            "z = solve(K, q)[0]",
            "submit_final_answer((e - 1, z, (e - 1)*c))",
        ),
    )


_LAW = "u(n+1) = f(u(n)) with a small u(0) > 0, where u(n) stands for x in f, tends to 0"
_LAW_OF_POWERS = f"{_LAW} such that u(n)**(-m) = R*n + K*log(n) + O(1) for one m > 0"
_LEADING = (
    "s = series(x - f, x, 0, 5).removeO()",
    "e = min(i for i in range(1, 5) if s.coeff(x, i) != 0)",
    "c = s.coeff(x, e)",
)
"""Lines that find the leading term of x - f, c*x**e; e is m + 1."""


def _commute(rng: random.Random, tier: int) -> Draft:
    """f(g(x)) and g(f(x)) agree to a high order; the first two terms in which they do not."""
    (f, m), (g, k) = iterable(rng, (2, 2, 3)), iterable(rng, (2, 2, 3))
    left, right = coefficients(f.after(g)), coefficients(g.after(f))
    difference = [a - b for a, b in zip(left, right, strict=True)]
    order = next((i for i, one in enumerate(difference) if one != 0), ORDER)
    step = next((i for i in range(1, ORDER - order) if difference[order + i] != 0), None)
    if m != k or step is None:  # unequal ones differ at once
        return _commute(rng, tier)
    ratio = difference[order + step] / difference[order]
    return Draft(
        question="h = f(g(x)) - g(f(x)), each put for x in the other, is a*x**m + b*x**k + ... as "
        "x -> 0, where m < k and a, b are not 0; find m, k and b/a",
        form="a tuple (m, k, b/a)",
        answer=str((order, order + step, ratio)),
        setup=(f"f = {f.expression}", f"g = {g.expression}"),
        solution=(
            f"F = series(f, x, 0, {ORDER}).removeO()",
            f"K = F.subs(x, series(g, x, 0, {ORDER}).removeO())",
            f"h = Poly(K - series(g, x, 0, {ORDER}).removeO().subs(x, F), x)",
            f"c = [h.coeff_monomial(x**i) for i in range({ORDER})]",
            "e = [i for i, v in enumerate(c) if v != 0]",
            "submit_final_answer((e[0], e[1], c[e[1]]/c[e[0]]))",
        ),
    )


def _riemann(rng: random.Random, tier: int) -> Draft:
    """A Riemann sum of g = G' with its error: s(n) = I + J/n + o(1/n), 2*J = g(1) - g(0)."""
    primitives: tuple[Callable[[Any], Any], ...] = (
        lambda c: c * sympy.sqrt(1 + P * X),
        lambda c: c * sympy.exp(P * X**2),
        lambda c: c * sympy.log(1 + P * X**2),
        lambda c: c * sympy.atan(P * X),
    )
    G = rng.choice(primitives)(rng.randint(1, 9)) + rng.randint(1, 9) * X ** rng.randint(1, 4)
    g = sympy.diff(G, X)
    area = G.subs(X, 1) - G.subs(X, 0)
    slope = (g.subs(X, 1) - g.subs(X, 0)) / 2
    return Draft(
        question="s(n) = Sum(g.subs(x, k/n), (k, 1, n))/n tends to I, and n*(s(n)/I - 1) tends "
        "to L, as n -> oo; find I and L",
        form="a tuple (I, L) of expressions in p",
        answer=str((area, sympy.cancel(slope / area))),
        facts={NAMES: POSITIVE_P},
        setup=(BIND_P, f"g = {g}"),
        solution=(
            "G = integrate(g, x)",
            "A = G.subs(x, 1) - G.subs(x, 0)",
            "J = (g.subs(x, 1) - g.subs(x, 0))/2/A",
            "submit_final_answer((A, J))",
        ),
    )


RULES: Mapping[str, Rule] = {
    "ratio": Rule(draft=_ratio, grade=by_value, tiers=(1,), chance=0.03),
    "tune": Rule(draft=_tune, grade=by_value, tiers=(2,)),
    "infinity": Rule(draft=_infinity, grade=by_value, tiers=(2,)),
    "fraction": Rule(draft=_fraction, grade=by_value, tiers=(3,)),
    "iterate": Rule(draft=_iterate, grade=by_value, tiers=(3, 4, 5), chance=0.02),
    "commute": Rule(draft=_commute, grade=by_value, tiers=(4,)),
    "riemann": Rule(draft=_riemann, grade=by_value, tiers=(3,), is_held_out=True),
}
