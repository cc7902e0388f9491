"""Laws of the task: seeded, split by hash, answerable, and not fooled by near misses."""

import hashlib
import itertools
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import mpmath
import pytest
import sympy

from repl_rl.grading.equality import zero_method
from repl_rl.records import Problem, Split, VerdictKind
from repl_rl.tasks.base import DemonstrableTask, ReferencedTask
from repl_rl.tasks.sympy_proofs import SHORT, SympyProofs, split_of
from repl_rl.tasks.sympy_proofs.family import FAMILIES

pytestmark = pytest.mark.slow

TASK = SympyProofs()
PROVED = VerdictKind.PROVED
RULES = {
    family: {name: rule for name, rule in FAMILIES[family].rules.items() if 1 in rule.tiers}
    for family in SHORT.families
}
"""Those of tier 1."""
KINDS = [(family, kind) for family, rules in RULES.items() for kind in rules]
RESIDUE = "Answer: the least non-negative integer."
FORMS = {
    "identity": "Answer: True, or the least positive integer x where the sides differ.",
    "equation": "Answer: a list of all solutions, exact.",
    "modular": "Answer: an integer.",
    **dict.fromkeys(("congruence", "power", "inverse", "two_congruences"), RESIDUE),
    "derivative": "Answer: an expression in x.",
    "antiderivative": "Answer: an expression in x.",
    "definite": "Answer: the exact value.",
    "sum": "Answer: an integer.",
    "closed_sum": "Answer: a closed form in n.",
}


@cache
def sample(split: Split = Split.TRAIN, seed: int = 0, count: int = 1800) -> tuple[Problem, ...]:
    return tuple(itertools.islice(TASK.problems(split, seed=seed), count))


def of_family(family: str) -> Iterator[Problem]:
    return (problem for problem in sample() if problem.meta["family"] == family)


def question(problem: Problem) -> str:
    """The statement without the line that says the form of the answer."""
    return problem.statement.split("\n")[0]


def test_it_is_a_task_that_can_be_demonstrated() -> None:
    assert isinstance(TASK, DemonstrableTask)
    assert TASK.name == "sympy-proofs"


def test_the_prompt_sets_the_symbols_up_and_has_one_marker() -> None:
    lines = TASK.prompt.splitlines()
    assert lines[:2] == ["from sympy import *", "x, n, k = symbols('x n k')"]
    assert lines.count("{{problem}}") == 1


def test_the_same_seed_gives_the_same_problems() -> None:
    again = tuple(itertools.islice(SympyProofs().problems(Split.TRAIN, seed=0), 100))
    assert again == sample()[:100]
    other = tuple(itertools.islice(TASK.problems(Split.TRAIN, seed=1), 100))
    assert not {p.id for p in other} & {p.id for p in again}


def test_no_problem_is_on_both_sides_of_the_split() -> None:
    train, held_out = sample(), sample(Split.HELD_OUT, count=200)
    assert not {question(p) for p in train} & {question(p) for p in held_out}
    assert {split_of(question(p)) for p in train} == {Split.TRAIN}
    assert {split_of(question(p)) for p in held_out} == {Split.HELD_OUT}


def test_how_an_answer_is_to_be_given_moves_no_problem_across_the_split() -> None:
    for problem in sample()[:40]:
        digest = hashlib.blake2b(question(problem).encode(), digest_size=6)
        assert problem.id == digest.hexdigest()


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_every_statement_ends_in_the_form_of_its_answer(family: str, kind: str) -> None:
    """A line of its own, short and the same for all problems of a kind."""
    found = [p for p in of_family(family) if p.meta["kind"] == kind]
    lines = [problem.statement.split("\n") for problem in found]
    (form,) = {form for _, form in lines}
    assert form == FORMS.get(kind, FORMS.get(family))
    assert len(form) <= 70


def test_one_statement_in_eight_is_held_out() -> None:
    sides = Counter(split_of(f"statement {number}") for number in range(8000))
    assert 900 < sides[Split.HELD_OUT] < 1100


def test_families_take_turns_and_every_kind_occurs() -> None:
    families = Counter(problem.meta["family"] for problem in sample())
    assert families == dict.fromkeys(SHORT.families, 450)
    kinds = {(problem.meta["family"], problem.meta["kind"]) for problem in sample()}
    assert kinds == set(KINDS)


def test_questions_are_single_short_lines() -> None:
    lengths = sorted(len(question(problem)) for problem in sample())
    assert lengths[900] < 60
    assert lengths[-1] <= 105


def test_what_is_not_chosen_is_solved_by_one_call() -> None:
    assert {problem.meta["tier"] for problem in sample()} == {"1"}


def test_about_half_of_the_identities_are_false() -> None:
    truths = Counter(problem.meta["truth"] for problem in of_family("identity"))
    assert 190 < truths["False"] < 260


def test_identities_are_what_they_are_said_to_be() -> None:
    """True ones by a canonical form, false ones by a clear difference at their answer."""
    for problem in itertools.islice(of_family("identity"), 120):
        if problem.meta["truth"] == "True":
            assert zero_method(difference(problem)) is not None, problem.statement
        else:
            assert gap(problem, problem.meta["answer"]) > 1e-3, problem.statement


def difference(problem: Problem) -> Any:
    """Difference of both sides; sympy ships no types."""
    return sympy.sympify(problem.meta["lhs"]) - sympy.sympify(problem.meta["rhs"])


@cache
def function_of_x(left: str, right: str) -> Any:
    """The difference of both sides, to as many digits as mpmath works with."""
    return sympy.lambdify("x", sympy.sympify(left) - sympy.sympify(right), "mpmath")


def gap(problem: Problem, at: str) -> float:
    """Size of the difference of both sides at x = `at`, 0 where the digits are too few to tell."""
    apart = function_of_x(problem.meta["lhs"], problem.meta["rhs"])
    with mpmath.workdps(80):
        size = abs(apart(sympy.lambdify([], sympy.sympify(at), "mpmath")()))
    return float(size) if size > 1e-30 else 0.0


@pytest.mark.parametrize("kind", RULES["identity"])
def test_a_twin_shows_at_one_of_the_places_that_are_tried_first(kind: str) -> None:
    """Both sides agree at 0 and at two of 1, 2 and 3, and a wave at multiples of pi/2."""
    twins = [
        p for p in of_family("identity") if (p.meta["kind"], p.meta["truth"]) == (kind, "False")
    ]
    assert len(twins) > 10
    for problem in twins:
        points = ["0", *{"1", "2", "3"} - {problem.meta["answer"]}]
        if kind in ("pythagoras", "double_sine", "double_cosine"):
            points += ["pi/2", "-pi/2", "pi", "7*pi/2"]
        assert [gap(problem, point) for point in points] == [0.0] * len(points), problem.statement
        assert min(gap(problem, problem.meta["answer"]), gap(problem, "7/3")) > 1e-3


def test_no_number_and_no_single_look_settle_an_identity() -> None:
    """By a third of the false half at best; a look says what is false, and not which answer."""
    found = list(of_family("identity"))
    answers = Counter(problem.meta["answer"] for problem in found)
    assert answers["True"] / len(found) < 0.56
    assert max(answers[number] for number in "123") / len(found) < 0.22
    assert set(answers) == {"True", "1", "2", "3"}
    for place in ("-1", "1", "2", "3", "10", "7/3"):
        looks = [gap(problem, place) == 0.0 for problem in found]
        best = max(
            sum(p.meta["answer"] == ("True" if same else number)
                for p, same in zip(found, looks, strict=True))
            for number in "123"
        )  # fmt: skip
        assert best / len(found) < 0.76, place


def test_a_statement_that_asks_for_any_witness_takes_any() -> None:
    """Stored runs hold such statements."""
    meta = {"family": "identity", "kind": "square", "lhs": "x", "rhs": "x**2", "truth": "False"}
    statements = ("an x where the sides differ", "the least positive integer x where they differ")
    asked = [Problem(id="", statement=one, meta={**meta, "answer": "2"}) for one in statements]
    for right in ("2", "7", "1/2", "-sqrt(2)"):
        assert TASK.grade(asked[0], right).kind is PROVED, right
        assert TASK.grade(asked[1], right).is_solved == (right == "2"), right


def test_a_twin_looks_like_a_true_identity() -> None:
    """It has about as many terms on the right, and is as long."""
    found = {truth: [p.meta["rhs"] for p in of_family("identity") if p.meta["truth"] == truth]
             for truth in ("True", "False")}  # fmt: skip
    lengths = [statistics.median(map(len, sides)) for sides in found.values()]
    assert abs(lengths[0] - lengths[1]) <= 2
    terms = [statistics.mean(side.count(" ") for side in sides) for sides in found.values()]
    assert terms[0] == pytest.approx(terms[1], rel=0.1)


def test_every_reference_answer_is_proved() -> None:
    for problem in sample()[:1000]:
        verdict = TASK.grade(problem, problem.meta["answer"])
        assert verdict.kind is PROVED, problem


def test_the_task_knows_an_answer_to_each_problem() -> None:
    assert isinstance(TASK, ReferencedTask)
    assert all(TASK.reference(problem) == problem.meta["answer"] for problem in sample()[:40])


def test_mutants_of_every_reference_answer_fail() -> None:
    for problem in sample()[:400]:
        for mutant in mutants(problem):
            assert not TASK.grade(problem, mutant).is_solved, (problem, mutant)


def mutants(problem: Problem) -> list[str]:
    answer = problem.meta["answer"]
    match problem.meta["family"]:
        case "identity":
            others = [text for text in ("True", "1", "2", "3") if text != answer]
            return [*others, "False", "7", "7/3", f"{answer}.0", "x", "None", "[True]", "I"]
        case "equation":
            return [f"{answer[:-1]}, 10007]".replace("[, ", "["), "x", "True", "Reals", "[0.5]"]
        case "modular":
            return [f"{answer}.0", f"{answer} + 1", f"-{answer} - 1", f"[{answer}]", "x", "True"]
        case _ if problem.meta["kind"] == "antiderivative":
            return [f"{answer} + x", f"2*({answer})", f"{answer} + 0.5*x", f"{answer} + floor(x)"]
        case _:
            return [f"{answer} + 1", f"{answer} + 0.5", f"{answer} + k", f"[{answer}]", "nan"]


def test_a_family_cannot_be_learnt_by_heart() -> None:
    """Few of 500 draws repeat an earlier one, and those come from the smallest kinds."""
    rng = random.Random(0)
    for family, rules in RULES.items():
        drafts = (rules[rng.choice(tuple(rules))].draft(rng, 1) for _ in range(500))
        assert len({draft.question for draft in drafts}) > 475, family
