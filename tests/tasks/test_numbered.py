"""Laws of problems by number: the same number is the same problem, and a wrong one is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from repl_rl.base.concurrency import derive_seed
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, Split, Verdict
from repl_rl.tasks.base import NumberedProblems


class Countable:
    """Three problems to train on, and held-out ones without end."""

    name = "countable"
    prompt = "{{problem}}"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        numbers = range(3) if split is Split.TRAIN else itertools.count()
        for number in numbers:
            yield Problem(id=f"{split}-{seed}-{number}", statement="?")

    def grade(self, problem: Problem, submission: str) -> Verdict:
        raise NotImplementedError


def test_a_number_is_a_place_in_what_a_run_draws() -> None:
    problems = NumberedProblems(Countable(), seed=5, most=10)
    assert problems.get("train", 2).id == f"train-{derive_seed(5, 'train')}-2"
    assert problems.get("train", 0).id == f"train-{derive_seed(5, 'train')}-0"
    assert problems.get("held_out", 9).id == f"held_out-{derive_seed(5, 'held-out')}-9"


def test_a_split_ends_where_the_task_or_the_limit_does() -> None:
    problems = NumberedProblems(Countable(), seed=0, most=10)
    assert (problems.count("train"), problems.count("held_out")) == (3, 10)
    assert problems.all("train") == [problems.get("train", i) for i in range(3)]


def test_a_split_without_problems_is_refused_as_a_whole() -> None:
    with pytest.raises(ConfigError, match="no problems in the split 'train'"):
        NumberedProblems(Countable(), seed=0, most=0).all("train")


@pytest.mark.parametrize(
    ("split", "index", "message"),
    [
        ("train", 3, "there is no problem 3 in the split 'train', which has 3"),
        ("held_out", 10, "there is no problem 10 in the split 'held_out', which has 10"),
        ("train", -1, "index = -1; expected a whole number from 0 on"),
        ("train", True, "index = True; expected a whole number"),
        ("train", 1.0, "index = 1.0; expected a whole number"),
        ("test", 0, "there is no split 'test'; expected one of train, held_out"),
    ],
)
def test_what_there_is_not_is_refused(split: str, index: int, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        NumberedProblems(Countable(), seed=0, most=10).get(split, index)
    assert message in str(error.value)
