r"""Laws of the graders by name: what is the known answer, what is nearly, what is none."""

from __future__ import annotations

import pytest

from repl_rl.records import Problem, Verdict
from repl_rl.tasks.data.golds import Gold, meanings, names_in, plain
from repl_rl.tasks.data.graders import ByName

pytestmark = pytest.mark.slow


def problem(answer: str, grader: str = "auto") -> Problem:
    """A problem as reading makes it, in this process."""
    gold = plain(answer, grader)
    if gold is None:
        pytest.importorskip("pylatexenc")
        texts = meanings(answer)
        names = sorted({name for text in texts for name in names_in(text)})
        gold = Gold("math", "\n".join(texts), " ".join(names))
    assert isinstance(gold, Gold)
    meta = {
        "grader": gold.grader,
        "answer": answer,
        "value": gold.value,
        "symbols": gold.symbols,
        "points": "0123456789abcdef",
    }
    return Problem(id="p", statement="?", meta=meta)


def graded(answer: str, submission: str, grader: str = "auto") -> Verdict:
    return ByName().grade(problem(answer, grader), submission)


@pytest.mark.parametrize(
    ("answer", "submission"),
    [
        (r"\frac{1}{2}", "Rational(1, 2)"),
        (r"\frac{1}{2}", "Fraction(1, 2)"),
        (r"\frac{\sqrt 2}{2}", "1/sqrt(2)"),
        (r"\sqrt{3 + 2\sqrt{2}}", "1 + sqrt(2)"),
        ("2.875", "2.875"),
        ("2.875", "Rational(23, 8)"),
        (r"50\%", "50"),
        (r"50\%", "Rational(1, 2)"),
        (r"\pm 2", "{2, -2}"),
        (r"\pm 2", "[-2, 2]"),
        ("{1}", "1"),
        (r"\{1\}", "{1}"),
        (r"\{1, 2\}", "(2, 1)"),
        ("224, -176", "[224, -176]"),
        ("224, -176", "(-176, 224)"),
        ("224, -176", "{224, -176}"),
        ("6, 6, 7", "[6, 6, 7]"),
        ("(1, 2)", "(1, 2)"),
        ("(1, 2)", "Interval(1, 2, True, True)"),
        ("[1, 2)", "Interval(1, 2, False, True)"),
        ("98,118,122", "98118122"),
        ("98,118,122", "[98, 118, 122]"),
        ("n(n+1)/2", "n**2/2 + n/2"),
        (r"\infty", "oo"),
        ("2 + 3i", "2 + 3*I"),
        (r"\$18.90", "18.9"),
        ("x = 3.5", "3.5"),
        ("0.00001", "1e-05"),
        ("(0.5, 1.25)", "(0.5, 1.25)"),
        ("12.50", "Decimal('12.50')"),
        (r"12.5\%", "0.125"),
        ("2nm", "2*n*m"),
        ("2nm", "2"),
        ("2nm^2 + 1", "1 + 2*n*m**2"),
    ],
)
def test_the_known_answer_is_solved_in_each_of_its_forms(answer: str, submission: str) -> None:
    assert graded(answer, submission, "math").is_solved


@pytest.mark.parametrize(
    ("answer", "submission"),
    [
        (r"\frac{1}{2}", "0.5"),
        (r"\frac{1}{3}", "Rational(333333333333, 1000000000000)"),
        (r"\sqrt{2}", "1.4142135623730951"),
        (r"\sqrt{2}", "-sqrt(2)"),
        ("2.875", "2.8750000001"),
        (r"\pm 2", "2"),
        ("{1}", "{1}"),
        (r"\{1\}", "1"),
        (r"\pm 2", "[2, 2, -2]"),
        (r"\{1, 2\}", "{1, 2, 3}"),
        (r"\{1, 2\}", "[1, 1]"),
        ("6, 6, 7", "[6, 7]"),
        ("6, 6, 7", "[6, 7, 6]"),
        ("(1, 2)", "(2, 1)"),
        ("(1, 2)", "{1, 2}"),
        ("[1, 2)", "Interval(1, 2)"),
        ("98,118,122", "98118123"),
        (r"\infty", "-oo"),
        (r"\infty", "nan"),
        ("5", "[5]"),
        ("5", "True"),
        (r"\frac12", "'\\\\frac12'"),
        ("n(n+1)/2", "k*(k+1)/2"),
        (r"\$18.90", "18.900000000000002"),
        ("(0.5, 1.25)", "(0.5, 1.2500000000000002)"),
        (r"(0.5, \frac13)", "(0.5, 0.3333333333333333)"),
        ("0.3", "0.1*3"),
        ("2.875", "2.87500000000000000001"),
        ("1, 2", "[{1: 2}, {2: 1}]"),
        ("2nm", "n*m"),
        (r"2 \text{ nm}", "2*n*m"),
        ("2 km", "2*k*m"),
    ],
)
def test_what_is_nearly_the_known_answer_is_not(answer: str, submission: str) -> None:
    assert not graded(answer, submission, "math").is_solved


@pytest.mark.parametrize(
    ("submission", "kind"),
    [
        ("1234", "proved"),
        ("2*617", "proved"),
        ("1235", "wrong"),
        ("1234.0", "wrong"),
        ("2468/2", "proved"),
        ("sqrt(2)", "wrong"),
        ("[1234]", "wrong"),
        ("True", "wrong"),
        ("'1234'", "malformed"),
        ("1,234", "wrong"),
        ("__import__('os')", "malformed"),
        ("9**9**9**9", "malformed"),
    ],
)
def test_an_integer_is_exact(submission: str, kind: str) -> None:
    assert str(graded("1,234", submission, "integer").kind) == kind


@pytest.mark.parametrize(
    ("answer", "submission", "is_right"),
    [
        ("Paris", "'Paris'", True),
        ("Paris", "'  Paris '", True),
        ("Paris", "'paris'", False),
        ("New  York", "'New York'", True),
        ("(A)", "'A'", True),
        (r"\text{(A)}", "'(a)'", True),
        ("B", "'A'", False),
        ("yes", "'Yes'", True),
        ("True", "True", True),
        ("True", "'true'", True),
        ("True", "1", False),
        ("x = 1", "'x=1'", False),
        ("[1, 2]", "[1, 2]", True),
        (r"\textbf{(C)}", "'c'", True),
        ("A, C", "'C and A'", True),
        ("A, C", "['C', 'A']", True),
        ("A, C", "['A', 'B']", False),
        ("A, C", "'A'", False),
        ("A, C", "'A, C, C'", False),
        ("2023-10-11", "'2023-10-11'", True),
        ("2023-10-11", "2002", False),
        ("10\u00b2", "'102'", False),
        ("10\u00b2", "'10\u00b2'", True),
        ("co\u200bop", "'co\u200bop'", True),
        ("B, A, C", "'B and A and C'", True),
        ("B, A, C", "'A, B, C'", False),
        ("A, B, A", "'A, B'", False),
        ("['a', 'b']", "['a', 'b']", True),
        ("a, b", "['a', 'b']", True),
        ("a, b", "['b', 'a']", False),
    ],
)
def test_a_text_is_the_same_text(answer: str, submission: str, is_right: bool) -> None:
    assert graded(answer, submission, "exact").is_solved is is_right


@pytest.mark.parametrize(
    ("answer", "grader"), [(r"\frac12", "math"), ("7", "integer"), ("Paris", "exact")]
)
def test_the_reference_solves_its_problem(answer: str, grader: str) -> None:
    asked = problem(answer, grader)
    assert ByName().grade(asked, ByName().reference(asked) or "").is_solved
