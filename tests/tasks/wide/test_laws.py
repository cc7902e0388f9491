"""The laws of each rule of several lines, and of the rules of one call that came with them."""

from __future__ import annotations

from typing import Any, cast

import pytest

import rule_kit as kit
from repl_rl.tasks.sympy_proofs.families import FAMILIES
from repl_rl.tasks.sympy_proofs.task import SHORT

CASES = [
    case
    for family in FAMILIES.values()
    for case in kit.cases(family.name, tuple(family.rules))
    if family.name not in SHORT.families or case.tier > 1
]


@pytest.fixture
def play(interpreter: Any) -> kit.Play:
    return lambda script: cast(str | None, interpreter.play(script).submission)


@pytest.mark.parametrize("law", kit.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_laws_hold_for_each_rule(case: kit.Case, law: kit.Law, play: kit.Play) -> None:
    if law is not kit.mutants_fail or case.rule not in kit.WITNESSED:
        law(case, play)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_each_tier_has_a_rule_to_train_on_and_each_family_one_to_measure(family: Any) -> None:
    rules = family.rules.values()
    trained = {tier for rule in rules if not rule.is_held_out for tier in rule.tiers}
    assert trained == ({3, 4, 5} if family.name == "composite" else {1, 2, 3, 4, 5})
    assert any(rule.is_held_out for rule in rules)
