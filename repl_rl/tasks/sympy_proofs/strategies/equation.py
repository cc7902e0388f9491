"""Scripts that solve over a domain, well and badly.

`{f}` is the polynomial; `{set}` and `{attribute}` spell the domain as sympy does.

A right script names the domain; a wrong one forgets it, stops at one root or turns to floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repl_rl.tasks.sympy_proofs.strategies.strategy import Strategy, loop, tool, way

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

KINDS = (
    *("linear", "quadratic", "quadratic_surd", "quadratic_complex"),
    *("cubic_surd", "cubic_complex", "biquadratic"),
)

EQUATION: Mapping[str, Sequence[Strategy]] = dict.fromkeys(KINDS, _ALL_KINDS)
