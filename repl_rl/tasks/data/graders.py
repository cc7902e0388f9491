r"""Graders by name, for problems that carry all that grading takes in their `meta`.

    meta["grader"]  math | integer | exact | tests
    meta["value"]   the known answer as `grading.parse` reads it, one meaning a line; a choice
                    among them stands in quotes

`ByName` needs no file and no argument, so a grader's process makes one wherever it runs. A float
that spells a decimal of the known answer counts as a fraction. LaTeX was read when the rows were
(`golds`); a submission is a Python value, or a text, and never LaTeX. Knows no file, no row.

`tests` calls a submitted function in fresh sealed kernels and judges outside: a kernel sees the
calls, and never what they must return, since code in it could make any comparison true.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import sympy

from repl_rl.grading.equality import CONSTANTS, compare, compare_primitives, wrong
from repl_rl.grading.parse import MAX_CHARS as MOST_CHARS
from repl_rl.grading.parse import Malformed, Value, declared, parse
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.data.texts import is_same_text
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Isolation, Kernel, Limits

MAX_CHARS = 400
"""Most characters of one decimal."""
_MAX_EXPONENT = 400
_NUMBER = re.compile(r"(\d*\.\d+|\d+\.?)(?:[eE]([+-]?\d+))?")
_TIMES_TEN = re.compile(
    r"\s*(?:\\times|\\cdot|\*|\u00d7)\s*10\s*(?:\^|\*\*)\s*\{?\s*([+-]?\d+)\s*\}?"
)
_GROUPING = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\[,;: ]|~|,)\s*(?=\d{3})")
_EUROPEAN = re.compile(r"(?<=\d)\{,\}(?=\d)")

_BEST_FIRST = (
    *(VerdictKind.PROVED, VerdictKind.SUPPORTED, VerdictKind.UNDECIDED),
    *(VerdictKind.REFUTED, VerdictKind.WRONG, VerdictKind.MALFORMED),
)

_PLAIN = """
def plain(value):
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    for kinds, kind in (list, list), (tuple, tuple), ((set, frozenset), set):
        if isinstance(value, kinds):
            return kind(map(plain, value))
    return value
"""
"""Code of a kernel that makes literals of their subclasses, which are equal to them: a Counter of
a dict. It sees no known value, so whoever changes it gains nothing."""

LIMITS = Limits(line_cpu_s=1.0, line_wall_s=2.0, kernel_cpu_s=4)
"""All calls together stay within the deadline of a verdict."""


def decimals_in(answer: str) -> frozenset[Fraction]:
    """Sizes of all decimals that it spells, and of its percentages."""
    sizes: set[Fraction] = set()
    for text in (_GROUPING.sub("", answer), _EUROPEAN.sub(".", answer)):
        numbers = list(_numbers(text))
        sizes.update(value for value, is_decimal in numbers if is_decimal)
        if re.search(r"%|percent|per cent", text):
            sizes.update(value / 100 for value, _ in numbers)
    return frozenset(sizes)


def with_fractions(submission: str, answer: str) -> str:
    """The submission with the decimals of the known answer as fractions; other floats stay."""
    if len(submission) > MOST_CHARS or not {".", "e", "E"} & set(submission):
        return submission
    try:
        tree = ast.parse(submission.strip(), mode="eval")
        transformer = _Exact(submission.strip(), decimals_in(answer))
        exact = transformer.visit(tree)
        return ast.unparse(exact) if transformer.is_changed else submission
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return submission


class ByName:
    """Judges by the grader that a problem names."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """Grade by `meta` alone; text that is not an answer of the kind asked for is MALFORMED."""
        try:
            return _GRADERS[problem.meta["grader"]](problem.meta, submission)
        except Malformed as error:
            return Verdict(kind=VerdictKind.MALFORMED, method="parse", evidence=str(error))

    def reference(self, problem: Problem) -> str | None:
        """The known answer, as a kernel would hand it over."""
        value = problem.meta["value"]
        if problem.meta["grader"] == "tests":
            return None  # nobody has written the function
        return repr(value) if problem.meta["grader"] == "exact" else value.split("\n")[0]


def grade_math(meta: Mapping[str, str], submission: str) -> Verdict:
    """The best verdict over all meanings of the known answer."""
    symbols, lines = _symbols(meta), meta["value"].split("\n")
    choices = [unquoted(line) for line in lines if line.startswith("'")]
    if choices and (text := text_of(submission)) != submission:
        return _same_text(text, choices)
    got = parse(with_fractions(submission, meta["answer"]), symbols=symbols)
    meanings = [parse(line, symbols=symbols) for line in lines if not line.startswith("'")]
    same = partial(_same_family, meta, symbols) if "variable" in meta else matched
    verdicts = [same(got, meaning, seed=meta["points"]) for meaning in meanings]
    other = wrong("form", "a choice is expected")
    return min(verdicts, key=lambda verdict: _BEST_FIRST.index(verdict.kind), default=other)


def grade_integer(meta: Mapping[str, str], submission: str) -> Verdict:
    """An exact integer, and the right one."""
    got = parse(submission)
    if not isinstance(got, sympy.Integer):
        return wrong("form", "an integer is expected")
    kind = VerdictKind.PROVED if got == int(meta["value"]) else VerdictKind.WRONG
    return Verdict(kind=kind, method="integer")


def grade_exact(meta: Mapping[str, str], submission: str) -> Verdict:
    """Compare texts, but for blanks, the form of their characters and brackets around a letter."""
    verdict = _same_text(unquoted(submission), [meta["value"]])
    return verdict if verdict.is_solved else _same_text(text_of(submission), [meta["value"]])


def matched(got: Value, expected: Value, *, seed: str) -> Verdict:
    """The ladder's verdict. Where a set is expected, a list without repetitions is one."""
    if type(got) is type(expected) and bool(got == expected) and not _has_floats(got):
        return Verdict(kind=VerdictKind.PROVED, method="structural")
    if isinstance(expected, frozenset) and isinstance(got, list | tuple):
        elements = frozenset(map(_hashable, got))
        if len(elements) == len(got):
            got = elements
    return compare(got, expected, seed=seed)


def unquoted(submission: str) -> str:
    """Return the content of a submitted string; any other submission as it stands."""
    (text,) = _strings(submission) or [submission]
    return text


def text_of(submission: str) -> str:
    """Return what a submitted string says, or the strings of a list or a set between commas."""
    strings = _strings(submission, is_list=True)
    return submission if strings is None else ", ".join(strings)


class ByTests(ByName):
    """Judges by the grader that a problem names; its own kernels run what was submitted."""

    starts_processes = True
    """So its process has no walls around itself: each kernel has its own."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._pool: KernelPool | None = None

    def grade(self, problem: Problem, submission: str) -> Verdict:
        """PROVED where each call returns what it must; MALFORMED unless a text is submitted."""
        if problem.meta["grader"] != "tests":
            return super().grade(problem, submission)
        source = unquoted(submission)
        if source == submission:
            evidence = "source of a function is expected, as a string"
            return Verdict(kind=VerdictKind.MALFORMED, method="tests", evidence=evidence)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._run(source, json.loads(problem.meta["value"])))

    async def _run(self, source: str, calls: Sequence[Sequence[str]]) -> Verdict:
        if self._pool is None:  # kept for the life of the process, which ends it
            pool = KernelPool(LIMITS, preload=(), standby=1, isolation=Isolation.AUTO)
            self._pool = await pool.__aenter__()
        kernel = await self._pool.acquire(seed=0)
        async with contextlib.aclosing(kernel):
            return await judged(kernel, source, calls)


async def judged(kernel: Kernel, source: str, calls: Sequence[Sequence[str]]) -> Verdict:
    """Define what `source` defines, then make each call, which must return a literal."""
    defined = await kernel.run(f"exec({source!r})")
    if defined.status is not ExecStatus.OK:
        return wrong("tests", f"the source: {defined.status}")
    # With names of its own: the source may call something `list`.
    await kernel.run(f"exec({_PLAIN!r}, __literal__ := {{}})")
    for number, (call, expected) in enumerate(calls, 1):
        execution = await kernel.evaluate(f"__literal__['plain']({call})")
        if execution.status is not ExecStatus.OK or execution.value is None:
            return wrong("tests", f"call {number} of {len(calls)}: {execution.status}")
        if not is_literal_equal(execution.value, expected):
            return wrong("tests", f"call {number} of {len(calls)}: another value")
    return Verdict(kind=VerdictKind.PROVED, method="tests", evidence=f"{len(calls)} calls")


def is_literal_equal(value: str, expected: str) -> bool:
    """Say whether a kernel's text spells the literal; text that spells none is another value."""
    try:
        return bool(ast.literal_eval(value) == ast.literal_eval(expected))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False


def read_tests(source: str) -> str:
    """Tests as `meta` holds them. Raises ValueError for anything but a call and a literal."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("no Python") from None
    if not body:
        raise ValueError("no tests")
    return json.dumps([_test(statement) for statement in body])


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


def _symbols(meta: Mapping[str, str]) -> dict[str, Any]:
    """Symbols by name. One without a claim may be called as a function is, such as `beta`."""
    parts = meta.get("symbols", "").split()
    names = [part for part in parts if ":" not in part]
    names += CONSTANTS if "variable" in meta else ()
    claimed = declared(" ".join(part for part in parts if ":" in part))
    return {name: sympy.Symbol(name) for name in names} | claimed


def _same_family(
    meta: Mapping[str, str], symbols: Mapping[str, Any], got: Value, expected: Any, *, seed: str
) -> Verdict:
    """Antiderivatives with a constant of any name; where all are asked for, one is not all."""
    if not isinstance(got, sympy.Expr) or got.is_Matrix:
        return wrong("form", "an expression is expected")
    others = expected.free_symbols - {symbols.get(meta.get("constant", ""))}
    if "constant" in meta and not got.free_symbols - others:
        return wrong("constant", f"no constant of integration, such as {meta['constant']}")
    return compare_primitives(got, expected, symbols[meta["variable"]], seed=seed)


def _same_text(text: str, known: Sequence[str]) -> Verdict:
    is_same = any(is_same_text(text, one) for one in known)
    return Verdict(kind=VerdictKind.PROVED if is_same else VerdictKind.WRONG, method="text")


def _strings(submission: str, *, is_list: bool = False) -> list[str] | None:
    """The string that it is, or the strings of its list; None for anything else."""
    try:
        tree = ast.parse(submission.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    parts = [tree]
    if is_list and isinstance(tree, ast.List | ast.Tuple | ast.Set):
        parts = tree.elts
    texts = [one.value for one in parts if isinstance(one, ast.Constant)]
    strings = [text for text in texts if isinstance(text, str)]
    return strings if strings and len(strings) == len(parts) else None


def _hashable(value: Value) -> Value:
    if isinstance(value, dict):
        return frozenset((key, _hashable(one)) for key, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _has_floats(value: Value) -> bool:
    if isinstance(value, Sequence | frozenset):
        return any(map(_has_floats, value))
    return isinstance(value, sympy.Basic) and value.has(sympy.Float)


def _test(statement: ast.stmt) -> tuple[str, str]:
    """`assert f(2) == 4`, `assert f(2)` or `assert not f(2)`."""
    match statement:
        case ast.Assert(
            test=ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[it])
        ):
            expected = it
        case ast.Assert(test=ast.Call() as call):
            expected = ast.Constant(True)
        case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call)):
            expected = ast.Constant(False)
        case _:
            raise ValueError(
                f"expected `assert call == literal`, not {ast.unparse(statement)[:40]!r}"
            )
    if isinstance(expected, ast.Constant) and isinstance(expected.value, bool):
        _refuse_comparer(call)
    text = ast.unparse(expected)
    if not is_literal_equal(text, text):
        raise ValueError(f"no literal: {text[:40]!r}")
    return ast.unparse(call), text


def _refuse_comparer(call: ast.Call) -> None:
    """ValueError for a call that compares by itself, as `isclose(f(2), 4)` does.

    It runs beside the submitted source, which may make it say anything, or look at the 4.
    """
    inner = [node for node in ast.walk(call) if isinstance(node, ast.Call | ast.Compare)]
    is_own = isinstance(call.func, ast.Name) and not hasattr(builtins, call.func.id)
    if not is_own or len(inner) > 1:
        raise ValueError(f"expected `assert call == literal`, not {ast.unparse(call)[:40]!r}")


_GRADERS: Mapping[str, Callable[[Mapping[str, str], str], Verdict]] = {
    "math": grade_math,
    "integer": grade_integer,
    "exact": grade_exact,
}
