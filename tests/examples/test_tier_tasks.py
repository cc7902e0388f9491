"""`benchmarks/tier_tasks.py`: the packaged task, measured on the rules that it trains on."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from repl_rl.config.sections import TaskConfig
from repl_rl.records import Split
from repl_rl.tasks.base import choose, load_task
from repl_rl.tasks.sympy_proofs.family import FAMILIES

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIER = 3


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return choose(load_task("tier_tasks:TrainedRules")[0], TaskConfig(tiers=(TIER,)))


def test_only_rules_that_make_training_problems_are_measured_and_families_take_turns(
    chosen: Any,
) -> None:
    packaged = choose(load_task("sympy-proofs")[0], TaskConfig(tiers=(TIER,)))
    measured = list(itertools.islice(chosen.problems(Split.HELD_OUT, seed=0), 16))
    apart = {
        kind
        for family in FAMILIES.values()
        for kind, rule in family.rules_at(TIER).items()
        if rule.is_held_out
    }
    usual = list(itertools.islice(packaged.problems(Split.HELD_OUT, seed=0), 16))
    assert any(one.meta["kind"] in apart for one in usual)
    assert not any(one.meta["kind"] in apart for one in measured)
    families = [one.meta["family"] for one in measured]
    assert families == list(chosen.choice.families) * 4
    trained = list(itertools.islice(chosen.problems(Split.TRAIN, seed=0), 16))
    assert trained == list(itertools.islice(packaged.problems(Split.TRAIN, seed=0), 16))
    assert not {one.id for one in trained} & {one.id for one in measured}


def test_frozen_families_are_measured_to_the_end_of_each(chosen: Any) -> None:
    frozen = choose(chosen, TaskConfig(tiers=(TIER,), frozen=True))
    packaged = choose(load_task("sympy-proofs")[0], TaskConfig(tiers=(TIER,), frozen=True))
    usual = {one.id: one for one in packaged.problems(Split.HELD_OUT, seed=0)}
    found = {one.id for one in frozen.problems(Split.HELD_OUT, seed=0)}
    is_trained = importlib.import_module("tier_tasks").is_trained
    assert found == {name for name, one in usual.items() if is_trained(one)}


def test_graders_find_it_by_its_name(chosen: Any) -> None:
    found = importlib.import_module("tier_tasks").TrainedRules
    assert chosen.name == "tier_tasks:TrainedRules"
    assert type(chosen) is found
