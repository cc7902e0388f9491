"""Laws of the choice of problems: what a config asks for is drawn, and nothing else."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from repl_rl.config.sections import TaskConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, Split
from repl_rl.tasks.base import choose, load_task
from repl_rl.tasks.sympy_proofs import SHORT, SympyProofs, known
from rule_kit import digest_of

pytestmark = pytest.mark.slow


def drawn(config: TaskConfig, split: Split = Split.TRAIN, count: int = 60) -> list[Problem]:
    task = choose(SympyProofs(), config)
    return list(itertools.islice(task.problems(split, seed=0), count))


def cells(problems: list[Problem]) -> set[str]:
    return {f"{one.meta['family']}-{one.meta['tier']}" for one in problems}


def test_a_choice_leaves_the_task_that_it_is_made_of_as_it_was() -> None:
    task = SympyProofs()
    before = list(itertools.islice(task.problems(Split.TRAIN, seed=0), 5))
    chosen = choose(task, TaskConfig(families=("composite",), tiers=(3,)))
    assert cells(list(itertools.islice(chosen.problems(Split.TRAIN, seed=0), 2))) == {"composite-3"}
    assert task.choice == SHORT
    assert list(itertools.islice(task.problems(Split.TRAIN, seed=0), 5)) == before


def test_chosen_families_and_tiers_alone_are_drawn() -> None:
    config = TaskConfig(families=("composite", "modular"), tiers=(1, 3))
    assert cells(drawn(config)) >= {"composite-3", "modular-1"}
    assert cells(drawn(config)) <= {"composite-3", "modular-1", "modular-3"}


def test_all_families_are_those_that_have_a_chosen_tier() -> None:
    """Composites begin with tier 3."""
    problems = drawn(TaskConfig(families=("all",), tiers=(1,)))
    assert len({one.meta["family"] for one in problems}) == 10
    assert "composite" not in {one.meta["family"] for one in problems}


def test_weights_say_how_often() -> None:
    config = TaskConfig(families=("modular", "equation"), weights={"modular": 9.0})
    counts = Counter(one.meta["family"] for one in drawn(config, count=200))
    assert 160 < counts["modular"] < 195


def test_a_held_out_family_is_measured_and_not_trained() -> None:
    config = TaskConfig(families=("modular", "equation"), held_out=("equation",))
    assert {one.meta["family"] for one in drawn(config)} == {"modular"}
    measured = drawn(config, Split.HELD_OUT, count=10)
    assert {one.meta["family"] for one in measured} == {"modular", "equation"}


def test_a_rule_is_held_out_with_all_its_problems() -> None:
    config = TaskConfig(families=("composite",), tiers=(4,))
    assert "braid" not in {one.meta["kind"] for one in drawn(config)}
    assert "braid" in {one.meta["kind"] for one in drawn(config, Split.HELD_OUT)}


def test_the_same_seed_makes_the_same_problem_of_a_cell() -> None:
    task = SympyProofs()
    for cell in task.cells:
        one, same = (task.problem(cell, Split.TRAIN, seed=7) for _ in range(2))
        assert one == same
        assert one != task.problem(cell, Split.HELD_OUT, seed=7)


@pytest.mark.timeout(600)  # a thousand problems of all tiers: half a minute of an idle core
def test_the_frozen_list_is_what_it_was() -> None:
    problems = drawn(
        TaskConfig(families=("all",), tiers=(1, 2, 3, 4, 5), frozen=True), Split.HELD_OUT, 2000
    )
    assert len(problems) == 1000
    assert digest_of(problems) == known().digest


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (TaskConfig(families=("odes",)), "task.families names 'odes'; expected some of"),
        (TaskConfig(weights={"composite": 1.0}), "task.weights names 'composite'"),
        (TaskConfig(weights={"modular": 0.0}), "task.weights.modular = 0; expected more than 0"),
        (TaskConfig(families=("composite",), tiers=(1,)), "it has tiers 3, 4, 5"),
        (TaskConfig(families=("all",), tiers=(9,)), "no family has problems of task.tiers"),
        (
            TaskConfig(families=("modular",), held_out=("modular",)),
            "leaves no family to train on",
        ),
    ],
)
def test_a_choice_that_cannot_be_met_is_refused(config: TaskConfig, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        choose(SympyProofs(), config)


def test_a_task_without_families_takes_no_choice() -> None:
    task, _ = load_task("sympy-proofs")
    plain = type("Plain", (), {"name": "plain", "prompt": "", "problems": None, "grade": None})()
    assert task.name == "sympy-proofs"
    with pytest.raises(ConfigError, match="'plain' has no families and tiers"):
        choose(plain, TaskConfig(tiers=(2,)))
