"""Differential equations: a solution comes first, the equation is what it satisfies.

    y -> operator L with known coefficients -> L[y] = r, initial values -> problem

From tier 2 on the answer holds more than a solution: where it vanishes, the initial value that
keeps it bounded, the number for which it exists. Knows no interpreter; solves no equation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction

import sympy

from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero, polynomial, unimodular
from repl_rl.tasks.sympy_proofs.wide.modes import (
    NAMES,
    Modes,
    at_zero,
    by_value,
    combined,
    slope,
    spelled,
    total,
)

X = sympy.Symbol("x")
Y = "y = Function('y')"


def _first_order(rng: random.Random, tier: int) -> Draft:
    """y' = a*y + r(x) with y(0): dsolve takes it."""
    a = nonzero(rng, 6)
    b = rng.choice([b for b in range(-6, 7) if b not in (0, a)])
    terms = (("exp", a), ("exp", b), ("x", 1))
    y = total((*term, nonzero(rng, 9)) for term in terms)
    forcing = spelled(combined((1, slope(y)), (-a, y)))
    start = f"{{y(0): {at_zero(y)}}}"
    return Draft(
        question=f"Find the solution y of E with y(0) = {at_zero(y)}",
        form="an expression in x",
        answer=spelled(y),
        facts={NAMES: "x"},
        setup=(Y, _signed(f"E = Eq(y(x).diff(x), {a}*y(x) + {forcing})")),
        solution=(f"s = dsolve(E, y(x), ics={start})", "submit_final_answer(s.rhs)"),
    )


def _crossing(rng: random.Random, tier: int) -> Draft:
    """y = k*(z - m)*(z - r)*(z + s), z = exp(x), r < 1 < m: one positive zero, log(m)."""
    m, r, s = rng.randint(2, 30), Fraction(1, rng.randint(2, 6)), rng.randint(1, 20)
    k = nonzero(rng, 5) * r.denominator
    coefficients = (m * r * s, m * r - (m + r) * s, s - m - r, Fraction(1))
    y = total(("exp", i, k * c) for i, c in enumerate(coefficients))
    first, second = rng.sample((1, 2, 3), 2)
    equation = _second_order(first + second, -first * second, y)
    return Draft(
        question=f"{_KNOWN} has one positive zero T; find T and the derivative of y at T",
        form="a tuple (T, y'(T))",
        answer=f"(log({m}), {k * m * (m - r) * (m + s)})",
        setup=(Y, equation, _initial(y, at_zero(slope(y)))),
        solution=(
            "s = dsolve(E, y(x), ics=initial).rhs",
            "T = [t for t in solve(s, x) if t.is_positive][0]",
            "submit_final_answer((T, s.diff(x).subs(x, T)))",
        ),
    )


def _bounded(rng: random.Random, tier: int) -> Draft:
    """A growing and a decaying mode: one slope at 0 leaves the growing one out."""
    grow, decay, rate, wave = (rng.randint(1, 5) for _ in range(4))
    if rate == decay:
        return _bounded(rng, tier)
    terms = (("exp", -decay), ("exp", -rate), (rng.choice(("sin", "cos")), wave), ("exp", 0))
    y = total((*term, nonzero(rng, 9)) for term in terms)
    if at_zero(slope(y)) == 0:  # the first c that anybody tries
        return _bounded(rng, tier)
    equation = _second_order(grow - decay, grow * decay, y)
    return Draft(
        question=f"{_KNOWN} stays bounded as x -> oo for one number c; find c and that y",
        form="a tuple (c, y) of a number and an expression in x",
        answer=f"({at_zero(slope(y))}, {spelled(y)})",
        facts={NAMES: "x"},
        setup=(Y, "c = symbols('c')", equation, _initial(y, "c")),
        solution=(
            "s = expand(dsolve(E, y(x), ics=initial).rhs)",
            "g = [s.coeff(exp(k*x)) for k in range(1, 9) if s.coeff(exp(k*x)) != 0]",
            "v = solve(g[0], c)[0]",
            "submit_final_answer((v, expand(s.subs(c, v))))",
        ),
    )


def _system(rng: random.Random, tier: int) -> Draft:
    """X' = A*X + b with eigenvalues of both signs: unknown initial values for a bounded X."""
    num_growing = tier - 3
    size = num_growing + 2
    basis = unimodular(rng, size, 2)
    rates = [*rng.sample(range(1, 6), num_growing), *(-r for r in rng.sample(range(1, 6), 2))]
    inverse = basis.inv()
    matrix = basis * sympy.diag(*rates) * inverse
    rest = sympy.Matrix([nonzero(rng, 9) for _ in range(size)])
    modes = [0] * num_growing + [nonzero(rng, 9), nonzero(rng, 9)]
    start = rest + basis * sympy.Matrix(modes)
    first = rest[0] + sum(basis[0, i] * k * sympy.exp(rates[i] * X) for i, k in enumerate(modes))
    if inverse[:num_growing, -num_growing:].det() == 0 or first == rest[0]:
        return _system(rng, tier)  # not determined, or constant
    unknown = [f"c{i}" for i in range(num_growing)]
    start_text = ", ".join([*map(str, start[:-num_growing]), *unknown])
    values = ", ".join(unknown)
    return Draft(
        question=f"The solution of X' = A*X + b with X(0) = X0 stays bounded as x -> oo for one "
        f"choice of {values}; find {values} and the first entry u(x) of X",
        form=f"a tuple ({values}, u), the last an expression in x",
        answer=str((*start[-num_growing:], first)),
        facts={NAMES: "x"},
        setup=(
            f"{values} = symbols('{values}')",
            f"A = {matrix}",
            f"b = {sympy.Matrix(-matrix * rest)}",
            f"X0 = Matrix([{start_text}])",
        ),
        solution=(
            "P, D = A.diagonalize()",
            "e = -P*D.inv()*P.inv()*b",
            "w = P.inv()*(X0 - e)",
            f"v = solve([w[i] for i in range({size}) if D[i, i] > 0], [{values}])",
            "m = w.subs(v)",
            f"X = e + P*Matrix([m[i]*exp(D[i, i]*x) for i in range({size})])",
            f"submit_final_answer((*[v[s] for s in [{values}]], expand(X[0])))",
        ),
    )


def _polynomial(rng: random.Random, tier: int) -> Draft:
    """y'' + p*y' + q*y = r with polynomials: q*y leads, so one polynomial y at most solves it.

    In tier 5 y is a polynomial u times exp(k*x), and so is r.
    """
    low = rng.randint(1, 2)
    p, q = polynomial(rng, low), polynomial(rng, low + 1)
    u = polynomial(rng, rng.randint(3, 5))
    k = nonzero(rng, 4) if tier == 5 else 0
    slope = u.diff(X) + k * u  # of y, over exp(k*x)
    r = slope.diff(X) + k * slope + p * slope + q * u
    operator = f"y(x).diff(x, 2) + ({p.as_expr()})*y(x).diff(x) + ({q.as_expr()})*y(x)"
    form = "exp(k*x) times a polynomial in x, for one number k" if k else "a polynomial in x"
    return Draft(
        question=f"Find the solution y of E that is {form}",
        form="an expression in x",
        answer=str(u.as_expr() * sympy.exp(k * X)),
        facts={NAMES: "x"},
        setup=(Y, f"E = Eq({operator}, {r.as_expr() * sympy.exp(k * X)})"),
        solution=_UNDETERMINED if k == 0 else _UNDETERMINED_TIMES_EXP,
    )


_UNDETERMINED = (
    "d = degree(E.rhs, x) - degree(E.lhs.coeff(y(x)), x)",
    "c = symbols(f'c0:{d + 1}')",
    "u = sum(s*x**i for i, s in enumerate(c))",
    "e = expand((E.lhs - E.rhs).subs(y(x), u).doit())",
    "v = solve(Poly(e, x).coeffs(), c)",
    "submit_final_answer(u.subs(v))",
)
_UNDETERMINED_TIMES_EXP = (
    "w = E.rhs.atoms(exp).pop()",
    "d = degree(expand(E.rhs/w), x) - degree(E.lhs.coeff(y(x)), x)",
    "c = symbols(f'c0:{d + 1}')",
    "u = w*sum(s*x**i for i, s in enumerate(c))",
    "e = expand((E.lhs - E.rhs).subs(y(x), u).doit()/w)",
    "v = solve(Poly(e, x).coeffs(), c)",
    "submit_final_answer(u.subs(v))",
)


def _spectrum(rng: random.Random, tier: int) -> Draft:
    """a*y'' + b*y' + lam*y = 0, deg a <= 2, deg b = 1: one lam for a polynomial of a degree."""
    degree = rng.randint(3, 5)
    a2, a1, a0 = nonzero(rng, 3), rng.randint(-5, 5), nonzero(rng, 9)
    b1, b0 = nonzero(rng, 9), rng.randint(-9, 9)
    eigenvalues = [-(i * (i - 1) * a2 + i * b1) for i in range(degree + 1)]
    last = eigenvalues[degree]
    if last in eigenvalues[:degree]:  # several such polynomials, or none
        return _spectrum(rng, tier)
    c = [sympy.S.Zero] * degree + [sympy.S.One, sympy.S.Zero, sympy.S.Zero]
    for i in reversed(range(degree)):
        # The terms at x**i, those of c[i] apart.
        above = (i + 1) * (i * a1 + b0) * c[i + 1] + (i + 2) * (i + 1) * a0 * c[i + 2]
        c[i] = -above / (last - eigenvalues[i])
    y = sum(one * X**i for i, one in enumerate(c))
    return Draft(
        question=f"For one number lam the equation E has a polynomial solution of degree {degree}; "
        "find lam and the solution of that kind with leading coefficient 1",
        form="a tuple (lam, y), the second an expression in x",
        answer=str((last, y)),
        facts={NAMES: "x"},
        setup=(
            Y,
            "lam = symbols('lam')",
            f"E = Eq(({a2 * X**2 + a1 * X + a0})*y(x).diff(x, 2) + ({b1 * X + b0})*y(x).diff(x)"
            " + lam*y(x), 0)",
        ),
        solution=(
            f"c = symbols('c0:{degree}')",
            f"u = x**{degree} + sum(s*x**i for i, s in enumerate(c))",
            "e = Poly(E.lhs.subs(y(x), u).doit(), x).all_coeffs()",
            "v = solve(e[0], lam)[0]",
            "s = solve([f.subs(lam, v) for f in e[1:]], c)",
            "submit_final_answer((v, u.subs(s)))",
        ),
    )


_KNOWN = "The solution y of E with the values in initial"


def _second_order(trace: int, minus_det: int, y: Modes) -> str:
    """The line that binds E: y'' = trace*y' + minus_det*y + r."""
    first = slope(y)
    r = spelled(combined((1, slope(first)), (-trace, first), (-minus_det, y)))
    return _signed(f"E = Eq(y(x).diff(x, 2), {trace}*y(x).diff(x) + {minus_det}*y(x) + {r})")


def _initial(y: Modes, slope_at_zero: object) -> str:
    return f"initial = {{y(0): {at_zero(y)}, y(x).diff(x).subs(x, 0): {slope_at_zero}}}"


def _signed(text: str) -> str:
    return text.replace("+ -", "- ")


RULES: Mapping[str, Rule] = {
    "first_order": Rule(draft=_first_order, grade=by_value, tiers=(1,)),
    "crossing": Rule(draft=_crossing, grade=by_value, tiers=(2,)),
    "bounded": Rule(draft=_bounded, grade=by_value, tiers=(3,)),
    "system": Rule(draft=_system, grade=by_value, tiers=(4, 5)),
    "polynomial": Rule(draft=_polynomial, grade=by_value, tiers=(4, 5)),
    "spectrum": Rule(draft=_spectrum, grade=by_value, tiers=(4,), is_held_out=True),
}
