"""Laws of the task's grader: every right form is proved, every near miss is not."""

import time

import pytest

from repl_rl.records import Problem, VerdictKind
from repl_rl.tasks.sympy_proofs import SympyProofs

TASK = SympyProofs()
PROVED = VerdictKind.PROVED


def made(statement: str, answer: str = "", **meta: str) -> Problem:
    return Problem(id="p", statement=statement, meta={"answer": answer, "points": "s", **meta})


@pytest.mark.parametrize(
    ("submission", "kind"),
    [
        ("True", VerdictKind.REFUTED),
        ("1", PROVED),
        ("-7/3", PROVED),
        ("sqrt(2)", PROVED),
        ("1/10**60", PROVED),
        ("0", VerdictKind.WRONG),
        ("1.5", VerdictKind.WRONG),
        ("False", VerdictKind.WRONG),
        ("I", VerdictKind.MALFORMED),
        ("oo", VerdictKind.MALFORMED),
        ("10**6 + 1", PROVED),
        ("2**64", PROVED),
        ("exp(20)", PROVED),
        ("-10**2000", PROVED),
        ("exp(4096)", PROVED),
        ("exp(4096) - exp(4096)", VerdictKind.WRONG),
        ("sin(1)**2 + cos(1)**2 - 1", VerdictKind.WRONG),
        ("x", VerdictKind.MALFORMED),
        ("[1]", VerdictKind.MALFORMED),
        ("__import__('os')", VerdictKind.MALFORMED),
    ],
)
def test_a_false_identity_takes_a_real_witness(submission: str, kind: VerdictKind) -> None:
    # (x + 3)**2 is x**2 + 6*x + 9; the sides below differ by x.
    sides = {"lhs": "(x + 3)**2", "rhs": "x**2 + 5*x + 9", "truth": "False"}
    assert TASK.grade(made("", "1", family="identity", **sides), submission).kind is kind


@pytest.mark.parametrize(
    ("lhs", "rhs", "witness", "kind"),
    [
        ("(exp(x) + 2)**2", "exp(2*x) + 5*exp(x) + 4", "-100", PROVED),
        ("(exp(x) + 2)**2", "exp(2*x) + 5*exp(x) + 4", "-1000", PROVED),
        ("(exp(x) + 2)**2", "2*exp(2*x) + 4*exp(x) + 4", "10**4", PROVED),
        ("60*sin(x)**2 + 7*cos(x)**2", "54*sin(x)**2 + 7", "pi + 1/10**30", PROVED),
        ("60*sin(x)**2 + 7*cos(x)**2", "54*sin(x)**2 + 7", "10**30", PROVED),
        ("60*sin(x)**2 + 7*cos(x)**2", "54*sin(x)**2 + 7", "3*pi", VerdictKind.WRONG),
        ("60*sin(x)**2 + 7*cos(x)**2", "54*sin(x)**2 + 7", "acos(-1)", VerdictKind.WRONG),
    ],
)
def test_a_witness_is_exact_however_close_both_sides_come(
    lhs: str, rhs: str, witness: str, kind: VerdictKind
) -> None:
    problem = made("", "1", family="identity", lhs=lhs, rhs=rhs, truth="False")
    assert TASK.grade(problem, witness).kind is kind


def test_a_witness_against_a_true_identity_is_refuted() -> None:
    sides = {"lhs": "sin(x)**2", "rhs": "1 - cos(x)**2", "truth": "True"}
    problem = made("", "True", family="identity", **sides)
    assert TASK.grade(problem, "2").kind is VerdictKind.REFUTED
    assert TASK.grade(problem, "True").kind is PROVED


def test_false_says_nothing_of_where_and_is_never_worth_more_than_a_number() -> None:
    sides = {"lhs": "(x + 3)**2", "rhs": "x**2 + 5*x + 9"}
    false = TASK.grade(made("", "1", family="identity", truth="False", **sides), "False")
    assert (false.kind, false.method) == (VerdictKind.WRONG, "no witness")
    sides["rhs"] = "x**2 + 6*x + 9"
    true = TASK.grade(made("", "True", family="identity", truth="True", **sides), "False")
    assert (true.kind, true.method) == (VerdictKind.REFUTED, "identity")


@pytest.mark.parametrize(
    ("submission", "kind"),
    [
        ("{-1/2, sqrt(2)}", PROVED),
        ("FiniteSet(sqrt(2), -1/2)", PROVED),
        ("(2/sqrt(2), -1/2)", PROVED),
        ("[-1/2, -1/2, sqrt(2)]", PROVED),
        ("[-1/2]", VerdictKind.WRONG),
        ("[-1/2, 1.4142135623730951]", VerdictKind.WRONG),
        ("[-1/2, sqrt(2), 3]", VerdictKind.WRONG),
        ("EmptySet", VerdictKind.WRONG),
        ("-1/2", VerdictKind.MALFORMED),
        ("[{x: -1/2}, {x: sqrt(2)}]", PROVED),
        ("[(-1/2,), (sqrt(2),)]", PROVED),
        ("{(-1/2,), (sqrt(2),)}", PROVED),
        ("{-1/2: 1, sqrt(2): 1}", PROVED),
        ("[{x: -1/2}]", VerdictKind.WRONG),
        ("{x: -1/2}", VerdictKind.WRONG),
        ("{-1/2: 1}", VerdictKind.WRONG),
        ("[{x: -1/2}, {x: sqrt(2)}, {x: 3}]", VerdictKind.WRONG),
        ("{-1/2: 0, sqrt(2): 1}", VerdictKind.MALFORMED),
        ("{-1/2: x}", VerdictKind.MALFORMED),
        ("[{x: x}]", VerdictKind.MALFORMED),
        ("[{2: -1/2}]", VerdictKind.MALFORMED),
        ("[(-1/2, sqrt(2))]", VerdictKind.MALFORMED),
        ("[((-1/2,),)]", VerdictKind.MALFORMED),
        ("[x]", VerdictKind.MALFORMED),
        ("[True]", VerdictKind.MALFORMED),
        ("Reals", VerdictKind.MALFORMED),
        ("ConditionSet(x, Eq(x, 1), Reals)", VerdictKind.MALFORMED),
    ],
)
def test_an_equation_takes_all_solutions_and_no_more(submission: str, kind: VerdictKind) -> None:
    problem = made("", "[-1/2, sqrt(2)]", family="equation")
    assert TASK.grade(problem, submission).kind is kind


@pytest.mark.parametrize("submission", ["EmptySet", "set()", "[]", "()"])
def test_no_solution_is_an_answer(submission: str) -> None:
    assert TASK.grade(made("", "[]", family="equation"), submission).kind is PROVED


@pytest.mark.parametrize("submission", ["{x: 2}", "[{x: 2}]", "{2: 1}", "[(2,)]", "{2: 3}"])
def test_one_solution_is_taken_as_sympy_says_it(submission: str) -> None:
    assert TASK.grade(made("", "[2]", family="equation"), submission).kind is PROVED


@pytest.mark.parametrize("submission", ["4", "15", "-7", "4 + 11*10**30"])
def test_an_inverse_is_any_of_its_class_where_the_least_is_not_asked_for(submission: str) -> None:
    meta = {"family": "modular", "kind": "inverse", "numbers": "3 11"}
    kind = TASK.grade(made("Find the inverse of 3 mod 11", **meta), submission).kind
    assert kind is PROVED
    least = TASK.grade(made("Find the least inverse n > 0 of 3 mod 11", **meta), submission).kind
    assert least is (PROVED if submission == "4" else VerdictKind.WRONG)


def test_a_power_that_is_not_reduced_is_the_question() -> None:
    problem = made("Find 7**13 mod 10", family="modular", kind="power", numbers="7 13 10")
    assert TASK.grade(problem, "7**13").kind is VerdictKind.WRONG


@pytest.mark.parametrize(
    ("kind", "numbers", "answer"),
    [
        ("congruence", "17 5 23", 3),  # 17*3 = 51 = 2*23 + 5
        ("power", "7 13 10", 7),  # powers of 7 end in 7, 9, 3, 1
        ("inverse", "3 11", 4),
        ("order", "2 7", 3),
        ("remainders", "1 5", 3),  # 0, 2, 6 = 1, 12 = 2, 20 = 0
        ("gcd", "84 30", 6),
        ("lcm", "4 6", 12),
        ("totient", "12", 4),  # 1, 5, 7, 11
        ("divisor_sum", "12", 28),  # 1 + 2 + 3 + 4 + 6 + 12
        ("two_congruences", "2 5 3 7", 17),
    ],
)
def test_number_theory_is_counted_again(kind: str, numbers: str, answer: int) -> None:
    problem = made("", "ignored", family="modular", kind=kind, numbers=numbers)
    assert TASK.grade(problem, str(answer)).kind is PROVED
    assert TASK.grade(problem, str(answer + 1)).kind is VerdictKind.WRONG


@pytest.mark.parametrize(
    ("submission", "kind"),
    [
        ("x**3 + x**2", PROVED),
        ("x**2*(x + 1) - 7", PROVED),
        ("x**3 + x**2 + pi", PROVED),
        ("x**3 + x**2 + C", PROVED),
        ("C1 + x**3 + x**2", PROVED),
        ("c + x**2*(x + 1)", PROVED),
        ("C*x**2 + x**3", VerdictKind.REFUTED),
        ("C*(x**3 + x**2)", VerdictKind.REFUTED),
        ("x**3 + x**2 + oo", VerdictKind.WRONG),
        ("x**3 + x**2 - oo", VerdictKind.WRONG),
        ("x**3 + x**2 + zoo", VerdictKind.WRONG),
        ("x**3 + x**2 + 1/0", VerdictKind.WRONG),
        ("x**3 + x**2 + oo*pi", VerdictKind.WRONG),
        ("x**3 + x**2 + nan", VerdictKind.WRONG),
        ("x**3 + x**2 + 1/(sin(1)**2 + cos(1)**2 - 1)", VerdictKind.WRONG),
        ("x**3 + x**2 + sin(x)*10**-80", VerdictKind.REFUTED),
        ("x**3", VerdictKind.REFUTED),
        ("6*x + 2", VerdictKind.REFUTED),
        ("x**3 + 1.0*x**2", VerdictKind.WRONG),
        ("x**3 + x**2 + sign(x)", VerdictKind.MALFORMED),
        ("Integral(3*x**2 + 2*x, x)", VerdictKind.MALFORMED),
        ("x**3 + x**2 + n", VerdictKind.MALFORMED),
    ],
)
def test_an_antiderivative_is_judged_up_to_a_constant(submission: str, kind: VerdictKind) -> None:
    meta = {"family": "calculus", "kind": "antiderivative", "function": "3*x**2 + 2*x"}
    assert TASK.grade(made("", "x**3 + x**2", **meta), submission).kind is kind


@pytest.mark.parametrize(
    "step",
    [
        "sqrt(x**2)/x",
        "atan(x) + atan(1/x)",
        "atan(tan(x)) - x",
        "log(x**2) - 2*log(x)",
        "sqrt((x - 1)**2)/(x - 1)",
        "sqrt((x - 900)**2)/(x - 900)",
        "I*log(exp(I*x)) + x",
        "atan2(0, x)",
        "acos(x/sqrt(x**2))",
        "sqrt(-x)/sqrt(x)",
        "(x**2)**(1/3)/x**(2/3)",
        "log(-x) - log(x)",
        "asin(sin(x)) - asin(sin(x + 2*pi)) + atan(exp(1/x))",
    ],
)
def test_an_antiderivative_does_not_jump(step: str) -> None:
    meta = {"family": "calculus", "kind": "antiderivative", "function": "3*x**2 + 2*x"}
    verdict = TASK.grade(made("", "x**3 + x**2", **meta), f"x**3 + x**2 + {step}")
    assert verdict.kind in (VerdictKind.REFUTED, VerdictKind.WRONG)


@pytest.mark.slow
def test_a_closed_sum_may_take_any_form() -> None:
    problem = made("", "n**2/2 + n/2", family="calculus", kind="closed_sum")
    assert TASK.grade(problem, "n*(n + 1)/2").kind is PROVED
    assert TASK.grade(problem, "gamma(n + 2)/gamma(n)/2").is_solved
    assert TASK.grade(problem, "binomial(n + 1, 2)").is_solved
    assert TASK.grade(problem, "factorial(n + 1)/(2*factorial(n - 1))").is_solved
    assert TASK.grade(problem, "n*(n - 1)/2").kind is VerdictKind.REFUTED
    assert TASK.grade(problem, "Sum(k, (k, 1, n))").kind is VerdictKind.MALFORMED


@pytest.mark.parametrize(
    "tower",
    ["2**n**n", "n**n**n**n", "(n + 1)**4096", "Mod(3**2000, n)", "factorial(factorial(n))"],
)
def test_a_tower_is_judged_in_no_time(tower: str) -> None:
    problem = made("", "n**2/2 + n/2", family="calculus", kind="closed_sum")
    started = time.process_time()
    assert not TASK.grade(problem, tower).is_solved
    assert time.process_time() - started < 2


def test_a_step_function_is_malformed_in_a_tuple_too_unless_it_jumps_nowhere() -> None:
    problem = made("", "(x, 2)", family="limit", kind="tune", symbols="x")
    assert TASK.grade(problem, "(x, 2*sign(exp(x)))").kind is PROVED
    assert TASK.grade(problem, "(x, 2*sign(x)**2)").kind is VerdictKind.MALFORMED
    assert TASK.grade(problem, "(x*floor(x)/floor(x), 2)").kind is not VerdictKind.UNDECIDED
