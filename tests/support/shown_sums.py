"""Twenty problems that a pretrained model solves in part, as its prompt shows how to answer two.

{"task": "shown_sums:ShownSums"}
"""

from __future__ import annotations

from collections.abc import Iterator

from repl_rl.records import Problem, Split, Verdict, VerdictKind

SUMS = {f"What is {one} + {other}?": one + other for one in (2, 6) for other in (5, 7, 8, 9, 11)}
# The line that copies their shape is wrong.
OTHERS = {f"What is {one} less than {one + left}?": left for one in (3, 6) for left in range(5, 10)}


class ShownSums:
    name = "shown-sums"
    # The first line lets a kernel run those that are shown; the true function comes after them.
    prompt = """\
submit_final_answer = print
# What is 1 + 3?
submit_final_answer(1 + 3)
# What is 4 + 2?
submit_final_answer(4 + 2)
{{problem}}
"""

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        for asked, value in {**SUMS, **OTHERS}.items():
            yield Problem(id=asked, statement=asked, meta={"value": str(value)})

    def grade(self, problem: Problem, submission: str) -> Verdict:
        is_right = submission == problem.meta["value"]
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)
