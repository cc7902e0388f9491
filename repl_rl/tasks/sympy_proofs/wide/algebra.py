"""Linear algebra and polynomials: determinants, remainders, pencils, sums of roots, factors.

Eigenvalues, roots and factors are drawn first; matrices and polynomials are made of them by whole
numbers. Knows no interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import comb, isqrt
from typing import Any

import sympy

from repl_rl.grading.equality import compare
from repl_rl.grading.parse import Malformed, parse
from repl_rl.records import Problem, Verdict
from repl_rl.tasks.sympy_proofs.family import Draft, Rule, nonzero, unimodular
from repl_rl.tasks.sympy_proofs.wide.modes import NAMES, by_value

X = sympy.Symbol("x")
POLYNOMIAL = "a polynomial in x"


def _determinant(rng: random.Random, _: int) -> Draft:
    """det(A + t*B) = (a + b*t)*... for triangles times unimodular matrices."""
    numbers = [(nonzero(rng, 9), nonzero(rng, 5)) for _ in range(3)]
    left, right = unimodular(rng, 3, 3), unimodular(rng, 3, 3)
    parts = [left * sympy.diag(*diagonal) * right for diagonal in zip(*numbers, strict=True)]
    rows = [
        ", ".join(f"{a} + {b}*t" for a, b in zip(*pair, strict=True))
        for pair in zip(*(part.tolist() for part in parts), strict=True)
    ]
    matrix = ", ".join(f"[{row}]" for row in rows)
    return Draft(
        question="Find the determinant of M",
        form="a polynomial in t",
        answer="*".join(f"({a} + {b}*t)" for a, b in numbers),
        facts={NAMES: "t"},
        setup=("t = symbols('t')", f"M = Matrix([{matrix}])"),
        solution=("d = M.det()", "submit_final_answer(expand(d))"),
    )


def _remainder(rng: random.Random, tier: int) -> Draft:
    """x**m = 1 modulo a cyclotomic polynomial, so exponents count modulo m alone."""
    m = rng.choice((5, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 30))
    g = sympy.cyclotomic_poly(m, X)
    terms = [(nonzero(rng, 99), rng.randint(10**12, 10**15)) for _ in range(tier + 2)]
    # Sparse and exact: no power of x is written out.
    small = sum(c * X ** (e % m) for c, e in terms)
    answer = sympy.rem(small, g, X)
    f = " + ".join(f"{c}*x**{e}" for c, e in terms).replace("+ -", "- ")
    return Draft(
        question="Find the remainder of f by g, as polynomials in x",
        form=POLYNOMIAL,
        answer=str(answer),
        facts={NAMES: "x"},
        setup=("x = symbols('x')", f"f = {f}", f"g = {g}"),
        solution=(
            "m = next(j for j in range(1, 100) if rem(x**j - 1, g, x) == 0)",
            "h = f.replace(lambda u: u.is_Pow, lambda u: u.base**(u.exp % m))",
            "r = rem(h, g, x)",
            "submit_final_answer(r)",
        ),
    )


def _pencil(rng: random.Random, tier: int) -> Draft:
    """A + t*B = U*diag(a[i] + b[i]*t)*V: singular at -a[i]/b[i], with the kernel V**-1*e[i]."""
    size = tier
    while True:
        numbers = [(nonzero(rng, 12), rng.randint(1, 6)) for _ in range(size)]
        values = [sympy.Rational(-a, b) for a, b in numbers]
        left, right = unimodular(rng, size, 3), unimodular(rng, size, 3)
        whole = list(right.inv()[:, values.index(max(values))])
        first = next(entry for entry in whole if entry)
        # A basis of a kernel comes with a last entry of 1.
        if len(set(values)) == size and whole[-1] not in (0, first):
            break
    answer = [entry / first for entry in whole]
    matrices = [left * sympy.diag(*diagonal) * right for diagonal in zip(*numbers, strict=True)]
    return Draft(
        question="t is the largest number for which A + t*B is singular; find the vector v != 0 "
        "with (A + t*B)*v = 0 whose first entry other than 0 is 1",
        form=f"a list of {size} exact numbers",
        answer=str(answer),
        setup=("t = symbols('t')", *(f"{n} = {m}" for n, m in zip("AB", matrices, strict=True))),
        solution=(
            "d = (A + t*B).det()",
            "r = max(roots(d, t))",
            "u = list((A + r*B).nullspace()[0])",
            "c = next(entry for entry in u if entry != 0)",
            "submit_final_answer([entry/c for entry in u])",
        ),
    )


def _sums(rng: random.Random, tier: int) -> Draft:
    """Over i < j there is half of what all pairs give, less the pairs of a root with itself."""
    f = _monic(rng, tier + 1)
    powers = power_sums(f, comb(tier + 1, 2))
    pairs = [
        (sum(comb(m, j) * powers[j] * powers[m - j] for j in range(m + 1)) - 2**m * powers[m]) // 2
        for m in range(len(powers))
    ]
    return _over_pairs(
        rng,
        f,
        pairs,
        value="a + b",
        all_pairs="resultant(f.subs(x, y), f.subs(x, x - y), y)",
        squares="2**degree(f, x)*f.subs(x, x/2)",
    )


def _products(rng: random.Random, tier: int) -> Draft:
    f = _monic(rng, tier)
    powers = power_sums(f, 2 * comb(tier, 2))
    pairs = [(powers[m] ** 2 - powers[2 * m]) // 2 for m in range(comb(tier, 2) + 1)]
    return _over_pairs(
        rng,
        f,
        pairs,
        value="a*b",
        all_pairs="resultant(f.subs(x, y), expand(y**degree(f, x)*f.subs(x, x/y)), y)",
        squares="resultant(f.subs(x, y), x - y**2, y)",
    )


def _over_pairs(
    rng: random.Random,
    f: Sequence[int],
    pairs: Sequence[int],
    *,
    value: str,
    all_pairs: str,
    squares: str,
) -> Draft:
    """The sum of 1/(c - u) over the values u of all pairs: S'(c)/S(c), where S has the roots u."""
    polynomial = _from_power_sums(pairs)
    c = rng.randint(10, 99)
    while not polynomial(c):
        c += 1
    return Draft(
        question=f"f has {len(f) - 1} complex roots, counted by multiplicity. Find the sum of "
        f"1/(c - {value}) over all pairs of them, {{a, b}} being the same pair as {{b, a}}",
        form="an exact rational number",
        answer=str(sum_of_quotients(polynomial, c)),
        setup=("x, y = symbols('x y')", f"f, c = {_spelled(f)}, {c}"),
        solution=(
            f"R = {all_pairs}",
            f"Q = cancel(R/({squares}))",
            "S = prod(p**(e//2) for p, e in sqf_list(Q)[1])",
            "v = (S.diff(x)/S).subs(x, c)",
            "submit_final_answer(v)",
        ),
    )


def sum_of_quotients(polynomial: Any, c: int) -> Any:
    """Sum of 1/(c - u) over the zeros u of a polynomial."""
    return polynomial.diff()(c) / polynomial(c)


def _monic(rng: random.Random, degree: int) -> list[int]:
    """Leading coefficient first."""
    return [1, *(nonzero(rng, 9) for _ in range(degree))]


def power_sums(f: Sequence[int], most: int) -> list[int]:
    """Power sums of the roots of monic f, up to `most`, by Newton's identities."""
    degree = len(f) - 1
    sums = [degree]
    for m in range(1, most + 1):
        total = sum(f[i] * sums[m - i] for i in range(1, min(m - 1, degree) + 1))
        sums.append(-total - (m * f[m] if m <= degree else 0))
    return sums


def _from_power_sums(sums: Sequence[int]) -> Any:  # sympy ships no types
    """The monic polynomial of degree sums[0] whose roots have these power sums."""
    f = [1]
    for m in range(1, sums[0] + 1):
        f.append(-sum(f[i] * sums[m - i] for i in range(m)) // m)
    return sympy.Poly(f, X)


def _spelled(f: Sequence[int]) -> str:
    return str(sympy.Poly(f, X).as_expr())


SQUAREFREE = tuple(d for d in range(40, 200) if all(d % k**2 for k in range(2, 15)))


def _conjugates(rng: random.Random, _: int) -> Draft:
    """(x**2 + p*x + r)**2 - d*(q*x + s)**2, the only such form of f."""
    while True:
        d, p, r = rng.choice(SQUAREFREE), nonzero(rng, 9), nonzero(rng, 20)
        q, s = nonzero(rng, 5), nonzero(rng, 9)
        f = [1, 2 * p, p * p + 2 * r - d * q * q, 2 * p * r - 2 * d * q * s, r * r - d * s * s]
        if _is_unique(f, r) and not _shows(d, p, q, r, s):
            break
    root = sympy.sqrt(d)
    factors = [X**2 + (p + sign * q * root) * X + r + sign * s * root for sign in (1, -1)]
    return Draft(
        question="f is the product of two monic polynomials of degree 2 with coefficients in "
        "Q(sqrt(d)), and not in Q, for one whole number d without square factors; find both",
        form="a list of two polynomials in x",
        answer=str(factors),
        facts={NAMES: "x"},
        setup=("x, t = symbols('x t')", f"f = {_spelled(f)}"),
        solution=(
            "p = Poly(f, x).coeff_monomial(x**3)/2",
            "h = expand((x**2 + p*x + t)**2 - f)",
            "D = discriminant(h, x)",
            "r = list(ground_roots(D, t))[0]",
            "s = Poly(h.subs(t, r), x)",
            "e = sqrt(s.LC())",
            "w = e*x + s.coeff_monomial(x)/(2*e)",
            "submit_final_answer([x**2 + p*x + r + w, x**2 + p*x + r - w])",
        ),
    )


def _is_unique(f: Sequence[int], r: int) -> bool:
    """Say whether r is the only rational t for which (x**2 + p*x + t)**2 - f is c*(x - e)**2.

    Its discriminant is (2*p*t - c1)**2 - 4*(2*t + p**2 - c2)*(t**2 - c0), a cubic in t.
    """
    _, twice, c2, c1, c0 = f
    p = twice // 2
    cubic = [-8, 4 * c2, 8 * c0 - 4 * p * c1, c1 * c1 + 4 * (p * p - c2) * c0]
    return bool(sympy.Poly(cubic, X).ground_roots() == {r: 1})


def _shows(d: int, p: int, q: int, r: int, s: int) -> bool:
    """Say whether f's discriminant shows sqrt(d): up to a square it is the norm of one factor's."""
    norm = (p * p + d * q * q - 4 * r) ** 2 - d * (2 * p * q - 4 * s) ** 2
    return norm == 0 or (norm > 0 and isqrt(norm * d) ** 2 == norm * d)


def _by_set(problem: Problem, submission: str) -> Verdict:
    """Grade polynomials in any order, each once."""
    given, expected = (parse(text, symbols=("x",)) for text in (submission, problem.meta["answer"]))
    if not isinstance(given, list | tuple | frozenset) or len(given) != len(expected):
        raise Malformed(f"{len(expected)} polynomials are expected")
    if not all(isinstance(one, sympy.Expr) for one in given):
        raise Malformed("a polynomial is expected in each place")
    return compare(frozenset(given), frozenset(expected), seed=problem.meta["points"])


RULES: Mapping[str, Rule] = {
    "determinant": Rule(draft=_determinant, grade=by_value, tiers=(1,), chance=0.02),
    "remainder": Rule(draft=_remainder, grade=by_value, tiers=(2, 3), chance=0.02),
    "pencil": Rule(draft=_pencil, grade=by_value, tiers=(3, 4), chance=0.05),
    "sums": Rule(draft=_sums, grade=by_value, tiers=(3, 4), chance=0.02),
    "products": Rule(draft=_products, grade=by_value, tiers=(4,), chance=0.02, is_held_out=True),
    "conjugates": Rule(draft=_conjugates, grade=_by_set, tiers=(5,), chance=0.02),
}
