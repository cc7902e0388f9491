"""Laws of reading: which columns are taken, what is held out, and one clear error for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.grading.protocol import MAX_MESSAGE_BYTES, MAX_TEXT_CHARS, GraderRequest
from repl_rl.records import Problem, Split
from repl_rl.tasks.data.columns import DataRow
from repl_rl.tasks.data.reading import Reading, Source, read, share

pytestmark = pytest.mark.slow

Values = dict[str, Any]


def reading(rows: Sequence[Values], **data: Any) -> Reading:
    made = [DataRow(f"a.jsonl:{number}", values) for number, values in enumerate(rows, 1)]
    source = Source(name="a.jsonl", location="/there/a.jsonl", rows=made)
    return read(source, DataConfig(**data))


def problems(rows: Sequence[Values], **data: Any) -> list[Problem]:
    """In the order of the rows."""
    sides = reading(rows, **data).sides
    return sorted(
        (problem for side in sides.values() for problem in side),
        key=lambda problem: int(problem.meta["row"].rpartition(":")[2]),
    )


def refusal(rows: Sequence[Values], **data: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        reading(rows, **data)
    return str(refused.value)


def rows_of(count: int) -> list[Values]:
    return [{"problem": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(count)]


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]


@pytest.mark.parametrize(
    "row",
    [
        {"statement": "1 + 1?", "answer": "2"},
        {"prompt": MESSAGES, "solution": "$2$"},
        {"prompt": MESSAGES, "reward_model": {"ground_truth": "2", "style": "rule"}},
        {"messages": [], "question": "1 + 1?", "answer": "One and one.\n#### 2"},
        {"problem": "1 + 1?", "solution": r"We add: \boxed{2}"},
        {"problem": "1 + 1?", "solution": r"Wrong: \boxed{3}", "answer": "2"},
        {"Question": "1 + 1?", "Answer": "2"},
        {"input": "1 + 1?", "label": "2"},
        {"question": "1 + 1?", "expected_answer": "2", "id": ""},
        {"question": "1 + 1?", "final_answer": "2", "problem": ""},
        {"prompt": "1 + 1?", "problem": "1 + 1?", "answer": "2", "ground_truth": "2"},
    ],
    ids=lambda row: "-".join(row),
)
def test_columns_go_by_the_names_that_data_sets_use(row: Values) -> None:
    (problem,) = problems([row])
    assert (problem.statement, problem.meta["value"]) == ("1 + 1?", "2")


def test_what_was_taken_is_said_in_a_line() -> None:
    row = {"prompt": "1 + 1?", "reward_model": {"ground_truth": "2"}, "data_source": "s"}
    assert reading([row], held_out=1.0).summary == (
        "a.jsonl: problems 1, held out 1; statement 'prompt', answer "
        "'reward_model.ground_truth', family 'data_source'; graded by integer 1"
    )


def test_a_named_column_wins_over_usual_names() -> None:
    row = {"problem": "no", "answer": "1", "text": "1 + 1?", "gold": {"value": "2"}}
    (problem,) = problems([row], statement="text", answer="gold.value")
    assert (problem.statement, problem.meta["value"]) == ("1 + 1?", "2")


def test_subject_and_level_make_the_rows_of_a_table() -> None:
    row = {"problem": "1 + 1?", "answer": "2", "subject": ["Algebra"], "level": "Level 3"}
    (problem,) = problems([row])
    assert (problem.meta["family"], problem.meta["tier"]) == ("Algebra", "Level 3")


@pytest.mark.parametrize("cell", [["a", "b"], {"a": "b"}, [["a"]], []])
def test_a_row_whose_subject_is_no_word_has_no_family(cell: object) -> None:
    (problem,) = problems([{"problem": "1 + 1?", "answer": "2", "source": cell, "level": "3"}])
    assert (problem.meta.get("family"), problem.meta["tier"]) == (None, "3")


def test_a_row_may_have_a_grader_of_its_own() -> None:
    rows: list[Values] = [
        {"problem": "a", "answer": "7", "grader": "exact"},
        {"problem": "b", "answer": "7", "grader": None},
    ]
    assert [one.meta["grader"] for one in problems(rows)] == ["exact", "integer"]
    assert [one.meta["grader"] for one in problems(rows, grader="math")] == ["exact", "math"]
    assert refusal([rows[0] | {"grader": "judge"}]) == (
        "a.jsonl:1: grader 'grader': 'judge' is none of auto, math, exact, integer, tests"
    )


# What is wrong with a row


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "a.jsonl holds no rows"),
        (
            [{"text": "1 + 1?", "answer": "2"}],
            "a.jsonl:1: no statement: expected one of statement, prompt, question, problem, "
            "Question, Problem, input; it has 'text', 'answer'; name one with --set "
            "data.statement=COLUMN",
        ),
        (
            [*rows_of(1), {"problem": "3?"}],
            "a.jsonl:2: no answer: column 'answer' is missing or empty",
        ),
        (
            [{"problem": "3?", "answer": None}, {"problem": "4?", "answer": ""}],
            "a.jsonl:1: no answer: column 'answer' is empty in every row; it has 'problem', "
            "'answer'; name one with --set data.answer=COLUMN",
        ),
        (
            [*rows_of(1), {"problem": "", "answer": "2"}],
            "a.jsonl:2: statement 'problem': an empty text",
        ),
        (
            [*rows_of(1), {"question": "3?", "answer": "2"}],
            "a.jsonl:2: no statement: column 'problem' is missing or empty",
        ),
        (
            [{"prompt": "1?", "question": "2?", "answer": "2"}],
            "a.jsonl:1: 'prompt' and 'question' may both be the statement, and differ; name one "
            "with --set data.statement=prompt",
        ),
        (
            [{"prompt": "1?", "answer": "2", "label": "3"}],
            "a.jsonl:1: 'answer' and 'label' may both be the answer, and differ; name one with "
            "--set data.answer=answer",
        ),
        (
            [
                {"question": "1 + 1?", "input": "", "answer": "2"},
                {"question": "1 + 2?", "input": "Ann has a cat.", "answer": "3"},
            ],
            "a.jsonl:2: 'question' and 'input' may both be the statement, and differ; name one "
            "with --set data.statement=question",
        ),
        *(
            (
                [{"question": "1?", "answer": "B", "options": options}],
                "a.jsonl:1: choices 'options': a list of texts is expected, or texts by their "
                "labels; or JSON of these",
            )
            for options in ("1 or 2", "A) 2 B) 1", '["2", "1"', "['2', '1']", "[" * 100_000)
        ),
        (
            [{"id": "7", **row} for row in rows_of(2)],
            "a.jsonl:2: id '7' is that of a.jsonl:1, too",
        ),
        (
            [{"problem": "1?", "answer": ["1", "2"]}],
            'a.jsonl:1: the answer \'["1", "2"]\' cannot be read (a list of 2 where one answer '
            "is expected), nor can any other of a.jsonl; --set data.answer=COLUMN names another "
            "column, and data.grader=exact compares texts",
        ),
        (
            [{"problem": "1?", "answer": "1", "id": {"a": "b"}}],
            "a.jsonl:1: id 'id': a list or an object where a word is expected",
        ),
        (
            [{"problem": "1?", "solution": "First.\nThen."}],
            "a.jsonl:1: the answer 'First.\\nThen.' cannot be read (a solution with neither #### "
            "nor \\boxed{}), nor can any other of a.jsonl; --set data.answer=COLUMN names another "
            "column, and data.grader=exact compares texts",
        ),
        (
            [{"problem": "1?", "answer": "1", "split": "hard"}, {**rows_of(1)[0], "split": "test"}],
            "a.jsonl:1: split 'hard'; expected one of train, training, test, testing, validation, "
            "valid, val, dev, eval, evaluation, held_out, held-out, heldout, or --set "
            "data.split=hard to take these rows alone",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_with_its_row(rows: Sequence[Values], message: str) -> None:
    assert refusal(rows) == message


def test_a_named_column_that_is_not_there_is_named() -> None:
    assert refusal(rows_of(1), answer="gold") == (
        "a.jsonl:1: no answer: there is no column 'gold'; it has 'problem', 'answer'; name one "
        "with --set data.answer=COLUMN"
    )


def test_an_answer_that_cannot_be_read_refuses_its_row() -> None:
    found = reading(
        [*rows_of(3), {"problem": "What?", "answer": "one half", "id": "4"}], grader="integer"
    )
    assert sum(map(len, found.sides.values())) == 3
    assert found.summary.endswith("; refused answers 1: a.jsonl:4 'one half' (no integer)")
    assert found.record.endswith(", 3 of 4 rows taken, 1 refused")


@pytest.mark.parametrize(
    ("answer", "shown", "why"),
    [
        (None, "", "no answer"),
        ("", "", "no answer"),
        (" ", " ", "an empty text"),
        (["3", "4"], '["3", "4"]', "a list of 2 where one answer is expected"),
        ({"value": "3"}, '{"value": "3"}', "an object where one answer is expected"),
    ],
)
@pytest.mark.parametrize("place", [0, 2])
def test_a_row_without_one_answer_is_refused_wherever_it_stands(
    place: int, answer: object, shown: str, why: str
) -> None:
    rows = rows_of(2)
    rows.insert(place, {"problem": "3?", "answer": answer})
    found = reading(rows)
    assert sum(map(len, found.sides.values())) == 2
    assert found.summary.endswith(f"; refused answers 1: a.jsonl:{place + 1} {shown!r} ({why})")


# Rows as public data sets have them


@pytest.mark.parametrize(
    ("row", "statement", "grader", "value"),
    [
        ({"question": "1 + 1?", "answer": "One and one.\n#### 2"}, "1 + 1?", "integer", "2"),
        (
            {"problem": "1 + 1?", "solution": r"So \boxed{2}.", "answer": "2", "level": "Level 1"},
            "1 + 1?",
            "integer",
            "2",
        ),
        (
            {"ID": "2024-I-1", "Problem": "1 + 1?", "Solution": "So 2.", "Answer": "2"},
            "1 + 1?",
            "integer",
            "2",
        ),
        (
            {"question": "1 + 1?", "final_answer": ["$2$"], "is_multiple_answer": False},
            "1 + 1?",
            "integer",
            "2",
        ),
        (
            {
                "prompt": [{"role": "user", "content": "1 + 1?"}],
                "reward_model": {"ground_truth": "2", "style": "rule"},
                "data_source": "math_dapo",
                "extra_info": {"index": "a-1"},
            },
            "1 + 1?",
            "integer",
            "2",
        ),
    ],
)
def test_rows_of_data_sets_are_read(row: Values, statement: str, grader: str, value: str) -> None:
    (problem,) = problems([row])
    assert (problem.statement, problem.meta["grader"], problem.meta["value"]) == (
        statement,
        grader,
        value,
    )


RED_BLUE = "Which?\n(A) red\n(B) blue\n(C) 1\nSubmit the letter of the right choice, as a string."


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Which?", "choices": ["red", "blue", "1"], "answer": "B"},
        {"question": "Which?", "choices": ["red", "blue", "1"], "answer": "blue"},
        {"question": "Which?", "choices": ["red", "blue", "1"], "answer": r"\textbf{(B)}"},
        {"question": "Which?", "choices": ["red", "blue", "1"], "answer": "(B) blue"},
        {"question": "Which?", "options": ["A) red", "B) blue", "C) 1"], "answer": "B"},
        {"question": "Which?", "options": '["red", "blue", 1]', "answer": "B"},
        {"question": "Which?", "options": '{"A": "red", "B": "blue", "C": "1"}', "answer": "blue"},
        {"question": "Which?", "options": {"A": "red", "B": "blue", "C": "1"}, "answer": "B"},
        {
            "question": "Which?",
            "choices": {"text": ["red", "blue", "1"], "label": ["1", "2", "3"]},
            "answerKey": "2",
        },
        {
            "question": "Which?\n(A) red\n(B) blue\n(C) 1",
            "choices": ["red", "blue", "1"],
            "answer": "B",
        },
    ],
)
def test_choices_are_shown_and_a_letter_is_the_answer(row: Values) -> None:
    (problem,) = problems([row])
    assert problem.statement == RED_BLUE
    assert (problem.meta["grader"], problem.meta["value"]) == ("exact", "B")
    assert problem.chance == pytest.approx(1 / 3)


def test_a_number_is_the_choice_of_that_place_from_0_on() -> None:
    (problem,) = problems([{"question": "?", "choices": ["red", "blue"], "answer": "1"}])
    assert problem.meta["value"] == "B"


@pytest.mark.parametrize(
    ("answer", "why"),
    [("1", "more than one of the 3 choices"), ("7", "none of the 3 choices")],
)
def test_a_number_that_may_be_a_place_or_a_text_refuses_its_row(answer: str, why: str) -> None:
    asked = {"question": "Which?", "choices": ["2", "3", "1"], "answer": answer}
    said = reading([asked, *rows_with_question(2)]).summary
    assert said.endswith(f"; refused answers 1: a.jsonl:1 '{answer}' ({why})")


def test_numbers_are_places_where_some_of_them_are_no_text() -> None:
    """A file of exams has such rows: its choices may be numbers, too."""
    rows = [
        {"question": "a?", "choices": ["2", "0", "1", "3"], "answer": "1"},
        {"question": "b?", "choices": ["red", "blue", "pink", "grey"], "answer": "3"},
    ]
    assert [one.meta["value"] for one in problems(rows)] == ["B", "D"]
    by_text = [rows[0], {"question": "c?", "choices": ["5", "7"], "answer": "7"}]
    assert reading(by_text).summary.endswith("(more than one of the 4 choices)")


def test_a_choice_may_say_that_there_is_no_answer() -> None:
    row = {"question": "Which?", "choices": ["oxygen", "helium", "N/A"], "answer": "C"}
    (problem,) = problems([row])
    assert problem.meta["value"] == "C"
    assert reading([{**row, "answer": "N/A"}, row]).summary.endswith("'N/A' (no answer)")


@pytest.mark.parametrize("none", [{}, {"text": [], "label": []}, {"text": None, "label": None}])
def test_a_structure_without_cells_is_no_choices(none: Values) -> None:
    row = {"question": "1 + 1?", "choices": none, "answer": "2"}
    (problem,) = problems([row])
    assert (problem.statement, problem.meta["value"]) == ("1 + 1?", "2")


def rows_with_question(count: int) -> list[Values]:
    return [{"question": row["problem"], "answer": row["answer"]} for row in rows_of(count)]


def test_where_no_answer_can_be_read_the_first_is_named() -> None:
    assert refusal([{"problem": "What?", "answer": "half"}], grader="integer") == (
        "a.jsonl:1: the answer 'half' cannot be read (no integer), nor can any other of a.jsonl; "
        "--set data.answer=COLUMN names another column, and data.grader=exact compares texts"
    )


def test_a_text_that_comes_again_is_one_problem() -> None:
    found = reading([*rows_of(2), *rows_of(2)])
    assert sum(map(len, found.sides.values())) == 2
    assert found.summary.endswith("; repeated texts left out 2")


def test_a_text_with_another_answer_is_refused_and_named() -> None:
    found = reading([*rows_of(2), {**rows_of(1)[0], "answer": "1234", "id": "other"}])
    assert sum(map(len, found.sides.values())) == 2
    assert found.summary.endswith(
        "; refused answers 1: a.jsonl:3 '1234' (a.jsonl:1 gives another answer to the same text)"
    )
    assert found.record.endswith(", 2 of 3 rows taken, 1 refused")


# Sides


def test_a_hash_of_the_text_chooses_what_is_held_out() -> None:
    few, many = (reading(rows_of(count), held_out=0.25) for count in (100, 200))
    held = {problem.statement for problem in few.sides[Split.HELD_OUT]}
    assert held == {row["problem"] for row in rows_of(100) if share(row["problem"]) < 0.25}
    assert 15 < len(held) < 35
    assert held <= {problem.statement for problem in many.sides[Split.HELD_OUT]}


@pytest.mark.parametrize(("held_out", "counts"), [(0.0, (0, 5)), (0.001, (1, 4)), (1.0, (5, 0))])
def test_a_few_rows_have_both_sides_unless_one_is_asked_for(
    held_out: float, counts: tuple[int, int]
) -> None:
    sides = reading(rows_of(5), held_out=held_out).sides
    assert (len(sides[Split.HELD_OUT]), len(sides[Split.TRAIN])) == counts


def test_a_split_of_the_rows_wins() -> None:
    rows = [
        row | {"split": name}
        for row, name in zip(rows_of(4), ["train", "test", "train", "Val"], strict=True)
    ]
    sides = reading(rows).sides
    assert sorted(one.meta["value"] for one in sides[Split.HELD_OUT]) == ["2", "6"]
    assert sorted(one.meta["value"] for one in sides[Split.TRAIN]) == ["0", "4"]


def test_where_all_rows_are_for_training_a_share_is_held_out() -> None:
    sides = reading([row | {"split": "train"} for row in rows_of(5)], held_out=0.001).sides
    assert len(sides[Split.HELD_OUT]) == 1


def test_a_chosen_split_is_all_that_is_read() -> None:
    rows = [row | {"split": name} for row, name in zip(rows_of(4), "aabb", strict=True)]
    assert {one.meta["value"] for one in problems(rows, split="b")} == {"4", "6"}
    assert refusal(rows, split="c") == "data.split = 'c': no row of a.jsonl; it has 'a', 'b'"
    assert "has no column 'split'" in refusal(rows_of(2), split="train")


def test_only_so_many_rows_are_read() -> None:
    rows = [*rows_of(3), {"problem": "", "answer": ""}]
    assert len(problems(rows, limit=3)) == 3


def test_a_problem_is_named_by_its_id_or_its_text() -> None:
    rows = [{"problem": "1?", "answer": "1", "id": "first"}, {"problem": "2?", "answer": "2"}]
    named, hashed = problems(rows)
    assert named.id == "first"
    assert hashed.id == problems([{"question": "2?", "answer": "2"}])[0].id


def test_the_largest_row_fits_into_a_message() -> None:
    longest = "\U0001f40d" * (1 << 15)
    (problem,) = problems([{"problem": longest, "answer": longest, "grader": "exact"}])
    request = GraderRequest(task_spec="m:C", problem=problem, submission="\0" * MAX_TEXT_CHARS)
    assert len(msgspec.json.encode(request)) < MAX_MESSAGE_BYTES


def test_the_unknowns_of_an_answer_are_bound() -> None:
    pytest.importorskip("pylatexenc")
    one, two = problems(
        [{"problem": "a", "answer": "x + 1"}, {"problem": "b", "answer": "x \\cdot y_1"}]
    )
    assert one.setup == ("x = symbols('x')",)
    assert two.setup == ("x, y_1 = symbols('x y_1')",)


def test_choices_that_are_numbered_from_one_are_refused() -> None:
    """Else 1 would be the second of three, and only the last would be missed."""
    rows = [
        {"question": f"{number}?", "choices": ["red", "blue", "pink"], "answer": number}
        for number in (1, 2, 3)
    ]
    with pytest.raises(ConfigError, match="answers number the choices from 1; expected numbers "):
        reading(rows)
    assert reading([{**rows[0], "answer": 0}, *rows[:2]])
