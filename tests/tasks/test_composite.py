"""Laws of chains: each link is what its lines find, and each claim is graded by itself."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator

import pytest
import sympy

from repl_rl.rollout.env import open_env
from repl_rl.tasks.base import Cell
from repl_rl.tasks.sympy_proofs import SympyProofs
from repl_rl.tasks.sympy_proofs.wide.composite import _braid, _chain, _tree
from repl_rl.tasks.sympy_proofs.wide.links import LINKS, Given
from repl_rl.types import Problem, Scored, Split, VerdictKind

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
    assert LINKS[kind](Drawn(*numbers), "b", Given("a", given)).value == value


@pytest.mark.parametrize("kind", LINKS)
def test_the_lines_of_a_link_find_its_value(kind: str) -> None:
    for seed in range(5):
        rng = random.Random(seed)
        given = Given("a", rng.randint(-50, 400))
        link = LINKS[kind](rng, "b", given)
        names = {**vars(sympy), "a": given.value}
        exec("x, n, k = symbols('x n k')", names)
        for line in link.lines:
            exec(line, names)
        assert names["b"] == link.value, link


def test_shapes_of_chains() -> None:
    assert _chain(3) == [(), (0,), (1,), (2,)]
    assert _tree(5) == [(), (), (0, 1), (), (2, 3), (4,)]
    assert _braid(3) == [(), (0,), (0, 1), (1, 2)]


def composite(tier: int, seed: int = 0) -> Problem:
    return TASK.problem(Cell(family="composite", tier=tier), Split.TRAIN, seed=seed)


def test_a_link_is_never_a_lemma_that_nothing_uses() -> None:
    """All but the answer are used, so each can pay."""
    for tier, seed in itertools.product((3, 4, 5), range(10)):
        problem = composite(tier, seed)
        names = [lemma.name for lemma in problem.lemmas]
        used = {name for lemma in problem.lemmas for name in lemma.uses}
        unused = [name for name in names if name not in used]
        assert all(f"{name}" in problem.statement.split("Find the")[1] for name in unused)


def played(problem: Problem, lines: list[str]) -> Scored:
    async def play() -> Scored:
        async with open_env(overrides=["sandbox.standby=1"]) as env:
            episode = await env.episode(problem)
            for line in lines:
                await episode.line(line)
            return await episode.score()

    return asyncio.run(play())


@pytest.mark.kernel
def test_the_scripted_solution_proves_all_lemmas_and_the_answer() -> None:
    problem = composite(4)
    scored = played(problem, problem.meta["solution"].split("\n"))
    assert scored.verdict is not None
    assert scored.verdict.kind is VerdictKind.PROVED
    assert [lemma.pays for lemma in scored.verdict.lemmas] == [True] * 3
    assert scored.reward.total == pytest.approx(1.3)


@pytest.mark.kernel
def test_a_lemma_pays_by_what_uses_it_though_the_answer_is_wrong() -> None:
    """Of two lemmas the first is used by the second, and the second by nothing that is right."""
    problem = composite(3)
    lines = [*problem.meta["solution"].split("\n")[:-1], "submit_final_answer(-1)"]
    scored = played(problem, lines)
    assert scored.verdict is not None
    assert [lemma.pays for lemma in scored.verdict.lemmas] == [True, False]
    assert sum(scored.reward.line_rewards) == pytest.approx(0.15)
    assert scored.reward.outcome_reward == pytest.approx(-0.03 / 0.97)


@pytest.mark.kernel
def test_the_statement_is_no_claim() -> None:
    """What is asked for, typed again, is malformed, and costs a share like any wrong claim."""
    problem = composite(3)
    name = problem.lemmas[0].name
    scored = played(problem, [f"have('{name}', Symbol('{name}'))", "submit_final_answer(0)"])
    assert scored.verdict is not None
    assert scored.verdict.lemmas[0].kind is VerdictKind.MALFORMED
    assert scored.reward.line_rewards[0] == pytest.approx(-0.15)
