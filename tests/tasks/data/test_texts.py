r"""Laws of texts: what is asked and what is known, without what data sets wrap around them."""

from __future__ import annotations

from typing import Any

import pytest

from repl_rl.tasks.data.texts import answer_of, last_boxed, statement_of

pytestmark = pytest.mark.slow

Q = "What is $2 + 2$?"


@pytest.mark.parametrize(
    "asked",
    [
        Q,
        f"{Q} Please reason step by step, and put your final answer within \\boxed{{}}.",
        f"{Q}\nPut your answer in \\boxed{{}}.",
        f"{Q}\n\nLet's think step by step and output the final answer within \\boxed{{}}.",
        f"Solve the following math problem. Make sure to put the answer (and only answer) inside "
        f"\\boxed{{}}.\n\n{Q}",
        f'{Q} Let\'s think step by step and output the final answer after "####".',
        f"{Q} Present the answer in LaTeX format: \\boxed{{Your answer}}",
        "Solve the following math problem step by step. The last line of your response should be "
        "of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
        f'\n\n{Q}\n\nRemember to put your answer on its own line after "Answer:".',
        [{"role": "system", "content": "Use \\boxed{}."}, {"role": "user", "content": Q}],
        [{"role": "user", "content": "Hi"}, {"role": "assistant"}, {"role": "user", "content": Q}],
        [{"role": "user", "content": [{"type": "text", "text": Q}]}],
    ],
)
def test_the_problem_alone_is_left(asked: Any) -> None:
    assert statement_of(asked) == Q


def test_a_request_in_the_sentence_of_the_problem_takes_only_itself_away() -> None:
    asked = "Find all $x$ with $x^2 = 4$, and write your answer in \\boxed{}."
    assert statement_of(asked) == "Find all $x$ with $x^2 = 4$."


@pytest.mark.parametrize(
    "asked",
    [
        "Express your answer as a common fraction.",
        "The answer is $m/n$ in lowest terms. Find $m + n$.",
        "Think step by step about $f(x) = 3.5x$. What is $f(2)$?",
        "A text\n\nwith   blanks\n  and lines",
        "What does \\boxed{x} mean?",
    ],
)
def test_what_is_part_of_the_problem_stays(asked: str) -> None:
    assert statement_of(asked) == asked


def test_lines_end_in_one_way_and_hold_no_controls() -> None:
    assert statement_of("a\r\nb\x00c\u2028d \n") == "a\nb c\nd"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("  \n", "an empty text"),
        ({"role": "user"}, "an object where a text or messages are expected"),
        ([{"role": "assistant", "content": "x"}], "messages without one of a user"),
        ([{"role": "user", "content": [{"type": "image"}]}], "a message with more than text in it"),
        ("half \ud800", "half a character: a surrogate without its other half"),
        ("x" * 40_000, "40,000 characters; expected at most 32,768"),
    ],
)
def test_what_asks_nothing_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        statement_of(value)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("72", "72"),
        ("So 9 - 2 = <<9-2=7>>7 eggs.\n#### 1,234", "1,234"),
        (r"First \boxed{1}, so it is \boxed{\frac{1}{\sqrt{2}}}.", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\left\{1, 2\right\}}", r"\left\{1, 2\right\}"),
        (["7"], "7"),
        (True, "True"),
    ],
)
def test_an_answer_is_taken_out_of_its_text(value: Any, answer: str) -> None:
    assert answer_of(value) == answer


def test_a_solution_needs_a_mark_unless_it_is_a_line() -> None:
    assert answer_of(r"\frac{1}{2}", is_solution=True) == r"\frac{1}{2}"
    with pytest.raises(ValueError, match="neither #### nor"):
        answer_of("We add.\nThen we are done.", is_solution=True)


@pytest.mark.parametrize("value", ["", " ", "so #### ", r"\boxed{ }", ["1", "2"], {"a": 1}, []])
def test_no_answer_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        answer_of(value)


def test_a_box_that_never_closes_is_none() -> None:
    assert last_boxed(r"\boxed{1") is None
    assert last_boxed(r"\boxed{a{b}c} d") == "a{b}c"
