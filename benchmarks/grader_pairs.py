"""Labelled pairs of answers, and a task that grades them: `benchmarks/grader_pairs.jsonl`.

A row is one answer, with what its symbols are, texts that are equal to it and texts that are not.
Labels follow from mathematics: identities with a known proof, or a difference that is known. By
convention a float, an infinity among finite terms, a list where one value is asked for and a
restated question are not equal.

Knows no judge.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repl_rl.grading.equality import compare
from repl_rl.grading.parse import Malformed, declared, parse
from repl_rl.records import Problem, Verdict, VerdictKind

FILE = Path(__file__).with_suffix(".jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    kind: str
    symbols: str
    answer: str
    text: str
    is_right: bool

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} for {self.answer} ({self.symbols or 'no symbols'})"


def pairs() -> Iterator[Pair]:
    """All of them, in the order of the file."""
    for line in FILE.read_text().splitlines():
        row = json.loads(line)
        shared = {name: row[name] for name in ("kind", "symbols", "answer")}
        for side in ("right", "wrong"):
            for text in row[side]:
                yield Pair(**shared, text=text, is_right=side == "right")


def problem(pair: Pair) -> Problem:
    meta = {"answer": pair.answer, "symbols": pair.symbols, "points": "drawn once"}
    return Problem(id=pair.answer[:40], statement=pair.answer, meta=meta)


class Pairs:
    """The task: a text against the answer of its row."""

    def grade(self, problem: Problem, submission: str) -> Verdict:
        symbols = declared(problem.meta["symbols"])
        expected = parse(problem.meta["answer"], symbols=symbols)
        try:
            got = parse(submission, symbols=symbols)
        except Malformed as error:
            return Verdict(kind=VerdictKind.MALFORMED, evidence=str(error))
        return compare(got, expected, seed=problem.meta["points"])

    def reference(self, problem: Problem) -> str:
        return problem.meta["answer"]
