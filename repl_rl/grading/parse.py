"""Read a submission: untrusted text to sympy objects, by a whitelist over Python's syntax tree.

    text -> ast -> size caps -> built bottom-up, each step bounded before it is computed -> Value

Nothing is evaluated by name: no eval, no sympify, no attribute is ever followed. Symbols exist only
where the problem declares them, with the assumptions that it declares, so none can be smuggled in
under a known name.

Knows no task, no equality, no process.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import sympy

from repl_rl.grading.clock import reading
from repl_rl.grading.vocabulary import (
    CONSTANTS,
    EXPANDING,
    FUNCTIONS,
    GROWING,
    STRUCTURES,
    UNEVALUATED,
)

Value = Any
"""A sympy object (sympy ships no types), or bool, tuple, list, frozenset or dict of them.

A set of elements is a frozenset, whether it was spelled as Python's or as sympy's.
"""

MAX_CHARS = 2000
MAX_NODES = 400
MAX_DEPTH = 60
MAX_BITS = 8192
"""Of a numerator or denominator, written or computed."""
MAGNITUDE_DIGITS = 30
"""Digits in which a number shows how large it is; one that does not is next to 0."""
MAX_EXPONENT = 4096
MAX_RADICAND_BITS = 512
"""A fractional power looks for factors of its base."""
MAX_FACTORIAL = 2000
MAX_TERMS = 1000
"""Of an expression that is multiplied out to split it into parts, or to round it."""


class Malformed(ValueError):
    """The text is not an answer in the accepted language; the message says why."""


def parse(text: str, *, symbols: Collection[str] | Mapping[str, Any] = ()) -> Value:
    """The value that `text` spells. Raises Malformed, and nothing else, for text of any kind.

    `symbols`: names, or what `declared` makes of a problem's declaration.

    In a grader's process, text that takes too long ends the process (`clock`).
    """
    declared = _declared(symbols)
    tree = _read(text)
    _check_size(tree)
    try:
        with reading():
            return _build(tree, declared)
    except Malformed:
        raise
    except (
        Exception
    ) as error:  # sympy raises what it likes when a constructor dislikes its arguments
        raise Malformed(f"{type(error).__name__}: {error}") from error


def _declared(symbols: Collection[str] | Mapping[str, Any]) -> Mapping[str, Any]:
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
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Python's remarks on odd literals in text that is not ours
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
            return -_expression(_build(operand, symbols))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _expression(_build(operand, symbols))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _build(left, symbols), _build(right, symbols))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _RELATIONS:
            sides = [_expression(_build(side, symbols)) for side in (left, right)]
            return _plain(_RELATIONS[type(op)](*sides))
        case ast.Tuple(elts=elements):
            return tuple(_build(element, symbols) for element in elements)
        case ast.List(elts=elements):
            return [_build(element, symbols) for element in elements]
        case ast.Set(elts=elements):
            return frozenset(_build(element, symbols) for element in elements)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip((key for key in keys if key is not None), values, strict=True)
            return {_build(key, symbols): _build(value, symbols) for key, value in pairs}
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _call(name, [_build(argument, symbols) for argument in args])
    raise Malformed(f"{type(node).__name__} is not part of an answer")


def _constant(value: object) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _bounded(sympy.Integer(value))
    if isinstance(value, float):
        return sympy.Float(value)
    raise Malformed(f"a {type(value).__name__} is not part of an answer")


def _name(name: str, symbols: Mapping[str, Any]) -> Value:
    if name in symbols:
        return symbols[name]
    if name in CONSTANTS:
        return CONSTANTS[name]
    raise Malformed(f"unknown name {name[:40]!r}")


def _call(name: str, args: list[Value]) -> Value:
    if name in UNEVALUATED:
        raise Malformed(f"{name} is unevaluated: it restates the question")
    if name in _BOUNDED:
        return _bounded(_BOUNDED[name](*(_expression(arg) for arg in args)))
    if name in FUNCTIONS:
        return _plain(_function(name, [_expression(arg) for arg in args]))
    if name in _COLLECTIONS:
        return _COLLECTIONS[name](*args)
    if name in STRUCTURES:
        sets = [sympy.FiniteSet(*arg) if isinstance(arg, frozenset) else arg for arg in args]
        return _plain(STRUCTURES[name](*sets))
    raise Malformed(f"unknown function {name[:40]!r}")


def _function(name: str, args: list[Any]) -> Any:
    if name in EXPANDING and any(_num_terms(arg) > MAX_TERMS for arg in args):
        raise Malformed(f"{name} of a product of more than {MAX_TERMS} terms")
    for arg in args if name in GROWING else ():
        if arg.is_number and not arg.is_Rational:
            _check_exponent(arg)
    return _bounded(FUNCTIONS[name](*args))


def _num_terms(expression: Any) -> int:
    """The most terms that multiplying out all products and powers of sums can give."""
    if expression.is_Add:
        return sum(_num_terms(term) for term in expression.args)
    if expression.is_Pow and expression.exp.is_Rational:
        # Beyond the bound it does not matter by how much.
        factors = [_num_terms(expression.base)] * min(MAX_TERMS, math.ceil(abs(expression.exp)))
        return min(math.prod(factors), 2 * MAX_TERMS)
    parts: list[int] = [_num_terms(part) for part in expression.args]
    return math.prod(parts) if expression.is_Mul else max(parts, default=1)


def _binary(op: ast.operator, left: Value, right: Value) -> Value:
    if type(op) is ast.Pow:
        return _power(_expression(left), _expression(right))
    sides = [_expression(left), _expression(right)]
    if type(op) in _ROUNDING:
        name, arguments = _ROUNDING[type(op)]
        return _function(name, arguments(*sides))
    if type(op) not in _ARITHMETIC:
        raise Malformed(f"operator {type(op).__name__} is not part of an answer")
    return _bounded(_ARITHMETIC[type(op)](*sides))


def _power(base: Any, exponent: Any) -> Any:
    """`base**exponent`, refused while it is still cheap to refuse."""
    _check_exponent(exponent)
    if base.is_zero and not exponent.is_number:
        raise Malformed("a power of 0 with a symbol in its exponent")
    if base.is_Rational and exponent.is_Rational and base not in (-1, 0, 1):
        if _bits(base) * abs(exponent) > MAX_BITS:
            raise Malformed(f"a power of more than {MAX_BITS} bits")
        if not exponent.is_Integer and _bits(base) > MAX_RADICAND_BITS:
            raise Malformed(f"a root of more than {MAX_RADICAND_BITS} bits")
    return _bounded(base**exponent)


def _check_exponent(exponent: Any) -> None:
    if not exponent.is_number:
        if any(_exponent(power).free_symbols for power in exponent.atoms(sympy.Pow, sympy.exp)):
            raise Malformed("a power with a symbol in the exponent of its exponent")
        return
    if exponent.is_Rational and exponent.q > MAX_EXPONENT:
        raise Malformed(f"a root of order above {MAX_EXPONENT}")
    # Its own parts are bounded already, so 15 digits of it are cheap.
    size = exponent if exponent.is_Rational else exponent.evalf(15)
    if not abs(size) <= MAX_EXPONENT:
        raise Malformed(f"an exponent above {MAX_EXPONENT}")


def _exponent(power: Any) -> Any:
    return power.args[-1]


def _exp(exponent: Any) -> Any:
    _check_exponent(exponent)
    return sympy.exp(exponent)


def _factorial(argument: Any) -> Any:
    _check_small(argument)
    return sympy.factorial(argument)


def _binomial(top: Any, bottom: Any) -> Any:
    _check_small(top)
    _check_small(bottom)
    return sympy.binomial(top, bottom)


def _gamma(argument: Any) -> Any:
    _check_small(argument)
    return sympy.gamma(argument)


def _check_small(argument: Any) -> None:
    if argument.is_number and not argument.is_Integer:
        raise Malformed("a factorial of a number that is not whole")
    if any(abs(number) > MAX_FACTORIAL for number in argument.atoms(sympy.Number)):
        raise Malformed(f"factorials are read of integers up to {MAX_FACTORIAL}")
    if argument.has(sympy.Pow, sympy.exp, sympy.factorial, sympy.gamma, sympy.binomial):
        raise Malformed("a factorial that grows faster than factorials do")


def _fraction(numerator: Any, denominator: Any = sympy.S.One) -> Any:
    if not (numerator.is_Rational and denominator.is_Rational and denominator != 0):
        raise Malformed("a fraction of anything but whole numbers")
    return sympy.Rational(numerator, denominator)


def _collection(items: Value = ()) -> frozenset[Value]:
    if not isinstance(items, list | tuple | frozenset):
        raise Malformed("a set is made of a list, a tuple or a set")
    return frozenset(items)


def _expression(value: Value) -> Any:
    """`value` where arithmetic is meant: True is no number here, a list no summand."""
    if not isinstance(value, sympy.Expr):
        raise Malformed(f"a {type(value).__name__} where an expression is expected")
    return value


def _plain(value: Any) -> Value:
    """sympy's own truth values and finite sets as Python's, so that a value has one form."""
    if value is sympy.true or value is sympy.false:
        return bool(value)
    if value is sympy.S.EmptySet or isinstance(value, sympy.FiniteSet):
        return frozenset(value.args)
    return value


def _bounded(value: Any) -> Any:
    """`value`, refused if it is a number too large, too small or too long to be judged in time."""
    if isinstance(value, sympy.Rational):
        num_bits = float(_bits(value))
    elif isinstance(value, sympy.Expr) and value.is_number and value.has(sympy.Pow, sympy.exp):
        num_bits = _magnitude_bits(value)
    else:
        return value
    if num_bits > MAX_BITS:
        raise Malformed(f"a number of more than {MAX_BITS} bits")
    return value


def _magnitude_bits(number: Any) -> float:
    """Its logarithm to the base 2, without sign; 0 where the number is none."""
    size = abs(number.evalf(3, maxn=MAGNITUDE_DIGITS))
    return float(abs(sympy.log(size, 2))) if size.is_Float and size != 0 else 0.0


def _bits(number: Any) -> int:
    return max(int(number.p).bit_length(), int(number.q).bit_length())


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
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
_BOUNDED: Mapping[str, Callable[..., Any]] = {
    "sqrt": lambda base: _power(base, sympy.Rational(1, 2)),
    "cbrt": lambda base: _power(base, sympy.Rational(1, 3)),
    "Pow": _power,
    "exp": _exp,
    "factorial": _factorial,
    "gamma": _gamma,
    "binomial": _binomial,
    "Rational": _fraction,
    "Fraction": _fraction,
    "Integer": lambda number: _fraction(number),
}
_COLLECTIONS: Mapping[str, Callable[..., Any]] = {
    "set": _collection,
    "frozenset": _collection,
    "FiniteSet": lambda *elements: frozenset(elements),
}

WORDS = frozenset((*CONSTANTS, *FUNCTIONS, *STRUCTURES, *UNEVALUATED, *_BOUNDED, *_COLLECTIONS))
"""What no symbol may be called."""
