"""Problems of rules of several lines, worked by hand: the rule's solution must find the answer.

Keyed by family, rule and tier. The values are the problem's setup and its answer.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

import rule_kit as kit
from repl_rl.tasks.sympy_proofs import SHORT
from repl_rl.tasks.sympy_proofs.family import FAMILIES
from repl_rl.tasks.sympy_proofs.wide.recurrence import FUNCTIONS

pytestmark = pytest.mark.slow

P = "p = symbols('p', positive=True)"
Y = "y = Function('y')"
REAL = "x, y, z = symbols('x y z', real=True)"
POWERS = "[S(1), fibonacci(4*n), lucas(4*n), (-1)**n*fibonacci(2*n), (-1)**n*lucas(2*n)]"

WORKED: dict[tuple[str, str, int], tuple[tuple[str, ...], str]] = {
    # The roots are 2 and -1.
    ("recurrence", "linear", 1): (
        (FUNCTIONS, "e = f(n + 2) - f(n + 1) - 2*f(n)", "v = {f(0): 0, f(1): 3}"),
        "2**n - (-1)**n",
    ),
    # 1, 2, 4, ...
    ("recurrence", "history", 2): ((FUNCTIONS, "e = 1 + Sum(f(k), (k, 0, n - 1))"), "2**n"),
    # f(n + 2) = 5/2*f(n + 1) - f(n) after 1 and 3/2.
    ("recurrence", "history", 3): (
        (FUNCTIONS, "e = 1 + Rational(1, 2)*Sum((n - k)*f(k), (k, 0, n - 1))"),
        "2*2**n/3 + 1/(3*2**n)",
    ),
    # The powers of [[3, 2], [2, 3]] are halves of 5**n + 1 and 5**n - 1.
    ("recurrence", "mobius", 2): (
        (FUNCTIONS, "e = (3*f(n) + 2)/(2*f(n) + 3)", "v = Integer(0)"),
        "(5**n - 1)/(5**n + 1)",
    ),
    ("recurrence", "mobius", 3): (
        (FUNCTIONS, "e = (3*(f(n) - 7*n) + 2)/(2*(f(n) - 7*n) + 3) + 7*(n + 1)", "v = Integer(0)"),
        "(5**n - 1)/(5**n + 1) + 7*n",
    ),
    # 5**(n + 1) = 2*5**n + 3*5**n = 3*5**n + 2*5**n.
    ("recurrence", "forced", 4): (
        (
            "A, m = diag(2, 3, 4), Integer(5)",
            "u, b, c = Matrix([1, 1, 1]), Matrix([0, 0, 0]), Matrix([3, 2, 1])",
        ),
        "25**n",
    ),
    # h(n) - 9*h(n - 1) + 20*h(n - 2) leaves g(n) = 12 + 6*2**n + 2*3**n; f(n) = -24 - 6*2**n.
    ("recurrence", "cascade", 5): (
        (
            FUNCTIONS,
            "d = f(n + 1) - 2*f(n) - 24",
            "e = g(n + 1) - 3*g(n) - f(n)",
            "s = h(n + 2) - 9*h(n + 1) + 20*h(n) - g(n)",
            "v = {g(0): 20, h(0): 5, h(1): 15, h(4): 979}",
        ),
        "1 + 2**n + 3**n + 4**n + 5**n",
    ),
    # 1 + 2 + ... + 2**n.
    ("sum", "power", 1): (("s = Sum(2**k, (k, 0, n))",), "2**(n + 1) - 1"),
    # k*binomial(n, k) = n*binomial(n - 1, k - 1).
    ("sum", "binomial", 2): (
        ("p, a = k + 1, Integer(1)", "s = Sum(binomial(n, k)*p*a**k, (k, 0, n))"),
        "2**n + n*2**(n - 1)",
    ),
    ("sum", "binomial", 3): (
        ("p, a = k**2 - k, Integer(2)", "s = Sum(binomial(n, k)*p*a**k, (k, 0, n))"),
        "4*n*(n - 1)*3**(n - 2)",
    ),
    # 7/3 * 13/7 * 21/13 * ...
    ("sum", "product", 2): (
        ("s = Product((k**2 + 3*k + 3)/(k**2 + k + 1), (k, 1, n))",),
        "(n**2 + 3*n + 3)/3",
    ),
    # 10/2 * 17/5 * 26/10 * ...
    ("sum", "product", 3): (
        ("s = Product((k**2 + 4*k + 5)/(k**2 + 1), (k, 1, n))",),
        "((n + 1)**2 + 1)*((n + 2)**2 + 1)/10",
    ),
    # From (1 + 2)**n and (1 - 2)**n; the sum is 4 for n = 2 and 12 for n = 3.
    ("sum", "even", 4): (
        ("p, a = k**2, Integer(4)", "s = Sum(binomial(n, 2*k)*p*a**k, (k, 0, n))"),
        "n*(3**(n - 1) - (-1)**(n - 1))/4 + n*(n - 1)*(3**(n - 2) + (-1)**(n - 2))/2",
    ),
    # The inner sum is k*2**(k - 1), so the outer one is n*(1 + 2)**(n - 1).
    ("sum", "double", 5): (
        (
            "j = symbols('j')",
            "a, b, p = Integer(1), Integer(1), j",
            "t = Sum(binomial(k, j)*p*b**j, (j, 0, k))",
            "s = Sum(binomial(n, k)*a**k*t, (k, 0, n))",
        ),
        "n*3**(n - 1)",
    ),
    # 1/(1 + k*(k + 1)) is the tangent of a difference.
    ("sum", "arctan", 2): (("s = Sum(atan(1/(k**2 + k + 1)), (k, 1, n))",), "atan(n + 1) - pi/4"),
    # 2/(1 + k*(k + 2)) = 2/(k + 1)**2.
    ("sum", "arctan", 3): (
        ("s = Sum(atan(2/(k + 1)**2), (k, 1, n))",),
        "atan(n + 1) + atan(n + 2) - pi/4 - atan(2)",
    ),
    # 3**(2**100) mod 77: totient 60, 2**100 = 16 (mod 60), 3**16 = 3**1 = 3 (mod 7: 3**6 = 1,
    # 3**4 = 4) and 3**6 = 3 (mod 11: 3**5 = 1); 4 mod 7 and 3 mod 11 give 25.
    ("modular", "tower", 2): (("a, b, c, m = 3, 2, 100, 77",), "25"),
    # 2**(3**(2**10)) mod 25: totients 20 and 8; 2**10 = 0 (mod 8), so 3**(2**10) = 1 (mod 20), and
    # 2**1 = 2.
    ("modular", "tower", 4): (("a, b, c, d, m = 2, 3, 2, 10, 25",), "2"),
    # n = 2 (mod 3), 3 (mod 5), 2 (mod 7), 1 (mod 2), each times 4: Sun Tzu's 23.
    ("modular", "system", 2): (("a, b, m = [4]*4, [8, 12, 8, 4], [12, 20, 28, 8]",), "23"),
    ("modular", "system", 3): (("a, b, m, l = [4]*4, [8, 12, 8, 4], [12, 20, 28, 8], 500",), "653"),
    # x**2 = 1 (mod 8) at 1, 3, 5, 7, with n = 2 (mod 3): 17, 11, 5, 23.
    ("modular", "roots", 2): (("f, m = x**2 - 1, 8", "c, q = 2, 3"), "23"),
    # 1, 3, 5, 7 (mod 8) and 1, 2 (mod 3): 1, 5, 7, 11, 13, 17, 19, 23, pairs of 24.
    ("modular", "roots", 3): (("f, m = x**2 - 1, 8", "g, w = x**2 - 1, 3"), "96"),
    # The order of 3 modulo 7 is 6; 3**4 = 4, so n**2 = 4 (mod 6): 2 or 4.
    ("modular", "square_log", 3): (("a, b, p = 3, 4, 7",), "2"),
    # 2**n = 1 (mod 7): n = 0 (mod 3); 3**n = 9 (mod 11): n = 2 (mod 5).
    ("modular", "two_logs", 4): (("a, b, p = 2, 1, 7", "c, d, q = 3, 9, 11"), "12"),
    ("modular", "two_logs", 5): (
        ("u, a, b, p = 3, 2, 3, 7", "w, c, d, q = 1, 3, 9, 11", "l = 12"),
        "27",
    ),
    # x**2 + 1 modulo 5: 1, 2, 0, 0, 2, and 1 alone is the square of a unit; modulo 3: 1, 2, 2.
    ("modular", "squares", 4): (("f, m = x**2 + 1, 15",), "1"),
    ("modular", "squares", 5): (("f, m = x**2 + 1, 75",), "5"),
    # n + k = 3 and n - k = -1 at (1, 2) alone, and a term of 49 does not show at k = 2.
    ("modular", "lift", 4): (
        ("p, e = 7, 4", "f = n + k - 3", "g = n - k + 1 + 7*(k - 2)**2"),
        "(1, 2)",
    ),
    ("modular", "lift", 5): (
        ("p, e = 7, 8", "f = n + k - 3", "g = n - k + 1 + 7*(k - 2)**2"),
        "(1, 2)",
    ),
    # x**4 - 2*x**2 turns at -1, 0, 1 with the values -1, 0, -1: three zeros at the level 0 alone.
    ("equation", "critical", 2): (("c = symbols('c')", "f = x**4 - 2*x**2 + c", "m = 3"), "[0]"),
    ("equation", "critical", 3): (("c = symbols('c')", "f = x**4 - 2*x**2 + c", "m = 2"), "[1]"),
    # At 2 and at -1 is x**3 + x 10 and -2; where it is 0 for x**2 = -1, no zero is real.
    ("equation", "common", 2): (
        ("c = symbols('c')", "f = x**3 + x - c", "g = (x**2 + 1)*(x - 2)"),
        "[10]",
    ),
    ("equation", "common", 3): (
        ("c = symbols('c')", "f = x**3 + x - c", "g = (x**2 + 1)*(x - 2)*(x + 1)"),
        "[-2, 10]",
    ),
    # exp(x) = 1 + x + x**2/2 + x**3/6; b/2 = 1/2 and a + b = 1; a*sin takes nothing.
    ("limit", "tune", 2): (
        ("a, b = symbols('a b')", "f = exp(x) - 1 - a*sin(x) - b*(exp(x) - 1)"),
        "(0, 1, 0)",
    ),
    # exp(p*x) is (1 + p*x/2)/(1 - p*x/2) up to p**3*x**3*(1/6 - 1/4).
    ("limit", "fraction", 3): (
        ("a, b = symbols('a b')", P, "f = exp(p*x) - (1 + a*x)/(1 + b*x)"),
        "(p/2, -p/2, -p**3/12)",
    ),
    # sqrt(x**2 + 2*p*x) = x + p - p**2/(2*x); sqrt(x**2 + 4*x) = x + 2 - 2/x.
    ("limit", "infinity", 2): (
        (P, "f = sqrt(x**2 + 2*p*x) - sqrt(x**2 + 4*x)"),
        "(p - 2, 2 - p**2/2)",
    ),
    # sin = x - x**3/6 + (1/120 + q)*x**5 has K = 1/4 - 6*(1/120 + q): de Bruijn, 1/5 at q = 0.
    ("limit", "iterate", 5): (("q = symbols('q')", "f = sin(x)*(1 + q*x**4)"), "(2, 1/30, 1/3)"),
    # f(g) - g(f) for x + x**3 and x/(1 + x**2)...: sin(tan(x)) - tan(sin(x)) = -x**7/30 - ...
    ("limit", "commute", 4): (("f = sin(x)", "g = tan(x)"), "(7, 9, 29/756*30)"),
    # The integral of 2*x is 1, and the sum is 1 + 1/n.
    ("limit", "riemann", 3): ((P, "g = 2*p*x"), "(p, 1)"),
    # 1/(1 - x) = 1 + x + x**2 + x**3/(1 - x).
    ("limit", "ratio", 1): (("f = (1/(1 - x) - (1 + x + x**2))/x**3",), "1"),
    # y' = 2 - 16*exp(-2*x), and y(0) = 7.
    ("ode", "first_order", 1): (
        (Y, "E = Eq(y(x).diff(x), -2*y(x) + 4*x)"),
        "8*exp(-2*x) + 2*x - 1",
    ),
    # y = exp(x)*(exp(x) - 3) is 0 at log(3), where y' = 18 - 9.
    ("ode", "crossing", 2): (
        (
            Y,
            "E = Eq(y(x).diff(x, 2), 3*y(x).diff(x) - 2*y(x))",
            "initial = {y(0): -2, y(x).diff(x).subs(x, 0): -1}",
        ),
        "(log(3), 9)",
    ),
    # y'' = y: only 5*exp(-x) stays bounded, with y'(0) = -5.
    ("ode", "bounded", 3): (
        (
            Y,
            "c = symbols('c')",
            "E = Eq(y(x).diff(x, 2), y(x))",
            "initial = {y(0): 5, y(x).diff(x).subs(x, 0): c}",
        ),
        "(-5, 5*exp(-x))",
    ),
    # u'' + x*u = x**3 + 2 for u = x**2 and y = u*exp(x), since (D - 1)**2 y = u''*exp(x).
    ("ode", "polynomial", 5): (
        (Y, "E = Eq(y(x).diff(x, 2) - 2*y(x).diff(x) + (x + 1)*y(x), (x**3 + 2)*exp(x))"),
        "x**2*exp(x)",
    ),
    # Legendre's polynomial of degree 5, (63*x**5 - 70*x**3 + 15*x)/8: lam = 5*6.
    ("ode", "spectrum", 4): (
        (
            Y,
            "lam = symbols('lam')",
            "E = Eq((1 - x**2)*y(x).diff(x, 2) - 2*x*y(x).diff(x) + lam*y(x), 0)",
        ),
        "(30, x**5 - 10*x**3/9 + 5*x/21)",
    ),
    # X' = (y, x) grows as exp(x) along (1, 1): X0 = (2, c) is bounded for c = -2.
    ("ode", "system", 4): (
        (
            "c0 = symbols('c0')",
            "A = Matrix([[0, 1, 0], [1, 0, 0], [0, 0, -3]])",
            "b = Matrix([0, 0, 3])",
            "X0 = Matrix([2, c0, 5])",
        ),
        "(-2, 2*exp(-x))",
    ),
    # 7*p + 5*p**2 = 6 at p = 3/5; 7*(9/25 - 3/5 + 1/2) + 5*(54/125 - 9/5 + 2)/3 = 431/150.
    ("calculus", "median", 2): ((P, "g = 7 + 10*x"), "(3/5, 431/150)"),
    # E - 1 + c = 0, and the integral of exp(x) + c**2.
    ("calculus", "paired", 3): (
        ("c = symbols('c')", "f = exp(x) + 2*c*x", "g = exp(x) + c**2"),
        "(1 - E, E - 1 + (1 - E)**2)",
    ),
    # The derivative of sqrt(x**3 + p*x + 2).
    ("calculus", "radical", 5): (
        (P, "f = (3*x**2 + p)/(2*sqrt(x**3 + p*x + 2))"),
        "sqrt(p + 3) - sqrt(2)",
    ),
    # t*(t*t - 1) - (t - 0).
    ("algebra", "determinant", 1): (
        ("t = symbols('t')", "M = Matrix([[t, 1, 0], [1, t, 1], [0, 1, t]])"),
        "t**3 - 2*t",
    ),
    # g divides x**5 - 1, so x**4 + 3*x is left, and x**4 = -(x**3 + x**2 + x + 1).
    ("algebra", "remainder", 2): (
        (
            "x = symbols('x')",
            "f = x**1000000000004 + 3*x**1000000000001",
            "g = x**4 + x**3 + x**2 + x + 1",
        ),
        "-x**3 - x**2 + 2*x - 1",
    ),
    # The matrix [[2, 1], [1, 2]] has the eigenvalues 1 and 3, of (1, -1) and (1, 1).
    ("algebra", "pencil", 3): (
        (
            "t = symbols('t')",
            "A = Matrix([[-2, -1, 0], [-1, -2, 0], [0, 0, -1]])",
            "B = eye(3)",
        ),
        "[1, 1, 0]",
    ),
    # (x**2 - 1)**2 + 4.
    ("inequality", "minimum", 1): (
        ("x = symbols('x', real=True)", "f = x**4 - 2*x**2 + 5"),
        "4",
    ),
    # f - k*g is (1 - k)*(x**2 + y**2) + 4*x*y + (5 - k)*z**2, and 2*(x + y)**2 + 6*z**2 for k = -1.
    ("inequality", "ratio", 3): (
        (REAL, "f = x**2 + 4*x*y + y**2 + 5*z**2", "g = x**2 + y**2 + z**2"),
        "-1",
    ),
    # Three numbers of product 1 have a sum of at least 3.
    ("inequality", "means", 2): (
        ("x, y = symbols('x y', positive=True)", "f = x + y + 1/(x*y)"),
        "3",
    ),
    # 5 < x**2 < 11 for -3 and 3.
    ("inequality", "integers", 2): (
        ("x = symbols('x', real=True)", "f = (x**2 - 5)*(x**2 - 11)"),
        "2",
    ),
    # cos(x)**3 = 3/4*cos(x) + 1/4*cos(3*x); the square of a cosine holds a constant.
    ("identity", "trigonometric", 2): (
        (
            "x = symbols('x', real=True)",
            "basis = [cos(x), sin(x), cos(3*x), sin(3*x)]",
            "fs = [cos(x)**3, cos(x)**2]",
        ),
        "[[3/4, 0, 1/4, 0], False]",
    ),
    # sinh(x)**3 = 1/4*sinh(3*x) - 3/4*sinh(x).
    ("identity", "hyperbolic", 2): (
        (
            "x = symbols('x', real=True)",
            "basis = [cosh(x), sinh(x), cosh(3*x), sinh(3*x)]",
            "fs = [sinh(x)**3, sinh(x)**2]",
        ),
        "[[0, -3/4, 0, 1/4], False]",
    ),
    # L(n)**2 = L(2*n) + 2*(-1)**n, also for 2*n; 5*F(n)**2 = L(2*n) - 2*(-1)**n.
    ("identity", "fibonacci", 3): (
        (
            "n = symbols('n', integer=True, nonnegative=True)",
            f"basis = {POWERS}",
            "fs = [(-1)**n*lucas(n)**2, lucas(2*n)**2, fibonacci(n)**2]",
        ),
        "[[2, 0, 0, 0, 1], [2, 0, 1, 0, 0], False]",
    ),
}

ELSEWHERE = {
    ("identity", "floors"), ("identity", "roots"), ("inequality", "form"), ("inequality", "nested"),
    ("algebra", "conjugates"), ("algebra", "sums"), ("algebra", "products"),
    ("equation", "symmetric"), ("calculus", "implicit"), ("calculus", "inverse"),
    ("composite", "chain"), ("composite", "tree"), ("composite", "braid"),
}  # fmt: skip
"""What the families' own tests work by hand: their judges, or parts that they are made of."""


@pytest.fixture
def play(interpreter: Any) -> kit.Play:
    return lambda script: cast(str | None, interpreter.play(script).submission)


@pytest.mark.parametrize("case", WORKED, ids=str)
def test_the_solution_finds_what_was_worked_by_hand(
    case: tuple[str, str, int], play: kit.Play
) -> None:
    setup, answer = WORKED[case]
    assert kit.rule_proves(kit.Case(*case), play, setup, answer)


def test_each_rule_has_a_problem_that_was_worked_by_hand() -> None:
    rules = {
        (family.name, name)
        for family in FAMILIES.values()
        for name, rule in family.rules.items()
        if family.name not in SHORT.families or rule.tiers != (1,)
    }
    assert {case[:2] for case in WORKED} | ELSEWHERE == rules
