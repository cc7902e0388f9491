"""What sympy and Python print of a result is read as that result."""

from __future__ import annotations

import pytest
import sympy
from sympy import S

from repl_rl.grading.parse import Malformed, parse

x, y, a, n, k = sympy.symbols("x y a n k")
SYMBOLS = {symbol.name: symbol for symbol in (x, y, a, n, k)}
SQUARE = sympy.Matrix([[2, 1], [1, 2]])
RESULTS = [
    *sympy.solve(x**2 - 4),
    sympy.solve(x**2 - 4, dict=True),
    sympy.solve([x + y - 3, x - y - 1]),
    sympy.solve([x**2 + y**2 - 5, x * y - 2], [x, y]),
    sympy.solve(x**2 < 4),
    sympy.solve(x**2 > 4),
    sympy.solveset(x**2 < 4, x, S.Reals),
    sympy.solveset(x**2 > 4, x, S.Reals),
    sympy.solveset(sympy.Ne(x, 2), x, S.Reals),
    sympy.reduce_inequalities([x > 1, x < 3]),
    sympy.solve_univariate_inequality(x**2 > 4, x, relational=False),
    sympy.roots(x**3 - 3 * x + 2),
    sympy.factorint(360),
    sympy.divisors(12),
    SQUARE.eigenvals(),
    SQUARE.inv(),
    sympy.Matrix([1, 2, 3]),
    SQUARE.nullspace(),
    SQUARE.shape,
    sympy.integrate(sympy.exp(-(x**2)), x),
    sympy.integrate(sympy.exp(x**2), x),
    sympy.integrate(sympy.sin(x) / x, x),
    sympy.integrate(sympy.sin(x**2), x),
    sympy.integrate(sympy.sinh(x) / x, x),
    sympy.integrate(x**n, x),
    sympy.integrate(x ** S("1/3") * sympy.exp(-x), (x, 0, sympy.oo)),
    sympy.limit(1 / x, x, 0),
    sympy.summation(1 / n**3, (n, 1, sympy.oo)),
    sympy.summation(1 / k, (k, 1, n)),
    sympy.acot(2),
    sympy.asec(3),
    sympy.acsc(3),
    sympy.acoth(2),
    sympy.erf(1),
    sympy.gamma(S("1/3")),
    sympy.LambertW(1),
    sympy.Mod(x, 3),
    sympy.I * sympy.sqrt(3),
    sympy.Piecewise((x, x > 0), (0, True)),
    sympy.Eq(x, 2),
    sympy.Ne(x, 2),
    sympy.Or(x < 1, x > 2),
    sympy.Interval.open(0, 1),
    sympy.oo,
    True,
    [1, (2, 3)],
    {1: [2, 3]},
]


@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_a_result_is_read_from_what_is_printed_of_it(result: object) -> None:
    assert parse(str(result), symbols=SYMBOLS) == result


def test_sets_are_read_from_what_is_printed_of_them() -> None:
    assert parse(str(sympy.linsolve([x + y - 3, x - y - 1], [x, y]))) == frozenset([(2, 1)])
    assert parse(repr(frozenset([1, 2]))) == parse(repr({1, 2})) == frozenset([1, 2])
    assert parse(str(sympy.EmptySet)) == parse(repr(set())) == frozenset()


def test_a_point_is_its_numbers() -> None:
    triangle = sympy.Polygon((0, 0), (1, 0), (0, 1))
    assert parse(str(triangle.centroid)) == (S("1/3"), S("1/3"))
    assert parse(str(sympy.Point(1, 2, 3))) == (1, 2, 3)


@pytest.mark.parametrize("name", ["ImmutableDenseMatrix", "MutableDenseMatrix", "ImmutableMatrix"])
def test_a_matrix_is_one_under_each_of_its_names(name: str) -> None:
    assert parse(f"{name}([[1, 2], [3, 4]])") == sympy.ImmutableMatrix([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "result",
    [
        sympy.ConditionSet(x, sympy.sin(x) > x / 2, S.Reals),
        sympy.ImageSet(sympy.Lambda(n, 2 * n), S.Integers),
        sympy.CRootOf(x**5 - x - 1, 0),
        sympy.series(sympy.exp(x), x, 0, 3),
        sympy.Integral(x**x, x),
        None,
    ],
    ids=str,
)
def test_what_restates_a_question_is_no_answer(result: object) -> None:
    with pytest.raises(Malformed):
        parse(str(result), symbols=SYMBOLS)


@pytest.mark.parametrize(
    "text",
    ["fibonacci(1/2)", "subfactorial(1/2)", "factorial2(5/2)", "gamma(1/2001)", "erf(10**9)"],
)
def test_no_function_is_called_where_its_digits_are_unknown_or_slow(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)
