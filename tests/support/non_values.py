"""Answers that have no value, generated: 0/0 that sympy does not see, alone and hidden in others.

rng -> a zero in a form that sympy keeps -> a non-value;  an answer -> the same, spoiled
"""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Callable, Iterator

KEPT = ("Sum(1/k, (k, 1, oo))", "Integral(1/x, (x, 0, 1))", "Derivative(abs(x), x).subs(x, 0)")
"""What sympy keeps as it is, and no constant."""
FORMS = (
    *(
        "{zero}/{other}**2",
        "{zero}/{other}",
        "1/{zero}",
        "{zero}**-3",
        "log({zero})",
        "{zero}**{other}",
    ),
    *("sqrt({zero}/{other})", "exp({zero}/{other})", "sin(1/{zero})", "atan({other}/{zero})"),
    *(
        "tan(pi/2 + {zero})",
        "Abs({zero}/{other})",
        "Max(1, {zero}/{other})",
        "(1 + {zero})**(1/{other})",
    ),
    *(
        "log({zero}) - log({other})",
        "1/{zero} - 1/{other}",
        "{zero}*log({other})",
        "1/(2**{zero} - 1)",
    ),
    *("Piecewise((1, {zero}/{other} > 0), (2, True))", "{zero}*(1/{other} - 1/{zero})"),
    *("({zero})**(-sqrt(2))", "acoth(1 + {zero})", "({zero}/{other} + 1)/({zero}/{other} + 2)"),
)
HIDDEN = (
    *("{answer} + {none}", "{answer} + 0*({none})", "({answer})*({none})/({none})"),
    *("({answer})*({none})**0", "({answer}) - ({none}) + ({none})", "({answer}) + ({none})/10**40"),
    *("Piecewise(({answer}, ({none}) > 0), ({answer}, True))", "({answer}) + exp(-({none})**2)"),
)

Change = Callable[[str], str]
CONTAINERS = ("Interval", "Union", "Matrix", "FiniteSet", "Complement", "Eq", "Ne")


def zero(rng: random.Random) -> str:
    """A constant that is 0, and not for sympy."""
    a, b = rng.sample(range(2, 60), 2)
    return rng.choice(
        (
            f"(sin({a})**2 + cos({a})**2 - 1)",
            f"(cosh({a % 7 + 1})**2 - sinh({a % 7 + 1})**2 - 1)",
            f"(sqrt({a + b} + 2*sqrt({a * b})) - sqrt({a}) - sqrt({b}))",
            f"(cos({2 * a}) - 2*cos({a})**2 + 1)",
            f"(log({a * b}) - log({a}) - log({b}))",
            f"(atan(1/{a}) + atan({a - 1}/{a + 1}) - pi/4)",
            "((2 + sqrt(5))**(1/3) + 1/(2 + sqrt(5))**(1/3) - sqrt(5))",
        )
    )


def non_value(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(KEPT)
    while (one := zero(rng)) == (other := zero(rng)):
        pass
    return rng.choice(FORMS).format(zero=one, other=other)


def spoiled(answer: str, rng: random.Random, count: int) -> Iterator[str]:
    """`count` texts: a non-value alone, one in each place of `answer`, and some hidden in one."""
    yield non_value(rng)
    yield filled(answer, lambda _: non_value(rng))
    for _ in range(count - 2):
        chosen = rng.randrange(max(1, len(places(answer))))
        yield filled(answer, _at(chosen, rng))


def _at(chosen: int, rng: random.Random) -> Change:
    numbers = itertools.count()
    return lambda part: hidden(part, rng) if next(numbers) == chosen else part


def hidden(part: str, rng: random.Random) -> str:
    if part in ("True", "False"):
        return non_value(rng)
    return rng.choice(HIDDEN).format(answer=f"({part})", none=non_value(rng))


def places(answer: str) -> list[str]:
    """Its expressions, in order."""
    found: list[str] = []

    def look(part: str) -> str:
        found.append(part)
        return part

    filled(answer, look)
    return found


def filled(answer: str, change: Change) -> str:
    """`answer` with each of its expressions changed; one for an empty collection."""
    tree = _Places(change).visit(ast.parse(answer, mode="eval"))
    return ast.unparse(tree)


class _Places(ast.NodeTransformer):
    def __init__(self, change: Change) -> None:
        self._change = change

    def generic_visit(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.Expression(body=body):
                return ast.Expression(self.visit(body))
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                node.elts = [self.visit(element) for element in elements] or [self._put("1")]
                return node
            case ast.Dict(values=values):
                node.values = [self.visit(value) for value in values]
                return node
            case ast.Call(func=ast.Name(id=name)) if name in CONTAINERS:
                node.args = [self.visit(argument) for argument in node.args]
                return node
            case ast.Compare(comparators=[right]):
                node.comparators = [self.visit(right)]
                return node
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd()):
                node.left, node.right = self.visit(node.left), self.visit(node.right)
                return node
            case ast.expr():
                return self._put(ast.unparse(node))
        return node

    def _put(self, text: str) -> ast.expr:
        return ast.parse(self._change(text), mode="eval").body
