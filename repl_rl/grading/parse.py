"""Read a submission: untrusted text to sympy objects, by a whitelist over Python's syntax tree.

    text -> ast -> size caps -> built bottom-up, each step bounded before it is computed -> Value
    `x:real n:integer,positive y f:function` -> names -> sympy symbols with these assumptions

Nothing is evaluated by name: no eval, no sympify, no attribute is ever followed. Symbols exist only
where the problem declares them, with the assumptions that it declares, so none can be smuggled in
under a known name.

Knows no task, no equality, no process.
"""

from __future__ import annotations

import ast
import keyword
import operator
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sympy
from sympy.core.facts import InconsistentAssumptions
from sympy.core.function import AppliedUndef, UndefinedFunction

from repl_rl.grading.bounded import (
    CONSTANTS,
    CONSTRUCTORS,
    FUNCTIONS,
    STRUCTURES,
    UNEVALUATED,
    Malformed,
    bounded,
    expression,
    function,
    power,
)
from repl_rl.grading.draws import can_be_drawn
from repl_rl.grading.points import is_condition, is_defined
from repl_rl.grading.protocol import reading

__all__ = ["MAX_DEPTH", "MAX_NODES", "WORDS", "Malformed", "Value", "binding", "declared", "parse"]

Value = Any
"""A sympy object (sympy ships no types), or bool, tuple, list, frozenset or dict of them.

A set of elements is a frozenset, whether it was spelled as Python's or as sympy's.
"""

MAX_CHARS = 2000
MAX_NODES = 400
MAX_DEPTH = 60

_CLAIMS = (
    *("complex", "real", "rational", "integer", "even", "odd", "prime"),
    *("positive", "negative", "nonnegative", "nonpositive", "nonzero"),
)


def parse(text: str, *, symbols: Collection[str] | Mapping[str, Any] = ()) -> Value:
    """The value that `text` spells. Raises Malformed, and nothing else, for text of any kind.

    `symbols`: names, or what `declared` makes of a problem's declaration.

    In a grader's process, text that takes too long ends the process (`clock`).

    >>> parse("2**10 - 24")
    1000
    >>> parse("(x + 1)**2", symbols=["x"]).free_symbols
    {x}
    """
    known = _symbols_by_name(symbols)
    tree = _read(text)
    _check_size(tree)
    try:
        with reading():
            return _build(tree, known)
    except Malformed:
        raise
    # sympy raises what it likes when a constructor dislikes its arguments
    except Exception as error:
        raise Malformed(f"{type(error).__name__}: {error}") from error


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
        if claim not in _CLAIMS:
            known = ", ".join(_CLAIMS)
            raise ValueError(f"{name!r} is declared as {claim!r}, expected some of {known}")
    try:
        symbol = sympy.Symbol(name, **dict.fromkeys(claims, True))
    except InconsistentAssumptions:
        raise ValueError(f"no number is what {name!r} is declared as: {','.join(claims)}") from None
    if not can_be_drawn(symbol):
        raise ValueError(f"no number is drawn for {name!r}, declared as {','.join(claims)}")
    return symbol


def _symbols_by_name(symbols: Collection[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """ValueError, for whoever wrote the problem, where a name stands for another symbol."""
    if not isinstance(symbols, Mapping):
        return {name: sympy.Symbol(name) for name in symbols}
    for name, symbol in symbols.items():
        if symbol.name != name:
            raise ValueError(f"{name!r} is declared as {symbol}")
    return symbols


def _read(text: str) -> ast.expr:
    if len(text) > MAX_CHARS:
        raise Malformed(f"{len(text)} characters, at most {MAX_CHARS} are read")
    if "\0" in text:
        raise Malformed("a NUL character")
    try:
        # Python remarks on odd literals in text that is not ours.
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Malformed("not an expression") from error


def _check_size(tree: ast.expr) -> None:
    """A walk with its own stack: nesting must not be able to exhaust Python's."""
    stack: list[tuple[ast.AST, int]] = [(tree, 1)]
    num_nodes = 0
    while stack:
        node, depth = stack.pop()
        if isinstance(node, ast.expr):
            num_nodes += 1
        if num_nodes > MAX_NODES:
            raise Malformed(f"more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise Malformed(f"nested deeper than {MAX_DEPTH}")
        stack.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def _build(node: ast.expr, symbols: Mapping[str, Any]) -> Value:
    match node:
        case ast.Constant():
            return _constant(node.value)
        case ast.Name(id=name):
            return _name(name, symbols)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -expression(_build(operand, symbols))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return expression(_build(operand, symbols))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return _plain(sympy.Not(_condition(_build(operand, symbols))))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _build(left, symbols), _build(right, symbols))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _RELATIONS:
            sides = [expression(_build(side, symbols)) for side in (left, right)]
            return _if_defined(_plain(_RELATIONS[type(op)](*sides)), sides)
        case ast.Tuple(elts=elements):
            return tuple(_build(element, symbols) for element in elements)
        case ast.List(elts=elements):
            return [_build(element, symbols) for element in elements]
        case ast.Set(elts=elements):
            return frozenset(_build(element, symbols) for element in elements)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip((key for key in keys if key is not None), values, strict=True)
            return _mapping([(_build(a, symbols), _build(b, symbols)) for a, b in pairs])
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            values = [_build(argument, symbols) for argument in args]
            return _if_defined(_called(name, values, symbols), values)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="Interval"), attr=ends), args=args, keywords=[]
        ) if ends in _OPEN_ENDS:
            left, right = (expression(_build(argument, symbols)) for argument in args)
            return _plain(sympy.Interval(left, right, *_OPEN_ENDS[ends]))
        case ast.Call(
            func=ast.Name(id="Poly"),
            args=[polynomial, *generators],
            keywords=[ast.keyword(arg="domain", value=ast.Constant(value=str()))],
        ) if all(isinstance(name, ast.Name) and name.id in symbols for name in generators):
            return expression(_build(polynomial, symbols))
    raise Malformed(f"{type(node).__name__} is not part of an answer")


def _constant(value: object) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return bounded(sympy.Integer(value))
    if isinstance(value, float):
        return sympy.Float(value)
    raise Malformed(f"a {type(value).__name__} is not part of an answer")


def _name(name: str, symbols: Mapping[str, Any]) -> Value:
    if name in symbols:
        return symbols[name]
    if name in CONSTANTS:
        return CONSTANTS[name]
    raise Malformed(f"unknown name {name[:40]!r}")


def _called(name: str, args: list[Value], symbols: Mapping[str, Any]) -> Value:
    if isinstance(function_of := symbols.get(name), UndefinedFunction):
        return function_of(*(expression(arg) for arg in args))
    if name in UNEVALUATED:
        raise Malformed(f"{name} is unevaluated: it restates the question")
    if name in CONSTRUCTORS:
        return bounded(CONSTRUCTORS[name](*(expression(arg) for arg in args)))
    if name in FUNCTIONS:
        return _plain(function(name, [expression(arg) for arg in args]))
    if name in _COLLECTIONS:
        return _COLLECTIONS[name](*args)
    if name in STRUCTURES:
        sets = [sympy.FiniteSet(*arg) if isinstance(arg, frozenset) else arg for arg in args]
        return _plain(STRUCTURES[name](*sets))
    raise Malformed(f"unknown function {name[:40]!r}")


def _binary(op: ast.operator, left: Value, right: Value) -> Value:
    result = _computed(op, left, right)
    divisor = (1 / right,) if type(op) is ast.Div else ()
    return _if_defined(result, (left, right, *divisor))


def _computed(op: ast.operator, left: Value, right: Value) -> Value:
    if type(op) is ast.Pow:
        return power(expression(left), expression(right))
    if type(op) in _CONNECTIVES:
        return _plain(_CONNECTIVES[type(op)](_condition(left), _condition(right)))
    sides = [expression(left), expression(right)]
    if type(op) in _ROUNDING:
        name, arguments = _ROUNDING[type(op)]
        return function(name, arguments(*sides))
    if type(op) not in _ARITHMETIC:
        raise Malformed(f"operator {type(op).__name__} is not part of an answer")
    return bounded(_ARITHMETIC[type(op)](*sides))


def _if_defined(result: Value, operands: Sequence[Value]) -> Value:
    """`result`, or nan where a part of an operand is gone that has no value: sympy takes 0*(0/0)
    for 0 where it does not see that a divisor is 0, and 1/(1/0), too. No condition is nan."""
    lost = _parts(operands) - _parts(result)
    if isinstance(result, sympy.Expr):
        return result if all(map(is_defined, lost)) else sympy.nan
    if not all(is_defined(part) for part in lost if part not in _ENDS):
        raise Malformed("a condition or a set of what has no value")
    return result


def _parts(value: Value) -> set[Any]:
    """All in it that may have no value, but for what the problem says nothing of: f(x)."""
    if isinstance(value, list | tuple | frozenset):
        return {part for element in value for part in _parts(element)}
    parts: set[Any] = value.atoms(*_MAY_FAIL) if isinstance(value, sympy.Basic) else set()
    return {part for part in parts if not part.has(AppliedUndef)}


def _collection(items: Value = ()) -> frozenset[Value]:
    if not isinstance(items, list | tuple | frozenset):
        raise Malformed("a set is made of a list, a tuple or a set")
    return frozenset(items)


def _mapping(pairs: list[tuple[Value, Value]]) -> dict[Value, Value]:
    if len(mapping := dict(pairs)) < len(pairs):
        raise Malformed("one key with two values")
    return mapping


def _matrix(*args: Value) -> Any:
    """Matrix as sympy prints it: rows, a column, or its two sizes where one of them is 0."""
    match args:
        case [[[*_], *_] as rows] if all(isinstance(row, list) for row in rows):
            return sympy.ImmutableDenseMatrix([[expression(e) for e in row] for row in rows])
        case [[_, *_] as column]:
            return sympy.ImmutableDenseMatrix([expression(entry) for entry in column])
        case [sympy.Integer() as rows, sympy.Integer() as columns, []] if 0 in (rows, columns):
            return sympy.ImmutableDenseMatrix(rows, columns, [])
    raise Malformed("a matrix is a list of rows")


def _condition(value: Value) -> Any:
    if not is_condition(value):
        raise Malformed(f"a {type(value).__name__} where a condition is expected")
    return value


def _plain(value: Any) -> Value:
    """sympy's own truth values and finite sets as Python's, so that a value has one form."""
    if value is sympy.true or value is sympy.false:
        return bool(value)
    if value is sympy.S.EmptySet or isinstance(value, sympy.FiniteSet):
        return frozenset(value.args)
    return value


_ENDS = (sympy.oo, -sympy.oo)
"""Infinities, which are right as ends of a comparison or a set."""
_MAY_FAIL = (sympy.Pow, sympy.Function, *map(type, (*_ENDS, sympy.zoo, sympy.nan)))
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_ROUNDING: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], list[Any]]]] = {
    ast.FloorDiv: ("floor", lambda a, b: [a / b]),
    ast.Mod: ("Mod", lambda a, b: [a, b]),
}
_RELATIONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
}
_CONNECTIVES: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitAnd: sympy.And,
    ast.BitOr: sympy.Or,
    ast.BitXor: sympy.Xor,
}
_OPEN_ENDS: Mapping[str, tuple[bool, bool]] = {
    "open": (True, True),
    "Lopen": (True, False),
    "Ropen": (False, True),
}
_COLLECTIONS: Mapping[str, Callable[..., Any]] = {
    "set": _collection,
    "frozenset": _collection,
    "FiniteSet": lambda *elements: frozenset(elements),
    "Point2D": lambda *numbers: numbers,
    "Point3D": lambda *numbers: numbers,
    **dict.fromkeys(("Matrix", "ImmutableMatrix"), _matrix),
    **dict.fromkeys(("ImmutableDenseMatrix", "MutableDenseMatrix"), _matrix),
}

WORDS = frozenset(
    (*CONSTANTS, *FUNCTIONS, *STRUCTURES, *UNEVALUATED, *CONSTRUCTORS, *_COLLECTIONS, "Poly")
)
"""Names that no symbol may have."""
