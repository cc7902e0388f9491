"""Laws of the rules of sympy-proofs, each on a few problems of a rule and a tier."""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from repl_rl.grading.parse import Malformed
from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.tasks.base import Cell, Script
from repl_rl.tasks.sympy_proofs import SympyProofs, draw
from repl_rl.tasks.sympy_proofs.family import FAMILIES, LINES, Rule

TASK = SympyProofs()

RESTATED = ("Integral(x, x)", "Sum(n, (n, 1, 2))", "nan", "oo", "[]", "None", "0.5", "x", "True")
"""Never an answer to a problem of several lines."""

WITNESSED = ("floors", "roots", "form", "nested", "conjugates", "antiderivative")
"""Rules with many right answers: a changed one may be right, too. Their own tests spoil them."""

Play = Callable[[Script], str | None]
"""Runs a script and gives back what it has submitted."""

Law = Callable[["Case", Play], None]


def script(*lines: str) -> Script:
    for line in lines:  # noqa: UP028 what is sent in stays here
        yield line


class Case(NamedTuple):
    family: str
    rule: str
    tier: int


def cases(family: str, names: tuple[str, ...]) -> list[Case]:
    rules = FAMILIES[family].rules
    return [Case(family, name, tier) for name in names for tier in rules[name].tiers]


def drawn(case: Case, count: int) -> Iterator[Problem]:
    rng = random.Random(str(case))
    rule = FAMILIES[case.family].rules[case.rule]
    split = Split.HELD_OUT if rule.is_held_out else Split.TRAIN
    while count:
        problem = draw(Cell(family=case.family, tier=case.tier), split, rng)
        if problem.meta["kind"] == case.rule:
            count -= 1
            yield problem


def solution_of(problem: Problem) -> list[str]:
    """Lines that solve it, the submission last; none for the oldest rules of one call."""
    return problem.meta.get("solution", "").splitlines()


@cache
def _rows() -> list[dict[str, Any]]:
    file = Path(__file__).parents[2] / "benchmarks" / "single_calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def digest_of(problems: Iterable[Problem]) -> str:
    """16 hex digits of what is asked, and of the answers."""
    digest = hashlib.blake2b(digest_size=8)
    for one in problems:
        digest.update("\n".join([*one.setup, one.statement, one.meta["answer"], ""]).encode())
    return digest.hexdigest()


def single_calls(problem: Problem) -> list[str]:
    """Expressions that somebody would try in one call: none is an answer from tier 2 on."""
    meta, text = problem.meta, "\n".join([*problem.setup, problem.statement])
    for row in _rows():
        if (row["family"], row["rule"]) == (meta["family"], meta["kind"]) and (
            int(meta["tier"]) in row["tiers"]
        ):
            patterns = row.get("fields", {})
            found = {name: re.search(pattern, text) for name, pattern in patterns.items()}
            fields = {name: match[1] for name, match in found.items() if match}
            return [Template(call).substitute(fields) for call in row["calls"]]
    return []


def played(play: Play, problem: Problem) -> str | None:
    """Submission of its own solution."""
    return play(script(*problem.setup, *solution_of(problem)))


def solutions_are_proved(case: Case, play: Play) -> None:
    for problem in drawn(case, 3):
        submission = played(play, problem)
        assert submission is not None, problem
        verdict = TASK.grade(problem, submission)
        assert verdict.kind is VerdictKind.PROVED, (problem, submission, verdict)


def lines_are_needed(case: Case, play: Play) -> None:
    """Enough of them; each uses what is bound or binds what is used later; no answer in them."""
    for problem in drawn(case, 3):
        solution, answer = solution_of(problem), problem.meta["answer"]
        lines = [ast.parse(line) for line in solution]
        assert len(lines) - 1 >= LINES[case.tier]
        setup = [ast.parse(line) for line in problem.setup]
        known = {name for line in setup for name in names(line, ast.Store)}
        for number, line in enumerate(lines):
            rest = {name for later in lines[number + 1 :] for name in names(later, ast.Load)}
            bound = names(line, ast.Store) - hidden(line)
            assert case.tier == 1 or bound or known & names(line, ast.Load), solution[number]
            # What is left over once squares are split off is shown, and decides what is submitted.
            assert bound <= rest or case.rule == "nested", solution[number]
            known |= names(line, ast.Store)
        is_long = len(answer) > 3  # a small number may also be part of the problem
        assert not (is_long and answer in " ".join(solution))


def names(tree: ast.AST, use: type[ast.expr_context]) -> set[str]:
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, use)}
    return found - set(dir(builtins))


def hidden(tree: ast.AST) -> set[str]:
    """Names that comprehensions bind for themselves."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.comprehension)]
    return {name for loop in loops for name in names(loop.target, ast.Store)}


def mutants_fail(case: Case, play: Play) -> None:
    for problem in drawn(case, 4):
        for mutant in mutants(problem.meta["answer"]):
            assert not graded(problem, mutant).is_solved, (problem, mutant)


def restatements_fail(case: Case, play: Play) -> None:
    for problem in drawn(case, 4):
        answer = problem.meta["answer"]
        for text in (*RESTATED, f"[{answer}]", f"({answer}, 1)"):
            assert graded(problem, text).kind is not VerdictKind.PROVED, (text, problem)


def mutants(answer: str) -> list[str]:
    value = ast.parse(answer, mode="eval").body
    common = ["nan", "[]", "True", "oo", "zoo", f"{answer}*0.5" if answer[0] not in "[(" else "1.5"]
    common = [text for text in common if text != answer]
    if not isinstance(value, ast.Tuple | ast.List):
        return [*common, f"{answer} + 1", f"-({answer})", f"1.0*({answer})", f"[{answer}, 7/5]"]
    parts = [ast.unparse(element) for element in value.elts]
    left, right = answer[0], "," + answer[-1] if answer[0] == "(" else answer[-1]
    changed = [[*parts, "7717"], parts[1:]]
    if parts:
        changed.append([f"{parts[0]} + 1/7", *parts[1:]])
    if isinstance(value, ast.Tuple) and parts[0] != parts[-1]:
        changed.append(parts[::-1])
    return [*common, *(left + ", ".join(one) + right for one in changed if one)]


def graded(problem: Problem, submission: str) -> Verdict:
    try:
        return TASK.grade(problem, submission)
    except Malformed as error:
        return Verdict(kind=VerdictKind.MALFORMED, evidence=str(error))


def problems_are_seeded_and_differ(case: Case, play: Play) -> None:
    assert list(drawn(case, 3)) == list(drawn(case, 3))
    assert len({problem.id for problem in drawn(case, 8)}) == 8


LAWS = (
    solutions_are_proved,
    lines_are_needed,
    mutants_fail,
    restatements_fail,
    problems_are_seeded_and_differ,
)


def rule_proves(case: Case, play: Play, setup: tuple[str, ...], answer: str) -> bool:
    """Return whether the rule's solution, run on another problem, submits its answer."""
    problem = next(drawn(case, 1))
    submission = play(script(*setup, *solution_of(problem)))
    meta = {"points": "0", **problem.meta, "answer": answer}
    assert submission is not None
    return graded(replace(problem, meta=meta), submission).kind is VerdictKind.PROVED


def is_proved(rule: Rule, problem: Problem, submission: str) -> bool:
    """By the rule itself, for a problem that a test has put together."""
    try:
        return rule.grade(problem, submission).kind is VerdictKind.PROVED
    except Malformed:
        return False
