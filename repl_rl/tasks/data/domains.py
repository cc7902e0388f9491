r"""Domains of a row's unknowns, by its column, its statement and its known answer.

    "Let n be a positive integer", "2*(-1)**n" -> n:integer,positive

A claim is made only where nothing is asked beyond it: no reader takes (-1)**n at n = 1/2, nor the
root of p at p = -1. What is an even, odd or prime number is left at an integer, because statements
tell cases apart by such words. Reads texts by patterns and syntax trees; evaluates nothing.

Does not know graders.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from repl_rl.grading.bounded import STRUCTURES
from repl_rl.grading.equality import CONSTANTS
from repl_rl.grading.parse import WORDS, binding, declared

Claims = Mapping[str, frozenset[str]]
"""Assumptions of `declared` by name."""

_NONE: frozenset[str] = frozenset()

_LETTERS = r"(?P<names>\$?[A-Za-z]\$?(?:(?:,? and |, ?)\$?[A-Za-z]\$?)*)(?![A-Za-z(])"
_SIGN = r"positive|negative|non-?negative|non-?zero"
_ANY = r"distinct|consecutive|fixed|given|arbitrary|even|odd|prime|relatively prime|two|three|real"
_NOUN = r"integer|whole number|natural number|rational number|number|real|constant"
_KIND = rf"(?P<words>(?:(?:{_SIGN}|{_ANY}) )*(?:{_NOUN})s?)"
_PHRASES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<![-\w]){_KIND} {_LETTERS}",
        rf"(?<![-\w\\]){_LETTERS} (?:is|are|be|denotes?) (?:an? |any |some |all |both )?{_KIND}\b",
        r"(?<![-\w\\])"
        + _LETTERS
        + r" ?(?:\\in|\u2208) ?\\mathbb ?\{?(?P<set>[NZQR])\}?(?P<plus>\^?\{?\+)?",
        rf"(?i:\b(?:for|all|with|where|given|assume|suppose|that)) {_LETTERS}"
        r" ?(?P<bound>>=|>|\\geq?|\\gt|\u2265) ?0(?![.\d])",
    )
)  # fmt: skip
_OF_WORDS = {
    "integer": {"integer"},
    "whole": {"integer", "nonnegative"},
    "natural": {"integer", "positive"},
    "rational": {"rational"},
    "positive": {"positive"},
    "negative": {"negative"},
    "nonnegative": {"nonnegative"},
    "nonzero": {"nonzero"},
}
_OF_SETS = {"N": {"integer", "positive"}, "Z": {"integer"}, "Q": {"rational"}, "R": set[str]()}
_OF_BOUNDS = {">": {"positive"}, r"\gt": {"positive"}}
_SIGNS = frozenset({"positive", "negative", "nonnegative", "nonzero"})
_ANY_CONSTANT = re.compile(
    r"(?i)constants? of integration|(?:arbitrary|integration) constant|is (?:a|any) constant"
)
_SINGLE = re.compile(r"(?i)\b(?:an|one|any) (?:antiderivative|primitive)")
_INTEGRAL = re.compile(r"(?i)\\int(?![a-z])|\u222b|integra(?:l|te)|antiderivative|primitive")
_COMPLEX = re.compile(r"(?i)complex|imaginary")

_WHOLE_LETTERS = frozenset("kmn")
"""Letters that cos(pi*n) and floor(n/2) make integers of. cos(pi*x) is a wave."""
_ROOTS = ("sqrt", "log", "ln")


def settled(
    names: Sequence[str], *, column: str, statement: str, meanings: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """The declaration of `names` for a grader, and the lines that bind them in a kernel.

    What the known answer alone says is not for the kernel. ValueError for a column that declares
    what cannot be.
    """
    declared(column)
    given = _of_column(column)
    if not any(map(_is_region, meanings)):
        read, needed = stated(statement, names), dict(implied(meanings))
        for name, claims in counted(meanings).items():
            if name not in read:
                needed[name] = needed.get(name, _NONE) | claims
        if _COMPLEX.search(statement):
            needed = {}
    else:
        read, needed = {}, {}
    order = dict.fromkeys((*names, *given))
    bound = {name: {**read, **given}.get(name, _NONE) for name in order}
    known = {
        name: claims if name in given else _joined((claims, needed.get(name, _NONE)))
        for name, claims in bound.items()
    }
    return " ".join(map(_spelled, known.items())), _lines(bound)


def stated(statement: str, names: Iterable[str]) -> Claims:
    """Claims that the words of a statement make of `names`."""
    names = tuple(names)
    if not names:
        return {}
    text = " ".join(statement.split())
    claims: dict[str, list[frozenset[str]]] = {}
    for pattern in _PHRASES:
        for match in pattern.finditer(text):
            for name in re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", match["names"]):
                claims.setdefault(name, []).append(_claims(match))
    return {
        name: _joined(claims[name]) - (_SIGNS if _is_below(name, text) else _NONE)
        for name in names
        if name in claims and name not in WORDS
    }


def _is_below(name: str, text: str) -> bool:
    """Say whether a statement speaks of negative `name`, too: then it tells cases apart."""
    return bool(re.search(rf"(?<![A-Za-z\\]){name}\$? ?(?:<|\\l[et]|\u2264)", text))


def implied(meanings: Sequence[str]) -> Claims:
    """Claims that all meanings of an answer need: (-1)**n whole n, a root of p that p > 0."""
    readings = [_of_answer(ast.parse(text, mode="eval").body) for text in meanings]
    return {
        name: frozenset.intersection(*(one.get(name, _NONE) for one in readings))
        for name in {name for one in readings for name in one} - WORDS
    }


def counted(meanings: Sequence[str]) -> Claims:
    """Claims on letters that count in an answer: n is whole in floor(n/2), and natural in n!."""
    nodes = [node for text in meanings for node in ast.walk(ast.parse(text, mode="eval"))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    parts = [(ast.unparse(call.func), call.args[0]) for call in calls]
    rounded = [part for name, part in parts if name in ("floor", "ceiling")]
    factorials = [part for name, part in parts if name in ("factorial", "factorial2")]
    operators = [getattr(part, "op", part) for part in rounded]
    if not all(isinstance(one, ast.Div | ast.Call) for one in operators):
        return {}  # floor(n) has a use for real n alone
    if any(name == "binomial" for name, _ in parts):
        factorials = []  # a binomial is 0 where factorials that equal it have no value
    whole, natural = (
        _WHOLE_LETTERS.intersection(name for part in several for name in _names(part))
        for several in (rounded, factorials)
    )
    claims = dict.fromkeys(whole, frozenset({"integer"}))
    return claims | dict.fromkeys(natural, frozenset({"integer", "nonnegative"}))


def constant_of(statement: str, names: Sequence[str], meanings: Sequence[str]) -> dict[str, str]:
    r"""The `constant` of integration that a known answer ends in, and the `variable`, if any.

    x**2 + C, asked for by an integral, has C and x. With parameters the statement says dx. If one
    antiderivative is asked for, the constant is left out: no answer needs it.
    """
    if not _INTEGRAL.search(statement):
        return {}
    for name in set(names).intersection(CONSTANTS):
        others = [other for other in names if other != name]
        if len(others) > 1:
            others = [
                other for other in others if re.search(rf"(?<![A-Za-z])d{other}\b", statement)
            ]
        is_given = re.search(rf"(?<![\\\w]){name}(?!\w)", statement) is not None
        is_any = _ANY_CONSTANT.search(statement) is not None
        is_free = is_any or not is_given
        if len(others) == 1 and is_free and all(_adds(one, name) for one in meanings):
            needed = {} if _SINGLE.search(statement) else {"constant": name}
            return {"variable": others[0], **needed}
    return {}


def _adds(text: str, name: str) -> bool:
    """Say whether `text` is a sum with `name` as one of its terms, and has it nowhere else."""
    tree, terms = ast.parse(text, mode="eval").body, []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub):
        terms.append(tree.right)
        tree = tree.left
    ends = [_names(term) for term in (*terms, tree)]
    return [name] in ends and sum(part.count(name) for part in ends) == 1


def _claims(match: re.Match[str]) -> frozenset[str]:
    parts = match.groupdict()
    if words := parts.get("words"):
        claimed = words.replace("non-", "non").removesuffix("s").split()
        return frozenset().union(*(_OF_WORDS.get(word, set()) for word in claimed))
    if name := parts.get("set"):
        return frozenset(_OF_SETS[name] | ({"positive"} if parts["plus"] else set()))
    return frozenset(_OF_BOUNDS.get(parts["bound"], {"nonnegative"}))


def _joined(parts: Iterable[frozenset[str]]) -> frozenset[str]:
    """All claims, or where they contradict each other those that every part makes."""
    several = list(parts)
    claims = frozenset().union(*several)
    try:
        declared(_spelled(("x", claims)))
    except ValueError:
        return frozenset.intersection(*several)
    return claims


def _of_answer(tree: ast.expr) -> Claims:
    by_name: dict[str, set[str]] = {}
    is_real = not any(isinstance(node, ast.Name) and node.id == "I" for node in ast.walk(tree))
    for node in ast.walk(tree):
        for name, claim in _of_node(node):
            if is_real or claim == "integer":
                by_name.setdefault(name, set()).add(claim)
    return {name: frozenset(claims) for name, claims in by_name.items()}


def _of_node(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            if (_number(base) or 0) < 0 and _is_whole(exponent):
                yield from ((name, "integer") for name in _names(exponent))
            if isinstance(exponent, ast.BinOp) and _is_half(exponent):
                yield from ((name, "positive") for name in _odd_names(base))
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in _ROOTS:
            yield from ((name, "positive") for name in _odd_names(argument))
        case ast.Call(func=ast.Name(id="sin" | "cos" | "tan"), args=[argument]):
            powers = _monomial(argument) or Counter()
            if powers.pop("pi", 0) == 1 and _WHOLE_LETTERS.issuperset(powers):
                yield from ((name, "integer") for name in powers if powers[name] > 0)


def _odd_names(tree: ast.expr) -> list[str]:
    powers = _monomial(tree) or Counter()
    return [name for name, power in powers.items() if power % 2 and name not in ("pi", "E")]


def _monomial(tree: ast.expr) -> Counter[str] | None:
    """The powers of names in a product of these and of positive numbers; None for what is none."""
    match tree:
        case ast.Name(id=name):
            return Counter({name: 1})
        case ast.BinOp(op=ast.Mult() | ast.Div() as op, left=left, right=right):
            parts = (_monomial(left), _monomial(right))
            if parts[0] is None or parts[1] is None:
                return None
            sign = 1 if isinstance(op, ast.Mult) else -1
            names = {*parts[0], *parts[1]}
            return Counter({name: parts[0][name] + sign * parts[1][name] for name in names})
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            powers, times = _monomial(base), _number(exponent)
            if powers is None or times is None:
                return None
            return Counter({name: power * times for name, power in powers.items()})
    return Counter() if (_number(tree) or 0) > 0 else None


def _number(tree: ast.expr) -> int | None:
    match tree:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _number(operand)
            return None if inner is None else -inner
    return None


def _is_half(exponent: ast.BinOp) -> bool:
    below = _number(exponent.right)
    return isinstance(exponent.op, ast.Div) and below is not None and below % 2 == 0


def _is_whole(exponent: ast.expr) -> bool:
    """Say whether it is made of names and integers by +, - and *."""
    kinds = (ast.Name, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Load, ast.USub)
    return all(
        isinstance(node, (*kinds, ast.Add, ast.Sub, ast.Mult)) for node in ast.walk(exponent)
    )


def _names(tree: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _is_region(text: str) -> bool:
    """A condition on a symbol is decided by what is claimed of it: nothing is."""
    tree = ast.parse(text, mode="eval")
    names = {*STRUCTURES, "Eq", "Ne", "Lt", "Le", "Gt", "Ge"}
    return any(isinstance(node, ast.Compare) for node in ast.walk(tree)) or bool(
        names & set(_names(tree))
    )


def _of_column(column: str) -> Claims:
    pairs = (part.partition(":") for part in column.split())
    return {name: frozenset(claims.split(",")) if claims else _NONE for name, _, claims in pairs}


def _spelled(item: tuple[str, Iterable[str]]) -> str:
    name, claims = item
    return f"{name}:{','.join(sorted(claims))}" if claims else name


def _lines(bound: Claims) -> tuple[str, ...]:
    """One for all names that are claimed to be the same."""
    by_claims: dict[frozenset[str], list[str]] = {}
    for name, claims in bound.items():
        by_claims.setdefault(claims, []).append(_spelled((name, claims)))
    return tuple(binding(" ".join(parts)) for parts in by_claims.values())
