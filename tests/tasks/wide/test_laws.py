"""The laws of each rule of several lines, and of the rules of one call that came with them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any, cast

import pytest

import rule_kit as kit
from repl_rl.tasks.sympy_proofs import SHORT
from repl_rl.tasks.sympy_proofs.family import FAMILIES

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_a_module_holds_rules_of_the_tiers_that_stand_beside_its_name(family: Any) -> None:
    for module, tiers in family.modules.items():
        rules = replace(family, modules={module: tiers}).rules.values()
        assert {tier for rule in rules for tier in rule.tiers} == set(tiers)
    at_5 = {name for name, rule in family.rules.items() if 5 in rule.tiers}
    assert set(family.rules_at(5)) == at_5


def test_problems_of_tier_1_load_no_rules_of_several_lines() -> None:
    code = (
        "import sys; from repl_rl import Split, load_task;"
        "task, _ = load_task('sympy-proofs'); problems = task.problems(Split.TRAIN, seed=0);"
        "drawn = [next(problems) for _ in range(8)];"
        "print(*(task.grade(one, '1').kind for one in drawn));"
        "print([name for name in sys.modules if '.wide.' in name])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[1] == "[]"
