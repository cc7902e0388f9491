"""The labelled pairs of the benchmark: nothing wrong is accepted, nothing right is rejected."""

import asyncio
from pathlib import Path

import pytest

from repl_rl.grading.grader import Grader
from repl_rl.records import Verdict, VerdictKind

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
UNDECIDED = {"1 - 2*Mod(n, 2)", "(1 - (-1)**n)/2", "sin(pi*n/2)**2", "x*sign(x)"}
"""Right answers that may have no verdict: a step on one side alone may hide another."""
REJECTED = (VerdictKind.WRONG, VerdictKind.REFUTED, VerdictKind.MALFORMED)


def test_every_pair_gets_the_verdict_of_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from grader_pairs import Pair, pairs, problem

    async def grade(pair: Pair, grader: Grader) -> tuple[Pair, Verdict]:
        return pair, await grader.grade("grader_pairs:Pairs", problem(pair), pair.text)

    async def grade_all() -> list[tuple[Pair, Verdict]]:
        async with Grader(num_workers=2, deadline_s=60.0) as grader:
            return list(await asyncio.gather(*(grade(pair, grader) for pair in pairs())))

    judged = asyncio.run(grade_all())
    accepted = [f"{pair}" for pair, verdict in judged if verdict.is_solved and not pair.is_right]
    rejected = [f"{pair}" for pair, verdict in judged if pair.is_right and verdict.kind in REJECTED]
    undecided = {pair.text for pair, verdict in judged if verdict.kind is VerdictKind.UNDECIDED}
    assert (accepted, rejected, undecided - UNDECIDED) == ([], [], set())
    num_right = sum(pair.is_right for pair, _ in judged)
    assert num_right >= 500
    assert len(judged) - num_right >= 600
