"""What every rule of a family of several lines must obey, on a few of its problems.

Knows no family. Scripts are played by an interpreter that the caller brings.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from repl_rl.tasks.base import Script
from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.family import LINES, Rule
from repl_rl.types import Problem, Verdict, VerdictKind

Play = Callable[[Script], Any]
"""Runs a script in-process; what comes back has the submission."""


def drafts(rule: Rule, tier: int, count: int) -> list[Draft]:
    rng = random.Random(f"laws/{tier}")
    return [rule.draft(rng, tier) for _ in range(count)]


def graded(rule: Rule, name: str, draft: Draft, submission: str) -> Verdict:
    meta = {**draft.facts, "kind": name, "answer": draft.answer, "points": "secret"}
    return rule.grade(Problem(id="p", statement=draft.question, meta=meta), submission)


def check_solution(play: Play, rule: Rule, name: str, draft: Draft) -> None:
    """Played from the setup alone it is proved."""
    submission = play(lines(draft)).submission
    assert submission is not None, draft
    verdict = graded(rule, name, draft, submission)
    assert verdict.kind is VerdictKind.PROVED, (draft, submission, verdict)


def by_hand(
    rule: Rule, setup: tuple[str, ...], answer: str, facts: Mapping[str, str] | None = None
) -> Draft:
    """A problem whose answer somebody worked out, with the solution of a drawn one."""
    solution = drafts(rule, rule.tiers[-1], 1)[0].solution
    return Draft(
        question="", form="", answer=answer, setup=setup, facts=facts or {}, solution=solution
    )


def lines(draft: Draft) -> Script:
    """The setup and the solution, one after the other."""
    # A tuple cannot be sent what a line printed, so no `yield from`.
    for line in (*draft.setup, *draft.solution):  # noqa: UP028
        yield line


def check_lines(draft: Draft, tier: int) -> None:
    """As many as the tier says, each of which uses what an earlier one has bound."""
    *working, last = draft.solution
    assert len(working) >= LINES[tier]
    assert draft.answer not in "\n".join(working)
    assert last.startswith("submit_final_answer(")
    bound: set[str] = set()
    for line in draft.solution:
        statement = ast.parse(line).body[0]
        assert not bound or bound & _names(statement, ast.Load), line
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            bound |= _names(target, ast.Store)


def _names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, context)}


def check_mutants(rule: Rule, name: str, draft: Draft) -> None:
    for mutant in mutants(draft.answer):
        verdict = graded(rule, name, draft, mutant) if is_read(rule, name, draft, mutant) else None
        assert verdict is None or not verdict.is_solved, (draft, mutant, verdict)


def is_read(rule: Rule, name: str, draft: Draft, text: str) -> bool:
    """Whether the parser takes it at all."""
    try:
        graded(rule, name, draft, text)
    except ValueError:
        return False
    return True


def mutants(answer: str) -> Iterator[str]:
    """Wrong in one entry, in their order, in their number or in their kind."""
    yield from ("nan", "oo", "[]", "True", "0.0", "Integral(x, x)", "Limit(x, x, 0)")
    tree = ast.parse(answer, mode="eval").body
    if not isinstance(tree, ast.Tuple):
        yield from (f"({answer}) + 1", f"-({answer})", f"({answer})*1.0", f"[{answer}]")
        return
    entries = [ast.unparse(entry) for entry in tree.elts]
    for i, entry in enumerate(entries):
        for wrong in (f"{entry} + 1", f"({entry})*1.0", f"({entry})*(1 + 1/10**9) + 1/10**9"):
            yield f"({', '.join([*entries[:i], wrong, *entries[i + 1 :]])})"
        yield f"({', '.join([*entries[:i], *entries[i + 1 :], ''])})"
    if entries[0] != entries[-1]:
        yield f"({', '.join(reversed(entries))})"
