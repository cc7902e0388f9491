"""Laws of the rules of sympy-proofs, each on a few problems of a rule and a tier."""

from __future__ import annotations

import ast
import builtins
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from repl_rl.grading.parse import Malformed
from repl_rl.records import Problem, Split, Verdict, VerdictKind
from repl_rl.tasks.base import Cell, Script
from repl_rl.tasks.sympy_proofs.family import FAMILIES, LINES, Draft, Rule
from repl_rl.tasks.sympy_proofs.task import SympyProofs, draw

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


def drawn(case: Case, count: int) -> Iterator[tuple[Problem, Draft]]:
    rng = random.Random(str(case))
    rule = FAMILIES[case.family].rules[case.rule]
    split = Split.HELD_OUT if rule.is_held_out else Split.TRAIN
    while count:
        problem, draft = draw(Cell(family=case.family, tier=case.tier), split, rng)
        if problem.meta["kind"] == case.rule:
            count -= 1
            yield problem, draft


def played(play: Play, draft: Draft, lines: tuple[str, ...]) -> str | None:
    return play(script(*draft.setup, *lines))


def solutions_are_proved(case: Case, play: Play) -> None:
    for problem, draft in drawn(case, 3):
        submission = played(play, draft, draft.solution)
        assert submission is not None, draft
        verdict = TASK.grade(problem, submission)
        assert verdict.kind is VerdictKind.PROVED, (draft, submission, verdict)


def lines_are_needed(case: Case, play: Play) -> None:
    """Enough of them; each uses what is bound or binds what is used later; no answer in them."""
    for _, draft in drawn(case, 3):
        lines = [ast.parse(line) for line in draft.solution]
        assert len(lines) - 1 >= LINES[case.tier]
        setup = [ast.parse(line) for line in draft.setup]
        known = {name for line in setup for name in names(line, ast.Store)}
        for number, line in enumerate(lines):
            rest = {name for later in lines[number + 1 :] for name in names(later, ast.Load)}
            bound = names(line, ast.Store) - hidden(line)
            assert case.tier == 1 or bound or known & names(line, ast.Load), draft.solution[number]
            # What is left over once squares are split off is shown, and decides what is submitted.
            assert bound <= rest or case.rule == "nested", draft.solution[number]
            known |= names(line, ast.Store)
        is_long = len(draft.answer) > 3  # a small number may also be part of the problem
        assert not (is_long and draft.answer in " ".join(draft.solution))


def names(tree: ast.AST, use: type[ast.expr_context]) -> set[str]:
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, use)}
    return found - set(dir(builtins))


def hidden(tree: ast.AST) -> set[str]:
    """Names that comprehensions bind for themselves."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.comprehension)]
    return {name for loop in loops for name in names(loop.target, ast.Store)}


def mutants_fail(case: Case, play: Play) -> None:
    for problem, draft in drawn(case, 4):
        for mutant in mutants(draft.answer):
            assert not graded(problem, mutant).is_solved, (draft, mutant)


def restatements_fail(case: Case, play: Play) -> None:
    for problem, draft in drawn(case, 4):
        for text in (*RESTATED, f"[{draft.answer}]", f"({draft.answer}, 1)"):
            assert graded(problem, text).kind is not VerdictKind.PROVED, (text, draft)


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
    assert len({problem.id for problem, _ in drawn(case, 8)}) == 8


LAWS = (
    solutions_are_proved,
    lines_are_needed,
    mutants_fail,
    restatements_fail,
    problems_are_seeded_and_differ,
)


def rule_proves(case: Case, play: Play, setup: tuple[str, ...], answer: str) -> bool:
    """Return whether the rule's solution, run on another problem, submits its answer."""
    problem, draft = next(drawn(case, 1))
    submission = play(script(*setup, *draft.solution))
    meta = {"points": "0", **problem.meta, "answer": answer}
    assert submission is not None
    return graded(replace(problem, meta=meta), submission).kind is VerdictKind.PROVED


def is_proved(rule: Rule, problem: Problem, submission: str) -> bool:
    """By the rule itself, for a problem that a test has put together."""
    try:
        return rule.grade(problem, submission).kind is VerdictKind.PROVED
    except Malformed:
        return False
