"""Words of a harness's context: what it asks and allows, and the form of an answer. Needs no
harness."""

from __future__ import annotations

from typing import Any

import pytest

from repl_rl.config.sections import SamplingConfig
from repl_rl.errors import ConfigError
from repl_rl.lm_eval.words import FORMS, answer_in, sampling_for, statement_in

OWN = SamplingConfig(max_tokens=512, temperature=0.7)


@pytest.mark.parametrize(
    "context",
    [
        "What is 6 * 7?",
        "Question: What is 6 * 7?\nAnswer:",
        "Q: What is 6 * 7?\nA:",
        "Problem:\nWhat is 6 * 7?\n\nSolution:",
        "Problem: What is 6 * 7?\nAnswer: ",
        "What is 6 * 7? Put your final answer within \\boxed{}.",
    ],
)
def test_the_problem_is_what_stands_between_the_words_of_a_task(context: str) -> None:
    assert statement_in(context, "t/0") == "What is 6 * 7?"


def test_a_statement_that_says_what_an_answer_is_stays_whole() -> None:
    statement = "Find the gcd of 30 and 20\nAnswer: an integer."
    assert statement_in(statement, "t/0") == statement


@pytest.mark.parametrize(
    ("context", "word"),
    [
        ("Question: 1 + 1?\nAnswer: 2\n\nQuestion: 6 * 7?\nAnswer:", "Question:"),
        ("Q: 1 + 1?\nA: 2\n\nQ: 6 * 7?\nA:", "Q:"),
        ("Add up.\n1 + 1?\nAnswer: 2\n\n6 * 7?\nAnswer:", "Answer:"),
    ],
)
def test_worked_examples_are_refused(context: str, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"^t/3: '{word}' stands twice .* give --num_fewshot 0$"):
        statement_in(context, "t/3")


def test_an_empty_problem_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^t/3: an empty text; expected a problem in words$"):
        statement_in("Question:\nAnswer:", "t/3")


@pytest.mark.parametrize(
    ("given", "max_tokens", "temperature"),
    [
        ({}, 512, 0.7),
        ({"do_sample": True}, 512, 0.7),
        ({"until": ["\n"], "do_sample": False, "temperature": 1.0}, 512, 0.0),
        ({"temperature": 0.2}, 512, 0.2),
        ({"max_gen_toks": 100}, 100, 0.7),
        ({"max_gen_toks": 32768}, 512, 0.7),
        ({"max_new_tokens": 9, "max_gen_toks": 12}, 9, 0.7),
        ({"top_p": 1.0, "top_k": -1, "num_beams": 1, "min_p": None}, 512, 0.7),
    ],
)
def test_what_a_task_says_of_sampling_holds(
    given: dict[str, Any], max_tokens: int, temperature: float
) -> None:
    found = sampling_for(given, OWN)
    assert (found.max_tokens, found.temperature) == (max_tokens, temperature)


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [("top_p", 0.95, "1"), ("top_k", 50, "0"), ("repetition_penalty", 1.2, "None")],
)
def test_what_cannot_hold_is_refused_by_name(name: str, value: float, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}={value} in .* --gen_kwargs {name}={instead}$"):
        sampling_for({"do_sample": True, name: value}, OWN)


def test_the_usual_form_has_the_answer_in_all_usual_places() -> None:
    assert answer_in(("sqrt(2)", r"\sqrt{2}"), FORMS["text"], []) == (
        "The answer is sqrt(2).\n"
        "Final Answer: The final answer is sqrt(2). I hope it is correct.\n"
        "In LaTeX: $\\sqrt{2}$, or \\boxed{\\sqrt{2}}\n"
        "#### sqrt(2)"
    )


def test_without_a_submission_there_is_no_answer() -> None:
    assert answer_in(None, FORMS["text"], None) == ""


def test_the_text_ends_before_the_first_stop() -> None:
    assert answer_in(("42", "42"), FORMS["text"], ["####", "\n"]) == "The answer is 42."
    assert answer_in(("42", "42"), FORMS["plain"], "Question:") == "42"
