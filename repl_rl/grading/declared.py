"""Declarations of a problem's symbols: `x:real n:integer,positive y f:function`.

    text -> names -> sympy symbols with these assumptions

Knows no submission: an answer names symbols, and what they are is the problem's alone.
"""

from __future__ import annotations

import keyword
from typing import Any

import sympy
from sympy.core.facts import InconsistentAssumptions

from repl_rl.grading.draws import can_be_drawn
from repl_rl.grading.parse import WORDS

ASSUMPTIONS = (
    *("complex", "real", "rational", "integer", "even", "odd", "prime"),
    *("positive", "negative", "nonnegative", "nonpositive", "nonzero"),
)


def declared(text: str) -> dict[str, Any]:
    """Symbols by their names. ValueError for a declaration that no number meets.

    >>> declared("n:integer,positive y")["n"].is_nonnegative
    True
    """
    symbols: dict[str, Any] = {}
    for part in text.split():
        name, colon, claims = part.partition(":")
        if name in symbols:
            raise ValueError(f"{name!r} is declared twice in {text!r}")
        symbols[name] = _symbol(name, claims.split(",") if colon else [])
    return symbols


def binding(text: str) -> str:
    """Return the line that binds declared symbols in a kernel; all of them are declared alike.

    >>> binding("x:real y:real")
    "x, y = symbols('x y', real=True)"
    """
    pairs = [part.partition(":") for part in text.split()]
    names = [name for name, _, _ in pairs]
    (claims,) = {claims for _, _, claims in pairs}
    given = [f", {claim}=True" for claim in claims.split(",") if claim]
    given = [", cls=Function"] if claims == "function" else given
    return f"{', '.join(names)} = symbols('{' '.join(names)}'{''.join(given)})"


def _symbol(name: str, claims: list[str]) -> Any:
    if not name.isidentifier() or keyword.iskeyword(name) or name in WORDS:
        raise ValueError(f"{name!r} cannot be the name of a symbol")
    if claims == ["function"]:
        return sympy.Function(name)
    for claim in claims:
        if claim not in ASSUMPTIONS:
            known = ", ".join(ASSUMPTIONS)
            raise ValueError(f"{name!r} is declared as {claim!r}, expected some of {known}")
    try:
        symbol = sympy.Symbol(name, **dict.fromkeys(claims, True))
    except InconsistentAssumptions:
        raise ValueError(f"no number is what {name!r} is declared as: {','.join(claims)}") from None
    if not can_be_drawn(symbol):
        raise ValueError(f"no number is drawn for {name!r}, declared as {','.join(claims)}")
    return symbol
