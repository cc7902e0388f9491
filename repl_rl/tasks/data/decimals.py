r"""Decimals of a known answer, which a submission may spell as floats.

    \$18.90 and 18.9;   1e-05 and 1e-05;   50\% and 0.5

A float is no exact answer, because it is rounded as a rule. One that has just the digits of a
decimal in the known answer is not rounded, so it is read as the fraction that it is. Whether it
stands at the right place is for the comparison to say. Knows no comparison.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fractions import Fraction

MAX_CHARS = 400
"""Of one decimal."""
_MAX_EXPONENT = 400
_NUMBER = re.compile(r"(\d*\.\d+|\d+\.?)(?:[eE]([+-]?\d+))?")
_TIMES_TEN = re.compile(
    r"\s*(?:\\times|\\cdot|\*|\u00d7)\s*10\s*(?:\^|\*\*)\s*\{?\s*([+-]?\d+)\s*\}?"
)
_GROUPING = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\[,;: ]|~|,)\s*(?=\d{3})")
_EUROPEAN = re.compile(r"(?<=\d)\{,\}(?=\d)")


def decimals_in(answer: str) -> frozenset[Fraction]:
    """Sizes of all decimals that it spells, and of its percentages."""
    found: set[Fraction] = set()
    for text in (_GROUPING.sub("", answer), _EUROPEAN.sub(".", answer)):
        numbers = list(_numbers(text))
        found.update(value for value, is_decimal in numbers if is_decimal)
        if re.search(r"%|percent|per cent", text):
            found.update(value / 100 for value, _ in numbers)
    return frozenset(found)


def _numbers(text: str) -> Iterator[tuple[Fraction, bool]]:
    """(size, whether it is spelled as a decimal) of each number."""
    for number in _NUMBER.finditer(text):
        power = _TIMES_TEN.match(text, number.end())
        exponents = [int(one) for one in (number[2], power[1] if power else None) if one]
        if len(number[0]) > MAX_CHARS or any(abs(one) > _MAX_EXPONENT for one in exponents):
            continue
        size = Fraction(number[1].rstrip("."))
        yield size, "." in number[1].rstrip(".")
        if exponents:
            yield size * Fraction(10) ** sum(exponents), True


def with_fractions(submission: str, answer: str) -> str:
    """The submission with the decimals of the known answer as fractions; other floats stay."""
    if "." not in submission and "e" not in submission.lower():
        return submission
    try:
        tree = ast.parse(submission.strip(), mode="eval")
        found = _Exact(submission.strip(), decimals_in(answer))
        exact = found.visit(tree)
        return ast.unparse(exact) if found.is_changed else submission
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return submission


class _Exact(ast.NodeTransformer):
    """Replaces literals; the literal itself tells what was rounded when Python read it."""

    def __init__(self, text: str, known: frozenset[Fraction]) -> None:
        self.text = text
        self.known = known
        self.is_changed = False

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, float):
            return node
        return self._fraction(ast.get_source_segment(self.text, node) or "") or node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:  # as Python prints a decimal.Decimal
            case ast.Call(func=ast.Name(id="Decimal"), args=[ast.Constant(value=str(text))]):
                sign, digits = re.fullmatch(r"([+-]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
                size = self._fraction(digits)
                return ast.UnaryOp(ast.USub(), size) if size and sign == "-" else size or node
        return self.generic_visit(node)

    def _fraction(self, literal: str) -> ast.expr | None:
        digits = literal.replace("_", "")
        number = _NUMBER.fullmatch(digits)
        if number is None or len(digits) > MAX_CHARS or abs(int(number[2] or 0)) > _MAX_EXPONENT:
            return None
        size = Fraction(digits)
        if size not in self.known:
            return None
        self.is_changed = True
        above, below = ast.Constant(size.numerator), ast.Constant(size.denominator)
        return ast.BinOp(above, ast.Div(), below)
