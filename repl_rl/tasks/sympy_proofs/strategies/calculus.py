"""Scripts that differentiate, integrate and add up, well and badly. `{f}` is the function.

A wrong one takes the wrong tool, forgets a bound or submits the question itself (Integral, Sum,
Derivative).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repl_rl.tasks.sympy_proofs.strategies.strategy import Strategy, loop, tool, way

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
