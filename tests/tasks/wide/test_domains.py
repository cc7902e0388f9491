"""Domains are the problem's: the grader draws symbols from where the statement says they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sympy

import rule_kit as kit
from repl_rl.grading.parse import declared
from repl_rl.records import Problem, VerdictKind
from repl_rl.tasks.sympy_proofs.family import FAMILIES

pytestmark = pytest.mark.slow

CASES = [
    case for family in FAMILIES.values() for case in kit.cases(family.name, tuple(family.rules))
]
FORMS = {
    # By what is claimed: what is 0 for such a symbol, and only there.
    "positive": "sqrt({0}**2) - {0} + log({0}**2) - 2*log({0}) + sqrt(1/{0}) - 1/sqrt({0})",
    "real": "sqrt({0}**4) - {0}**2",
    "integer": "sin(pi*{0}) + (-1)**(2*{0}) - 1 + cos(pi*{0}) - (-1)**{0}",
}
STARTS = {"n >= 0": [0, 1, 2], "n = 1, 2, 3, ...": [1, 2, 3], "p > 0": []}
"""Words of statements, and the whole numbers that they begin with."""


def bound(setup: tuple[str, ...]) -> dict[str, dict[str, bool]]:
    """Claims that the lines of a setup make of the symbols they bind."""
    found: dict[str, dict[str, bool]] = {}
    for tree in map(ast.parse, setup):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "symbols":
                claims = {word.arg: ast.literal_eval(word.value) for word in call.keywords
                          if word.arg != "cls"}  # fmt: skip
                names = ast.literal_eval(call.args[0]).split()
                found |= dict.fromkeys(names, claims)
    return found


def declarations(case: kit.Case) -> Iterator[tuple[Problem, dict[str, Any]]]:
    for problem in kit.drawn(case, 2):
        yield problem, declared(problem.meta.get("symbols", ""))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_symbol_of_an_answer_is_to_the_grader_what_it_is_in_the_kernel(case: kit.Case) -> None:
    for problem, symbols in declarations(case):
        for name, claims in bound(problem.setup).items():
            if name in symbols:
                known = sympy.Symbol(name, **claims).assumptions0
                assert known.items() <= symbols[name].assumptions0.items(), (problem.setup, name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_answer_may_use_the_domain_of_its_symbols(case: kit.Case) -> None:
    """sqrt(p**2) is p for p > 0, cos(pi*n) is (-1)**n for whole n."""
    for problem, symbols in declarations(case):
        if case.rule in kit.WITNESSED:
            continue
        zeros = [
            form.format(name)
            for name, symbol in symbols.items()
            for claim, form in FORMS.items()
            if getattr(symbol, f"is_{claim}")
        ]
        for zero in zeros:
            verdict = kit.graded(problem, added(problem.meta["answer"], zero))
            assert verdict.is_solved, (problem.statement, zero, verdict)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_domain_begins_where_the_statement_says(case: kit.Case) -> None:
    """A difference at the first number of all is refuted, as a step at 0 is for n >= 0."""
    for problem, symbols in declarations(case):
        for words, numbers in STARTS.items():
            if words not in problem.statement or not symbols:
                continue
            for first in numbers:
                step = f"binomial(0, n - {first})" if first else "binomial(0, n)"
                wrong = added(problem.meta["answer"], step)
                assert not kit.graded(problem, wrong).is_solved, (problem.statement, step)


def added(answer: str, term: str) -> str:
    """`answer` and `term`, in a tuple or a list added to the last value."""
    tree = ast.parse(answer, mode="eval").body
    if not isinstance(tree, ast.Tuple | ast.List):
        return f"{answer} + {term}"
    parts = [ast.unparse(element) for element in tree.elts]
    parts[-1] += f" + {term}"
    return f"({', '.join(parts)})"


def test_a_root_of_a_square_is_the_number_where_the_statement_says_positive() -> None:
    problem = next(kit.drawn(kit.Case("calculus", "radical", 4), 1))
    meta = {**problem.meta, "answer": "p*sqrt(p + 3) - log(p)"}
    problem = replace(problem, meta=meta)
    for right in ("sqrt(p**2*(p + 3)) - log(p)", "p*sqrt(p + 3) + log(1/p)"):
        assert kit.graded(problem, right).is_solved, right
    for wrong in ("-sqrt(p**2*(p + 3)) - log(p)", "p*sqrt(p + 3) - log(p**2)"):
        assert kit.graded(problem, wrong).kind is VerdictKind.REFUTED, wrong
