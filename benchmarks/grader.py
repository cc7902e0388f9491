"""Measure the grader: `python benchmarks/grader.py [--deadline 5]`, in a few minutes.

Judges all pairs of `grader_pairs.jsonl` by ours, by sympy's `simplify(a - b) == 0`, and by
math-verify where that package is installed. Each judge sits in a process that is killed at the
deadline. What has no verdict (undecided, an error, too late) is neither right nor wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from grader_pairs import Pair, pairs, problem

from repl_rl.grading.grader import Grader
from repl_rl.records import VerdictKind

START_S = 60.0
HEAD = (
    f"{'judge':14}{'pairs':>6}{'precision':>10}{'recall':>8}{'wrong called right':>20}"
    f"{'right called wrong':>20}{'undecided':>11}{'late':>6}{'ms p50':>8}{'p90':>8}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    pair: Pair
    is_accepted: bool | None
    """None: no verdict."""
    ms: float
    is_late: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds for each verdict")
    parser.add_argument("--show", action="store_true", help="name each pair that came out wrong")
    args = parser.parse_args()
    print(HEAD)
    for name, judge in judges(args.deadline):
        judged = judge()
        print(row(name, judged), flush=True)
        for each in judged if args.show else ():
            if each.is_accepted is not each.pair.is_right:
                said = {True: "accepted", False: "rejected", None: "no verdict"}[each.is_accepted]
                print(f"    {said}  {each.pair}")


def judges(deadline_s: float) -> Iterator[tuple[str, Callable[[], list[Judged]]]]:
    yield "repl-rl", lambda: asyncio.run(by_ours(deadline_s))
    yield "simplify", lambda: by_function(simplified, deadline_s)
    if importlib.util.find_spec("math_verify"):
        yield "math-verify", lambda: by_function(math_verified, deadline_s)


class Score(NamedTuple):
    """Score of a judge."""

    pairs: int
    precision: float
    recall: float
    wrong_called_right: int
    right_called_wrong: int
    undecided: int
    late: int
    ms_p50: float
    ms_p90: float


def score(judged: list[Judged]) -> Score:
    accepted = [each.pair.is_right for each in judged if each.is_accepted]
    right = [each for each in judged if each.pair.is_right]
    ms = statistics.quantiles((each.ms for each in judged), n=10)
    return Score(
        pairs=len(judged),
        precision=sum(accepted) / len(accepted),
        recall=sum(each.is_accepted is True for each in right) / len(right),
        wrong_called_right=len(accepted) - sum(accepted),
        right_called_wrong=sum(each.is_accepted is False for each in right),
        undecided=sum(each.is_accepted is None and not each.is_late for each in judged),
        late=sum(each.is_late for each in judged),
        ms_p50=ms[4],
        ms_p90=ms[8],
    )


def row(name: str, judged: list[Judged]) -> str:
    found = score(judged)
    return (
        f"{name:14}{found.pairs:6}{found.precision:10.1%}{found.recall:8.1%}"
        f"{found.wrong_called_right:20}{found.right_called_wrong:20}{found.undecided:11}"
        f"{found.late:6}{found.ms_p50:8.1f}{found.ms_p90:8.1f}"
    )


async def by_ours(deadline_s: float) -> list[Judged]:
    sys.path.insert(0, str(Path(__file__).parent))  # the grader's process gets the same list
    judged = []
    async with Grader(deadline_s=deadline_s) as grader:
        for pair in pairs():
            verdict = await grader.grade("grader_pairs:Pairs", problem(pair), pair.text)
            is_undecided = verdict.kind is VerdictKind.UNDECIDED
            is_late = "deadline" in f"{verdict.grader_error} {verdict.evidence}"
            is_accepted = None if is_undecided else verdict.is_solved
            judged.append(
                Judged(pair=pair, is_accepted=is_accepted, ms=verdict.ms, is_late=is_late)
            )
    return judged


def by_function(
    judge: Callable[[Pair], bool], deadline_s: float, asked: Iterable[Pair] | None = None
) -> list[Judged]:
    """In a child that is killed at the deadline and started again."""
    judged = []
    child, pipe = started(judge)
    for pair in pairs() if asked is None else asked:
        before = time.monotonic()
        pipe.send(pair)
        is_late = not pipe.poll(deadline_s)
        ms = (time.monotonic() - before) * 1e3
        is_accepted = None
        try:
            is_accepted = None if is_late else pipe.recv()
        except EOFError:
            is_late = True
        if is_late:
            child.kill()
            child.join()
            child, pipe = started(judge)
        judged.append(Judged(pair=pair, is_accepted=is_accepted, ms=ms, is_late=is_late))
    child.kill()
    return judged


def started(judge: Callable[[Pair], bool]) -> tuple[Any, Connection]:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=serve, args=(judge, theirs))
    child.start()
    theirs.close()
    assert ours.poll(START_S), "a child says when it is ready"
    ours.recv()
    return child, ours


def serve(judge: Callable[[Pair], bool], pipe: Connection) -> None:
    judge(Pair(kind="", symbols="x:real", answer="x", text="x", is_right=True))  # imports
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 what a judge says of a text is not measured
    pipe.send(None)
    while True:
        pair = pipe.recv()
        try:
            pipe.send(judge(pair))
        except Exception:  # noqa: BLE001 a judge may raise anything: no verdict
            pipe.send(None)


def simplified(pair: Pair) -> bool:
    """What most do: evaluate both, and look whether the difference is 0."""
    import sympy

    from repl_rl.grading.parse import declared

    symbols = declared(pair.symbols)
    got, expected = (sympy.sympify(text, locals=symbols) for text in (pair.text, pair.answer))
    return bool(got == expected) or bool(sympy.simplify(got - expected) == 0)


def math_verified(pair: Pair) -> bool:
    """math-verify reads LaTeX; sympy makes it of each text."""
    import sympy
    from math_verify import parse, verify

    from repl_rl.grading.parse import declared

    symbols = declared(pair.symbols)
    got, expected = (
        parse(f"${sympy.latex(sympy.sympify(text, locals=symbols))}$", parsing_timeout=None)
        for text in (pair.text, pair.answer)
    )
    return bool(verify(expected, got, timeout_seconds=None))


if __name__ == "__main__":
    main()
