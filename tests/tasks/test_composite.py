"""Laws of chains: each link is what its lines find, and none is there for nothing."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

import pytest
import sympy

from repl_rl.records import Problem, Split
from repl_rl.tasks.base import Cell
from repl_rl.tasks.sympy_proofs import SympyProofs
from repl_rl.tasks.sympy_proofs.wide.composite import LINKS, NUM_LINKS, Given, _braid, _chain, _tree

pytestmark = pytest.mark.slow

TASK = SympyProofs()


class Drawn(random.Random):
    """Gives the numbers that a test names, in their order."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(0)
        self._numbers: Iterator[int] = iter(numbers)

    def randint(self, a: int, b: int) -> int:
        return next(self._numbers)

    def choice(self, seq: object) -> int:  # type: ignore[override]  # a number for each
        return next(self._numbers)


WORKED = {
    # (x - (2*7 + 1))*(x - 9)*(x**2 + 4): 15 and 9.
    ("equation", 7, (2, 1, 9, 4)): 15,
    # 7 % 17 + 2 = 9: the sum of 2*k**2 - 3*k to 9 is 2*285 - 3*45.
    ("sum", 7, (2, -3)): 435,
    # (7 + 3)**6 by 101: 100**3 is -1 cubed.
    ("modular", 7, (3, 6, 101)): 100,
    # 2, 7, 3*7 + 2*2 = 25, 3*25 + 2*7 = 89.
    ("recurrence", 7, (3, 2, 2, 3, 103)): 89,
    # The integral of 6*x**2 + 6*7*x - 7 from 0 to 2 is 16 + 84 - 14.
    ("calculus", 7, (2, 3, 2)): 86,
    # 2*9**2 + 4**2/2.
    ("limit", 7, (2,)): 170,
    # 7*(6 - 4) - 1*(3*3 - 4*5) + 2*(3 - 2*5) of [[7, 1, 2], [3, 2, 4], [5, 1, 3]].
    ("algebra", 7, (1, 2, 3, 4, 5)): 11,
}


@pytest.mark.parametrize(("worked", "value"), WORKED.items(), ids=[key[0] for key in WORKED])
def test_a_link_is_worth_what_its_words_say(
    worked: tuple[str, int, tuple[int, ...]], value: int
) -> None:
    kind, given, numbers = worked
    assert LINKS[kind](Drawn(*numbers), Given("a", given)).value == value


@pytest.mark.parametrize("kind", LINKS)
def test_the_lines_of_a_link_find_its_value(kind: str) -> None:
    for seed in range(5):
        rng = random.Random(seed)
        given = Given("a", rng.randint(-50, 400))
        link = LINKS[kind](rng, given)
        names = {**vars(sympy), "a": given.value}
        exec("x, n, k = symbols('x n k')", names)
        line, expression = link.steps
        exec(line, names)
        assert eval(expression, names) == link.value, link


def test_shapes_of_chains() -> None:
    assert _chain(3) == [(), (0,), (1,), (2,)]
    assert _tree(5) == [(), (), (0, 1), (), (2, 3), (4,)]
    assert _braid(3) == [(), (0,), (0, 1), (1, 2)]


def composite(tier: int, seed: int = 0) -> Problem:
    return TASK.problem(Cell(family="composite", tier=tier), Split.TRAIN, seed=seed)


def test_each_link_is_used_by_a_later_one_or_by_the_answer() -> None:
    for tier, seed in itertools.product((3, 4, 5), range(10)):
        *links, asked, _ = composite(tier, seed).statement.split("\n")
        assert len(links) == NUM_LINKS[tier]
        for number, link in enumerate(links):
            name = link.partition(" is ")[0]
            assert re.search(rf"\b{name}\b", " ".join([*links[number + 1 :], asked]))


def test_a_statement_says_what_each_link_is_and_asks_for_the_answer_alone() -> None:
    first, second, asked, form = composite(3).statement.split("\n")
    assert (first[:5], second[:5]) == ("a is ", "b is ")
    assert (asked[:22], form) == ("Find the remainder of ", "Answer: an integer.")
