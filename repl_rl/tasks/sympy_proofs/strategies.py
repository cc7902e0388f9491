"""Strategies of demonstrations, a table for each family: a few template lines with a weight each.

Fields in braces are facts of the problem; beside them stand
    {seen}      what the interpreter said last
    {claim}     True if that was 0 or True, `_` if it was another number, else a guess
A line that begins with `?` is played only if the interpreter said neither 0 nor True last.

Weights are relative within a table; they set how often a model sees a way of working, so they set
what reinforcement has to choose from. Does not know how lines are played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SUBMIT_LAST = "submit_final_answer(_)"
HOLDS = ("0", "True")
"""Said of an identity that holds."""
GUESS = "3"
"""Place at which an identity is guessed to fail: right one time in three."""


@dataclass(frozen=True, slots=True)
class Strategy:
    weight: float
    lines: tuple[str, ...]
    thought: str = ""
    """A comment that some demonstrations put first."""


def way(weight: float, *lines: str, thought: str = "") -> Strategy:
    """Lines that end in a submission of their own."""
    return Strategy(weight, lines, thought)


def tool(weight: float, *lines: str, thought: str = "") -> Strategy:
    """Lines whose last value is submitted."""
    return Strategy(weight, (*lines, SUBMIT_LAST), thought)


def loop(header: str, condition: str, variable: str) -> Sequence[str]:
    """Collect in a block what satisfies a condition, then show it."""
    body = (f"    if {condition}:", f"        found.append({variable})", "")
    return "found = []", header, *body, "found"


_CLAIM = "submit_final_answer({claim})"
_TRUE = "submit_final_answer(True)"
_LUCKY = f"submit_final_answer({GUESS})"
_FIRST = "?next(t for t in range(1, 9) if _.subs(x, t) != 0)"
"""The least of what a twin cannot hide from, in the last output."""
_FIRST_OF_D = "?next(t for t in range(1, 9) if d.subs(x, t) != 0)"

_CARELESS = (
    way(0.05, _TRUE, thought="looks true"),
    way(0.05, _LUCKY, thought="looks false"),
    way(0.05, "{lhs} == {rhs}", _CLAIM, thought="the same form?"),
    way(0.03, "d = {d}", "d.subs(x, 0)", _TRUE, thought="try x = 0"),
    way(0.04, "check({lhs}, {rhs})", _TRUE, thought="check it"),
    way(0.15, "submit_final_answer(False)", thought="not true"),
    tool(0.12, "Eq({lhs}, {rhs})", thought="an equation"),
    way(0.05, "submit_final_answer(0)", thought="x = 0"),
)

_EXPANDING = (
    way(0.16, "expand({d})", _FIRST, _CLAIM, thought="expand the difference"),
    way(0.02, "d = {d}", "expand(d)", _FIRST_OF_D, _CLAIM, thought="expand the difference"),
    way(0.01, "simplify({d})", _FIRST, _CLAIM, thought="simplify the difference"),
    way(0.02, "expand({lhs}) == {rhs}", _CLAIM, thought="expand the left side"),
    way(0.01, "d = {d}", "simplify(d)", _FIRST_OF_D, _CLAIM),
    tool(0.13, "expand({lhs})", thought="expand the left side"),
    way(0.04, "expand({d})", _TRUE),
    way(0.08, "factor({lhs})", "submit_final_answer(False)", thought="factor it"),
    way(0.03, "check({lhs}, {rhs})", "expand({d})", _FIRST, _CLAIM, thought="check it"),
    *_CARELESS,
)

_TRIGONOMETRIC = (
    way(0.16, "trigsimp({d})", _FIRST, _CLAIM, thought="trigsimp of the difference"),
    way(0.02, "simplify({d})", _FIRST, _CLAIM, thought="simplify the difference"),
    way(0.02, "d = {d}", "simplify(d)", _FIRST_OF_D, _CLAIM, thought="simplify the difference"),
    way(0.01, "d = {d}", "trigsimp(d)", _FIRST_OF_D, _CLAIM),
    way(0.07, "expand({d})", _FIRST, _CLAIM, thought="expand the difference"),
    tool(0.15, "expand({lhs})", thought="expand the left side"),
    way(0.04, "trigsimp({d})", _TRUE),
    way(0.03, "check({lhs}, {rhs})", "trigsimp({d})", _FIRST, _CLAIM, thought="check it"),
    *_CARELESS,
)

IDENTITY: Mapping[str, Sequence[Strategy]] = {
    **dict.fromkeys(("square", "product", "cube", "two_squares"), _EXPANDING),
    **dict.fromkeys(("exp_square", "exp_product"), _EXPANDING),
    **dict.fromkeys(("pythagoras", "double_sine", "double_cosine"), _TRIGONOMETRIC),
}


_NOTHING = "submit_final_answer([])"

_ALL_KINDS = (
    tool(0.16, "solveset({f}, x, S.{set})", thought="solveset over the {domain}"),
    tool(0.04, "[r for r in solve({f}, x) if r.is_{attribute}]", thought="keep the {domain}"),
    tool(
        0.01, *loop("for r in solve({f}, x):", "r.is_{attribute}", "r"), thought="keep the {domain}"
    ),
    tool(0.01, "s = solve({f}, x)", "s", "[r for r in s if r.is_{attribute}]"),
    tool(0.08, "solve({f}, x)", thought="all roots"),
    tool(0.04, "solveset({f}, x, S.Reals)", thought="real roots"),
    tool(0.05, "solveset({f}, x, S.Integers)", thought="whole roots"),
    tool(0.07, "roots({f})", thought="roots"),
    way(0.08, "solve({f}, x)[0]", "submit_final_answer([_])", thought="one root"),
    tool(0.10, "nroots(Poly({f}, x))", thought="numbers"),
    tool(0.11, "factor({f})", thought="factor it"),
    tool(0.03, "solve_poly({f}, x)", "solveset({f}, x, S.{set})", thought="solve it"),
    way(0.06, "solve_poly({f}, x)", _NOTHING, thought="solve it"),
    way(0.05, _NOTHING, thought="no roots"),
    way(0.06, "submit_final_answer([1])", thought="a guess"),
    tool(0.04, "({f}).subs(x, 1)", thought="try x = 1"),
    way(0.02, "solve({f})[5]", "submit_final_answer([1])"),
)

EQUATION: Mapping[str, Sequence[Strategy]] = {
    **dict.fromkeys(("linear", "quadratic", "quadratic_surd", "quadratic_complex"), _ALL_KINDS),
    **dict.fromkeys(("cubic_surd", "cubic_complex", "biquadratic"), _ALL_KINDS),
}


NUMBERS: Mapping[str, str] = {
    "congruence": "a b m",
    "power": "a e m",
    "inverse": "a m",
    "order": "a m",
    "remainders": "a m",
    "gcd": "a b",
    "lcm": "a b",
    "totient": "m",
    "divisor_sum": "m",
    "two_congruences": "a p b q",
}
"""The names of a statement's numbers, in the order in which the problem records them."""

MODULAR: Mapping[str, Sequence[Strategy]] = {
    "congruence": (
        tool(0.19, "mod_inverse({a}, {m})*{b} % {m}", thought="inverse times {b}, mod {m}"),
        tool(0.05, "[n for n in range({m}) if ({a}*n - {b}) % {m} == 0][0]", thought="try all n"),
        tool(0.02, *loop("for n in range({m}):", "{a}*n % {m} == {b}", "n"), "found[0]"),
        tool(0.03, "modinv({a}, {m})", "mod_inverse({a}, {m})*{b} % {m}", thought="modinv"),
        tool(0.16, "mod_inverse({a}, {m})*{b}", thought="inverse times {b}"),
        tool(0.15, "solve({a}*n - {b}, n)", thought="solve for n"),
        tool(0.12, "{a}*{b} % {m}", thought="the product"),
        tool(0.10, "mod_inverse({a}, {m})", thought="the inverse"),
        way(0.10, "modinv({a}, {m})", "submit_final_answer({b})", thought="modinv"),
        way(0.05, "submit_final_answer({b})", thought="a guess"),
    ),
    "power": (
        tool(0.22, "pow({a}, {e}, {m})", thought="power mod {m}"),
        tool(0.07, "{a}**{e} % {m}", thought="the remainder"),
        tool(0.15, "{a}*{e} % {m}", thought="the product"),
        tool(0.15, "pow({a}, {m}, {e})", thought="power"),
        tool(0.14, "{a}**({e} % {m})", thought="a smaller power"),
        tool(0.10, "Mod({a}, {m})", thought="mod {m}"),
        tool(0.03, "powmod({a}, {e}, {m})", "pow({a}, {e}, {m})", thought="powmod"),
        way(0.09, "powmod({a}, {e}, {m})", "submit_final_answer(1)", thought="powmod"),
        way(0.05, "submit_final_answer(1)", thought="a guess"),
    ),
    "inverse": (
        tool(0.19, "mod_inverse({a}, {m})", thought="mod_inverse"),
        tool(0.07, "pow({a}, -1, {m})", thought="power -1 mod {m}"),
        tool(0.04, "modinv({a}, {m})", "mod_inverse({a}, {m})", thought="modinv"),
        tool(0.15, "mod_inverse({m}, {a})", thought="mod_inverse"),
        tool(0.14, "Rational(1, {a})", thought="one over {a}"),
        tool(0.12, "{m} - {a}", thought="the difference"),
        tool(0.12, "{m} % {a}", thought="the remainder"),
        way(0.10, "modinv({a}, {m})", "submit_final_answer({a})", thought="modinv"),
        way(0.04, "submit_final_answer({a})", thought="a guess"),
    ),
    "order": (
        tool(0.22, "n_order({a}, {m})", thought="n_order"),
        tool(0.05, "[n for n in range(1, {m}) if {a}**n % {m} == 1][0]", thought="try all n"),
        tool(0.05, "order({a}, {m})", "n_order({a}, {m})", thought="order"),
        tool(0.18, "totient({m})", thought="totient"),
        tool(0.13, "mod_inverse({a}, {m})", thought="inverse"),
        tool(0.13, "{a}**{m} % {m}", thought="a power"),
        tool(0.12, "n_order({m}, {a})", "submit_final_answer({m})", thought="n_order"),
        way(0.10, "order({a}, {m})", "submit_final_answer({m})", thought="order"),
    ),
    "remainders": (
        tool(0.22, "len({{(n**2 + {a}*n) % {m} for n in range({m})}})", thought="count a set"),
        tool(0.04, "v = [(n**2 + {a}*n) % {m} for n in range({m})]", "len(set(v))"),
        tool(0.19, "len([(n**2 + {a}*n) % {m} for n in range({m})])", thought="count a list"),
        tool(0.18, "len({{n**2 + {a}*n for n in range({m})}})", thought="count a set"),
        tool(0.10, "len(quadratic_residues({m}))", thought="residues"),
        tool(0.13, "(n**2 + {a}*n) % {m}", thought="mod {m}"),
        tool(0.10, "len({{(n**2 + {a}*n) % {m} for n in range({a})}})", thought="count a set"),
    ),
    "gcd": (
        tool(0.21, "gcd({a}, {b})", thought="gcd"),
        tool(0.06, "igcd({a}, {b})", thought="igcd"),
        tool(0.02, "factorint({a})", "factorint({b})", "gcd({a}, {b})", thought="factor both"),
        tool(0.20, "lcm({a}, {b})", thought="lcm"),
        tool(0.17, "{a} % {b}", thought="the remainder"),
        tool(0.14, "abs({a} - {b})", thought="the difference"),
        tool(0.10, "gcd({a}*{b})", "submit_final_answer({b})", thought="gcd"),
        tool(0.03, "hcf({a}, {b})", "gcd({a}, {b})", thought="hcf"),
        way(0.07, "hcf({a}, {b})", "submit_final_answer(1)", thought="hcf"),
    ),
    "lcm": (
        tool(0.19, "lcm({a}, {b})", thought="lcm"),
        tool(0.05, "ilcm({a}, {b})", thought="ilcm"),
        tool(0.04, "{a}*{b}//gcd({a}, {b})", thought="product over gcd"),
        tool(0.24, "{a}*{b}", thought="the product"),
        tool(0.22, "gcd({a}, {b})", thought="gcd"),
        tool(0.12, "max({a}, {b})", thought="the larger"),
        tool(0.03, "scm({a}, {b})", "lcm({a}, {b})", thought="scm"),
        way(0.09, "scm({a}, {b})", "submit_final_answer({a})", thought="scm"),
    ),
    "totient": (
        tool(0.20, "totient({m})", thought="totient"),
        tool(0.04, "len([n for n in range({m}) if igcd(n, {m}) == 1])", thought="count them"),
        tool(0.05, "phi({m})", "totient({m})", thought="phi"),
        tool(0.18, "divisor_count({m})", thought="divisors"),
        tool(0.17, "{m} - 1", thought="all but one"),
        tool(0.16, "len(primefactors({m}))", thought="prime factors"),
        tool(0.08, "primepi({m})", thought="primes"),
        way(0.08, "phi({m})", "submit_final_answer({m})", thought="phi"),
    ),
    "divisor_sum": (
        tool(0.19, "divisor_sigma({m})", thought="divisor_sigma"),
        tool(0.09, "sum(divisors({m}))", thought="sum of divisors"),
        tool(0.03, "divisors({m})", "sum(_)", thought="list them"),
        tool(0.18, "divisor_count({m})", thought="divisors"),
        tool(0.17, "sum(primefactors({m}))", thought="prime factors"),
        tool(0.18, "divisors({m})", thought="divisors"),
        tool(0.08, "factorint({m})", thought="factor"),
        tool(0.03, "sigma({m})", "divisor_sigma({m})", thought="sigma"),
        way(0.07, "sigma({m})", "submit_final_answer({m})", thought="sigma"),
    ),
    "two_congruences": (
        tool(
            0.20,
            "[n for n in range({p}*{q}) if n % {p} == {a} and n % {q} == {b}][0]",
            thought="try all n below {p}*{q}",
        ),
        tool(
            0.06,
            "crt([{p}, {q}], [{a}, {b}])",
            "from sympy.ntheory.modular import crt",
            "crt([{p}, {q}], [{a}, {b}])[0]",
            thought="crt",
        ),
        tool(
            0.03,
            *loop("for n in range({p}*{q}):", "n % {p} == {a} and n % {q} == {b}", "n"),
            "found[0]",
        ),
        way(0.18, "crt([{p}, {q}], [{a}, {b}])", "submit_final_answer({a})", thought="crt"),
        tool(0.18, "{a}*{q} + {b}*{p}", thought="mix them"),
        tool(0.16, "[n for n in range(99) if n % {p} == {a}][0]", thought="the first one"),
        tool(0.10, "solve(n - {a}, n)", thought="solve for n"),
        way(0.08, "submit_final_answer({a} + {b})", thought="the sum"),
    ),
}


_X = "(x, {low}, {high})"
_K = "(k, {low}, {high})"

CALCULUS: Mapping[str, Sequence[Strategy]] = {
    "derivative": (
        tool(0.23, "diff({f}, x)", thought="diff"),
        tool(0.06, "Derivative({f}, x).doit()", thought="a derivative, done"),
        tool(0.04, "expand(diff({f}, x))", thought="diff"),
        tool(0.18, "integrate({f}, x)", thought="integrate"),
        tool(0.16, "Derivative({f}, x)", thought="a derivative"),
        tool(0.13, "diff({f}, x, x)", thought="diff"),
        tool(0.09, "({f}).subs(x, 1)", thought="a value"),
        tool(0.03, "derive({f}, x)", "diff({f}, x)", thought="derive"),
        way(0.08, "derive({f}, x)", "submit_final_answer({f})", thought="derive"),
    ),
    "antiderivative": (
        tool(0.22, "integrate({f}, x)", thought="integrate"),
        tool(0.04, "Integral({f}, x).doit()", thought="an integral, done"),
        way(
            0.06,
            "F = integrate({f}, x)",
            "simplify(diff(F, x) - ({f}))",
            "submit_final_answer(F)",
            thought="integrate and check",
        ),
        tool(0.20, "diff({f}, x)", thought="diff"),
        tool(0.18, "Integral({f}, x)", thought="an integral"),
        tool(0.14, "integrate({f}, (x, 0, 1))", thought="integrate"),
        tool(0.07, "({f})*x", thought="times x"),
        tool(0.03, "antiderivative({f}, x)", "integrate({f}, x)", thought="antiderivative"),
        way(0.06, "antiderivative({f}, x)", "submit_final_answer({f})", thought="antiderivative"),
    ),
    "definite": (
        tool(0.23, f"integrate({{f}}, {_X})", thought="integrate from {low} to {high}"),
        tool(
            0.07,
            "F = integrate({f}, x)",
            "F.subs(x, {high}) - F.subs(x, {low})",
            thought="F at both ends",
        ),
        tool(0.04, f"Integral({{f}}, {_X}).doit()", thought="an integral, done"),
        tool(0.15, "integrate({f}, x)", thought="integrate"),
        tool(0.14, f"Integral({{f}}, {_X})", thought="an integral"),
        tool(0.10, f"integrate({{f}}, {_X}).n()", thought="a number"),
        tool(0.10, "integrate({f}, (x, {high}, {low}))", thought="integrate"),
        tool(0.09, "F = integrate({f}, x)", "F.subs(x, {high})", thought="F at the end"),
        tool(0.07, "({f}).subs(x, {high}) - ({f}).subs(x, {low})", thought="the difference"),
    ),
    "sum": (
        tool(0.24, f"summation({{f}}, {_K})", thought="summation"),
        tool(0.05, "sum({f} for k in range({low}, {high} + 1))", thought="add up to {high}"),
        tool(0.05, f"Sum({{f}}, {_K}).doit()", thought="a sum, done"),
        tool(0.02, *loop("for k in range({low}, {high} + 1):", "k >= {low}", "{f}"), "sum(found)"),
        tool(0.18, "sum({f} for k in range({low}, {high}))", thought="add up"),
        tool(0.18, f"Sum({{f}}, {_K})", thought="a sum"),
        tool(0.14, f"integrate({{f}}, {_K})", thought="integrate"),
        tool(0.08, "({f}).subs(k, {high})", thought="the last one"),
        way(0.06, f"sum({{f}}, {_K})", "submit_final_answer({high})", thought="sum"),
    ),
    "closed_sum": (
        tool(0.25, "summation({f}, (k, 1, n))", thought="summation to n"),
        tool(0.06, "Sum({f}, (k, 1, n)).doit()", thought="a sum, done"),
        tool(0.04, "s = summation({f}, (k, 1, n))", "factor(s)", thought="summation to n"),
        tool(0.16, "Sum({f}, (k, 1, n))", thought="a sum"),
        tool(0.14, "integrate({f}, (k, 1, n))", thought="integrate"),
        tool(0.14, "summation({f}, (k, 1, n - 1))", thought="summation"),
        tool(0.10, "({f}).subs(k, n)", thought="the last one"),
        tool(0.06, "summation({f}, (k, 1, 10))", thought="summation"),
        way(0.05, "sum({f} for k in range(1, n + 1))", "submit_final_answer(n)", thought="sum"),
    ),
}
