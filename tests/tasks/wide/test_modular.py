"""Number theory in several lines: laws of its rules, and problems worked by hand."""

from __future__ import annotations

from typing import Any, cast

import pytest

import rule_kit as kit
from repl_rl.tasks.sympy_proofs.wide.modular import RULES, joined

CASES = kit.cases("modular", tuple(RULES))


@pytest.fixture
def play(interpreter: Any) -> kit.Play:
    return lambda script: cast(str | None, interpreter.play(script).submission)


def test_remainders_are_joined_to_the_least_number() -> None:
    assert joined((2, 3, 2), (3, 5, 7)) == 23


# Worked by hand, in the numbers of a textbook: setup, solution of the rule, answer.
WORKED = {
    # 3**(2**100) mod 77: totient 60, 2**100 = 16 (mod 60), 3**16 = 3**1 = 3 (mod 7: 3**6 = 1,
    # 3**4 = 4) and 3**6 = 3 (mod 11: 3**5 = 1); 4 mod 7 and 3 mod 11 give 25.
    ("tower", 2): (("a, b, c, m = 3, 2, 100, 77",), "25"),
    # 2**(3**(2**10)) mod 25: totients 20 and 8; 2**10 = 0 (mod 8), so 3**(2**10) = 1 (mod 20), and
    # 2**1 = 2.
    ("tower", 4): (("a, b, c, d, m = 2, 3, 2, 10, 25",), "2"),
    # n = 2 (mod 3), 3 (mod 5), 2 (mod 7), 1 (mod 2), each times 4: Sun Tzu's 23.
    ("system", 2): (("a, b, m = [4]*4, [8, 12, 8, 4], [12, 20, 28, 8]",), "23"),
    ("system", 3): (("a, b, m, l = [4]*4, [8, 12, 8, 4], [12, 20, 28, 8], 500",), "653"),
    # x**2 = 1 (mod 8) at 1, 3, 5, 7, with n = 2 (mod 3): 17, 11, 5, 23.
    ("roots", 2): (("f, m = x**2 - 1, 8", "c, q = 2, 3"), "23"),
    # 1, 3, 5, 7 (mod 8) and 1, 2 (mod 3): 1, 5, 7, 11, 13, 17, 19, 23, pairs of 24.
    ("roots", 3): (("f, m = x**2 - 1, 8", "g, w = x**2 - 1, 3"), "96"),
    # The order of 3 modulo 7 is 6; 3**4 = 4, so n**2 = 4 (mod 6): 2 or 4.
    ("square_log", 3): (("a, b, p = 3, 4, 7",), "2"),
    # 2**n = 1 (mod 7): n = 0 (mod 3); 3**n = 9 (mod 11): n = 2 (mod 5).
    ("two_logs", 4): (("a, b, p = 2, 1, 7", "c, d, q = 3, 9, 11"), "12"),
    ("two_logs", 5): (("u, a, b, p = 3, 2, 3, 7", "w, c, d, q = 1, 3, 9, 11", "l = 12"), "27"),
    # x**2 + 1 modulo 5: 1, 2, 0, 0, 2, and 1 alone is the square of a unit; modulo 3: 1, 2, 2.
    ("squares", 4): (("f, m = x**2 + 1, 15",), "1"),
    ("squares", 5): (("f, m = x**2 + 1, 75",), "5"),
    # n + k = 3 and n - k = -1 at (1, 2) alone, and a term of 49 does not show at k = 2.
    ("lift", 4): (("p, e = 7, 4", "f = n + k - 3", "g = n - k + 1 + 7*(k - 2)**2"), "(1, 2)"),
    ("lift", 5): (("p, e = 7, 8", "f = n + k - 3", "g = n - k + 1 + 7*(k - 2)**2"), "(1, 2)"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_problem_worked_by_hand(case: kit.Case, play: kit.Play) -> None:
    setup, answer = WORKED[case.rule, case.tier]
    assert kit.rule_proves(case, play, setup, answer)
