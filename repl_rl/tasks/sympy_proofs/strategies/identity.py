"""Scripts that settle an identity, well and badly. `{d}` is the difference of both sides.

Powers and exponentials vanish under `expand`; squares of sines need `trigsimp` or `simplify`. A
difference that does not vanish is looked at, place by place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repl_rl.tasks.sympy_proofs.strategies.strategy import GUESS, Strategy, tool, way

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
    "square": _EXPANDING,
    "product": _EXPANDING,
    "cube": _EXPANDING,
    "two_squares": _EXPANDING,
    "exp_square": _EXPANDING,
    "exp_product": _EXPANDING,
    "pythagoras": _TRIGONOMETRIC,
    "double_sine": _TRIGONOMETRIC,
    "double_cosine": _TRIGONOMETRIC,
}
