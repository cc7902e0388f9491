"""Measure the reader of LaTeX: `python benchmarks/latex_golds.py [--show]`, in a minute or two.

Judges the pairs of `latex_golds.jsonl` by ours and by math-verify. A row is one known answer, with
submissions that are equal to it and some that are not, as a kernel would hand them over. A row of
neither is a text without one value; whoever reads it as something has read too much.
math-verify takes LaTeX, so sympy makes it of each submission.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader import HEAD, Judged, by_function, row
from grader_pairs import Pair

from repl_rl.records import Problem
from repl_rl.tasks.data.golds import Gold, Refused, meanings, names_in, plain
from repl_rl.tasks.data.graders import ByName

FILE = Path(__file__).with_suffix(".jsonl")
DEADLINE_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="name each pair that came out wrong")
    args = parser.parse_args()
    print(HEAD)
    for name, judged, num_read, num_senseless in readings():
        print(row(name, judged))
        print(
            f"{'':14}reads {num_read} of {num_senseless} texts that have no one value", flush=True
        )
        show(judged if args.show else [])


def readings() -> Iterator[tuple[str, list[Judged], int, int]]:
    """(name, pairs as judged, texts without one value that are read as one, all of these)."""
    rows = [json.loads(line) for line in FILE.read_text().splitlines()]
    asked = [
        Pair(kind="", symbols="", answer=one["gold"], text="", is_right=False)
        for one in rows
        if not one["right"]
    ]
    for name, judge, reader in (
        ("repl-rl", by_ours, read_by_ours),
        ("math-verify", by_math_verify, read_by_math_verify),
    ):
        judged = by_function(judge, DEADLINE_S, pairs(rows))
        num_read = sum(each.is_accepted is True for each in by_function(reader, DEADLINE_S, asked))
        yield name, judged, num_read, len(asked)


def pairs(rows: list[dict[str, Any]]) -> Iterator[Pair]:
    for one in rows:
        for side in ("right", "wrong"):
            for text in one[side]:
                gold, is_right = one["gold"], side == "right"
                yield Pair(kind=one["kind"], symbols="", answer=gold, text=text, is_right=is_right)


def show(judged: list[Judged]) -> None:
    for each in judged:
        if each.is_accepted is not each.pair.is_right:
            print(f"    {each.is_accepted}  {each.pair}")


def gold_of(answer: str) -> Gold | Refused:
    """Return a gold as reading a file makes it, in this process."""
    if (found := plain(answer, "auto")) is not None:
        return found
    texts = meanings(answer)
    names = sorted({name for text in texts for name in names_in(text)})
    return Gold("math", "\n".join(texts), " ".join(names))


def by_ours(pair: Pair) -> bool:
    gold = gold_of(pair.answer)
    if isinstance(gold, Refused):
        return False
    meta = {"grader": gold.grader, "answer": pair.answer, "value": gold.value, "points": "drawn"}
    problem = Problem(id="", statement="", meta={**meta, "symbols": gold.symbols})
    return ByName().grade(problem, pair.text).is_solved


def read_by_ours(pair: Pair) -> bool:
    return isinstance(gold_of(pair.answer), Gold)


def by_math_verify(pair: Pair) -> bool:
    import sympy
    from math_verify import parse, verify

    gold = parse(f"${pair.answer}$", parsing_timeout=None)
    try:
        spelled = f"${sympy.latex(sympy.sympify(pair.text))}$"
    except (sympy.SympifyError, SyntaxError, TypeError, AttributeError):
        spelled = pair.text
    return bool(verify(gold, parse(spelled, parsing_timeout=None), timeout_seconds=None))


def read_by_math_verify(pair: Pair) -> bool:
    from math_verify import parse

    return bool(parse(f"${pair.answer}$", parsing_timeout=None))


if __name__ == "__main__":
    main()
