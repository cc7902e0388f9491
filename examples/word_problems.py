"""500 word problems of eleven kinds, and how to solve a few: `python word_problems.py`.

    rows.jsonl   a problem and its answer, one pair a row
    shown.repl   the lines that solve five problems of each kind, for `repl-rl warmstart --from`

They stand for problems of your own.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

NUM_PROBLEMS, NUM_SHOWN = 500, 55
NAMES = ("Ana", "Ben", "Carla", "Dario", "Eva", "Finn")
Kind = tuple[str, str, str, Callable[[int, int, int], int]]
KINDS: tuple[Kind, ...] = (
    ("{name} has {a} marbles, buys {b} more and loses {c}. How many marbles does {name} have?",
     "have = {a} + {b}", "have - {c}", lambda a, b, c: a + b - c),
    ("{a} crates hold {b} boxes each, and a box holds {c} eggs. How many eggs are there?",
     "boxes = {a} * {b}", "boxes * {c}", lambda a, b, c: a * b * c),
    ("{name} buys {b} pens at {c} coins each and pays with {a}00 coins. How many come back?",
     "cost = {b} * {c}", "{a}00 - cost", lambda a, b, c: 100 * a - b * c),
    ("{name} shares {ab} nuts evenly among {b} bowls and adds {c} to one. How many are in it?",
     "each = {ab} // {b}", "each + {c}", lambda a, b, c: a + c),
    ("{name} is {b} years old, and an aunt is {c} times as old. How old is she in {a} years?",
     "aunt = {b} * {c}", "aunt + {a}", lambda a, b, c: b * c + a),
    ("A bus drives {a} km an hour for {c} hours, and then {b} km more. How far does it drive?",
     "first = {a} * {c}", "first + {b}", lambda a, b, c: a * c + b),
    ("A field is {a} m long and {b} m wide. How many metres of wire go around it {c} times?",
     "once = 2 * ({a} + {b})", "once * {c}", lambda a, b, c: 2 * (a + b) * c),
    ("A wall is {a} m by {b} m, with a gate of {c} square metres. How large is the rest?",
     "wall = {a} * {b}", "wall - {c}", lambda a, b, c: a * b - c),
    ("{name} sells {a} cups on each of {b} days, and {c} fewer on the last. How many in all?",
     "before = {a} * ({b} - 1)", "before + {a} - {c}", lambda a, b, c: a * b - c),
    ("{a}00 people come, and {c} percent of them are children. How many are not?",
     "children = {a} * {c}", "{a}00 - children", lambda a, b, c: 100 * a - a * c),
    ("{name} reads {b} pages a day in a book of {a}0 pages. How many are left after {c} days?",
     "read = {b} * {c}", "{a}0 - read", lambda a, b, c: 10 * a - b * c),
)  # fmt: skip
"""What is asked, the first line, what is submitted, and the answer from the three numbers."""


def draw(rng: random.Random) -> Iterator[tuple[str, tuple[str, str, int]]]:
    """Problems without end, one kind after another, each with two lines and its answer."""
    while True:
        for problem, line, submitted, answer in KINDS:
            a, b, c = rng.randint(20, 60), rng.randint(11, 19), rng.randint(2, 9)
            words = {"a": a, "b": b, "c": c, "ab": a * b, "name": rng.choice(NAMES)}
            shown = line.format(**words), submitted.format(**words), answer(a, b, c)
            yield problem.format(**words), shown


def main() -> None:
    drawn = dict[str, tuple[str, str, int]]()
    for problem, shown in draw(random.Random(0)):
        drawn[problem] = shown
        if len(drawn) == NUM_PROBLEMS:
            break
    rows = (json.dumps({"problem": p, "answer": str(shown[2])}) for p, shown in drawn.items())
    Path("rows.jsonl").write_text("".join(row + "\n" for row in rows))
    by_hand = [
        f"=== problem {number}\nstatement: {problem}\n\n"
        f">>> {line}\n>>> submit_final_answer({submitted})\n"
        for number, (problem, (line, submitted, _)) in enumerate(drawn.items(), 1)
    ]
    Path("shown.repl").write_text("\n".join(by_hand[:NUM_SHOWN]))


if __name__ == "__main__":
    main()
