"""What a grader's words make of claims: which lemma is used, and what is asked of the grader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import shaped
from repl_rl.rollout.scoring import Scorer, judged_lemmas
from repl_rl.types import (
    Claim,
    JudgedLemma,
    Lemma,
    OutcomeKind,
    Problem,
    Scored,
    Trajectory,
    Verdict,
    VerdictKind,
)

PROVED, WRONG = VerdictKind.PROVED, VerdictKind.WRONG
CHAIN = (Lemma(name="a"), Lemma(name="b", uses=("a",)), Lemma(name="c", uses=("b",)))


def used(
    *claimed: tuple[str, VerdictKind], lemmas: tuple[Lemma, ...] = CHAIN, is_solved: bool = False
) -> list[str]:
    """Names of the claims that something uses, of claims in this order."""
    judged = [
        JudgedLemma(name=name, line=line, kind=kind) for line, (name, kind) in enumerate(claimed)
    ]
    return [one.name for one in judged_lemmas(judged, lemmas, is_solved=is_solved) if one.is_used]


def test_a_chain_is_used_up_to_the_last_lemma_and_that_by_the_answer() -> None:
    claims = ("a", PROVED), ("b", PROVED), ("c", PROVED)
    assert used(*claims) == ["a", "b"]
    assert used(*claims, is_solved=True) == ["a", "b", "c"]


def test_a_lemma_is_used_by_what_comes_after_it_and_is_proved() -> None:
    assert used(("b", PROVED), ("a", PROVED)) == []
    assert used(("a", PROVED), ("b", WRONG)) == []
    assert used(("a", PROVED), ("b", VerdictKind.SUPPORTED)) == []
    assert used(("a", PROVED), ("c", PROVED)) == []


def test_an_inner_lemma_is_not_used_by_the_answer_itself() -> None:
    """Whoever answers without `b` did not need `a` for it."""
    assert used(("a", PROVED), is_solved=True) == []
    assert used(("c", PROVED), is_solved=True) == ["c"]


def test_two_lemmas_may_be_used_by_one_and_one_by_two() -> None:
    lemmas = (Lemma(name="a"), Lemma(name="b"), Lemma(name="c", uses=("a", "b")))
    assert used(("a", PROVED), ("b", PROVED), ("c", PROVED), lemmas=lemmas) == ["a", "b"]
    lemmas = (Lemma(name="a"), Lemma(name="b", uses=("a",)), Lemma(name="c", uses=("a",)))
    assert used(("a", PROVED), ("c", PROVED), lemmas=lemmas) == ["a"]


def test_a_lemma_never_uses_itself_and_a_ring_pays_each_only_what_comes_later() -> None:
    assert used(("a", PROVED), lemmas=(Lemma(name="a", uses=("a",)),), is_solved=True) == []
    ring = (Lemma(name="a", uses=("b",)), Lemma(name="b", uses=("a",)))
    assert used(("a", PROVED), ("b", PROVED), lemmas=ring, is_solved=True) == ["a"]


# The grader


@dataclass
class Judge:
    """Proves what stands in `meta`; remembers what it was asked."""

    asked: list[tuple[Problem, str]] = field(default_factory=list)

    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        self.asked.append((problem, submission))
        return Verdict(kind=PROVED if submission == problem.meta["answer"] else WRONG)


@pytest.fixture
def claimed(make_trajectory: Callable[..., Trajectory]) -> Callable[..., Trajectory]:
    """A trajectory with these claims, a line each, and a submission behind them."""

    def make(*claims: tuple[str, str], submission: str | None = "9") -> Trajectory:
        kinds = [*[OutcomeKind.CLAIMED] * len(claims), OutcomeKind.SUBMITTED]
        trajectory = make_trajectory([("x\n", kind, None) for kind in kinds])
        found = tuple(Claim(line=i, name=n, value=v) for i, (n, v) in enumerate(claims))
        return replace(trajectory, submission=submission, claims=found)

    return make


PROBLEM = Problem(
    id="p",
    statement="s",
    meta={"answer": "9"},
    lemmas=(
        Lemma(name="a", meta={"answer": "3"}),
        Lemma(name="b", uses=("a",), meta={"answer": "4"}),
    ),
    chance=0.25,
)


def score(trajectory: Trajectory, judge: Judge) -> Scored:
    reward = partial(shaped, config=RewardConfig())
    scorer = Scorer(task_spec="t", judge=judge, reward=reward)
    return asyncio.run(scorer.score(trajectory, PROBLEM))


def test_a_claim_is_graded_by_what_its_own_lemma_knows(
    claimed: Callable[..., Trajectory],
) -> None:
    judge = Judge()
    scored = score(claimed(("a", "3"), ("b", "5")), judge)
    assert [(problem.id, problem.meta["answer"], text) for problem, text in judge.asked] == [
        ("p", "9", "9"),
        ("p/a", "3", "3"),
        ("p/b", "4", "5"),
    ]
    assert scored.verdict is not None
    assert scored.verdict.chance == 0.25
    assert scored.verdict.lemmas == (
        JudgedLemma(name="a", line=0, kind=PROVED),
        JudgedLemma(name="b", line=1, kind=WRONG, is_used=True),
    )
    assert scored.reward.line_rewards == pytest.approx((0.0, -0.15, 0.0))


def test_without_a_submission_the_grader_is_asked_nothing(
    claimed: Callable[..., Trajectory],
) -> None:
    judge = Judge()
    scored = score(claimed(("a", "3"), submission=None), judge)
    assert (judge.asked, scored.verdict) == ([], None)
    assert scored.reward.line_rewards == (0.0, 0.0)


def test_every_lemma_has_its_row_claimed_ones_first() -> None:
    claimed = JudgedLemma(name="b", line=0, kind=PROVED)
    assert judged_lemmas([claimed], PROBLEM.lemmas, is_solved=True) == (
        replace(claimed, is_used=True),
        JudgedLemma(name="a"),
    )


def test_claims_of_no_lemma_and_second_ones_are_not_graded(
    claimed: Callable[..., Trajectory],
) -> None:
    """No session takes them, but a trajectory may come from anywhere."""
    judge = Judge()
    scored = score(claimed(("z", "9"), ("b", "5"), ("b", "4")), judge)
    assert [text for _, text in judge.asked] == ["9", "5"]
    assert scored.reward.line_rewards == pytest.approx((0.0, -0.15, 0.0, 0.0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"chance": 1.0}, "problem p has the chance 1.0; expected 0 to 0.9"),
        ({"chance": -0.1}, "problem p has the chance -0.1; expected 0 to 0.9"),
        ({"chance": float("nan")}, "problem p has the chance nan; expected 0 to 0.9"),
        ({"lemmas": (Lemma(name="a"), Lemma(name="a"))}, "problem p has two lemmas of one name"),
        (
            {"lemmas": tuple(Lemma(name=str(i)) for i in range(1000))},
            "problem p has 1,000 lemmas; expected at most 64",
        ),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(id="p", statement="s", **fields)
