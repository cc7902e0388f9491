"""Number theory with whole answers: `Find the least n >= 0 with 17*n = 5 (mod 23)`.

The generator takes the short way to the answer; the grader counts again, by trial, with integers.

Knows no interpreter and no script.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import partial, reduce

import sympy

from repl_rl.grading.equality import wrong
from repl_rl.grading.parse import parse
from repl_rl.records import Problem, Verdict, VerdictKind
from repl_rl.tasks.sympy_proofs.family import Draft, Rule

RESIDUE = "the least non-negative integer"
"""The form of an answer that stands for a class of remainders."""


def grade(problem: Problem, submission: str) -> Verdict:
    """The whole number that trial finds; for an inverse, all numbers congruent to it.

    Where the statement asks for the least inverse, that alone.
    """
    value = parse(submission)
    if isinstance(value, bool) or not isinstance(value, sympy.Expr):
        return Verdict(kind=VerdictKind.MALFORMED, evidence="not a whole number")
    numbers = [int(word) for word in problem.meta["numbers"].split()]
    expected = TRIALS[problem.meta["kind"]](*numbers)
    is_any_of_class = problem.meta["kind"] == "inverse" and "least" not in problem.statement
    if value.is_Integer:
        difference = int(value) - expected
        if difference == 0 or (is_any_of_class and difference % numbers[-1] == 0):
            return Verdict(kind=VerdictKind.PROVED, method="trial")
    return wrong("trial", f"not {str(value)[:80]}")


def _congruence(rng: random.Random, _: int) -> Draft:
    m = _modulus(rng)
    a, answer = unit(rng, m), rng.randrange(m)
    b = a * answer % m
    question = f"Find the least n >= 0 with {a}*n = {b} (mod {m})"
    return _draft(question, answer, (a, b, m), form=RESIDUE)


def _power(rng: random.Random, _: int) -> Draft:
    m = _modulus(rng)
    scale = sum(m > most for _, most in MODULI)
    a, e = rng.randint(2, m - 1), rng.randint(11, MOST_EXPONENT[scale])
    return _draft(f"Find {a}**{e} mod {m}", pow(a, e, m), (a, e, m), form=RESIDUE)


def _inverse(rng: random.Random, _: int) -> Draft:
    m = _modulus(rng)
    a = unit(rng, m)
    question = f"Find the inverse of {a} mod {m}"
    return _draft(question, pow(a, -1, m), (a, m), form=RESIDUE)


def _order(rng: random.Random, _: int) -> Draft:
    m = _modulus(rng)
    a = unit(rng, m)
    answer = int(sympy.n_order(a, m))
    return _draft(f"Find the multiplicative order of {a} mod {m}", answer, (a, m))


def _remainders(rng: random.Random, _: int) -> Draft:
    m, a = rng.randint(7, 99), rng.randint(1, 30)
    question = f"Count the distinct values of n**2 + {a}*n mod {m}"
    return _draft(question, len({n * (n + a) % m for n in range(m)}), (a, m))


def _gcd(rng: random.Random, _: int) -> Draft:
    a, b = _pair(rng)
    return _draft(f"Find the gcd of {a} and {b}", math.gcd(a, b), (a, b))


def _lcm(rng: random.Random, _: int) -> Draft:
    a, b = _pair(rng)
    return _draft(f"Find the lcm of {a} and {b}", math.lcm(a, b), (a, b))


def _totient(rng: random.Random, _: int) -> Draft:
    m = _size(rng)
    return _draft(f"Count the n <= {m} coprime to {m}", int(sympy.totient(m)), (m,))


def _divisor_sum(rng: random.Random, _: int) -> Draft:
    m = _size(rng)
    return _draft(f"Add up the divisors of {m}", int(sympy.divisor_sigma(m)), (m,))


def _two_congruences(rng: random.Random, _: int) -> Draft:
    p, q = rng.sample((3, 5, 7, 8, 11, 13, 17, 19, 23), 2)
    answer = rng.randrange(p * q)
    a, b = answer % p, answer % q
    question = f"Find the least n >= 0 with n = {a} (mod {p}) and n = {b} (mod {q})"
    return _draft(question, answer, (a, p, b, q), form=RESIDUE)


MODULI = ((11, 40), (41, 99), (101, 499))
MOST_EXPONENT = (10**2, 10**3, 10**4)
"""For moduli of each range."""


def _modulus(rng: random.Random) -> int:
    return rng.randint(*rng.choice(MODULI))


def _size(rng: random.Random) -> int:
    return rng.randint(*rng.choice(((12, 99), (100, 999), (1000, 9999))))


def _pair(rng: random.Random) -> tuple[int, int]:
    """Two different numbers, neither dividing the other, with a common factor."""
    scale = rng.randint(1, 3)
    common, bound = rng.randint(2, 9 * scale), 10 * scale
    a, b = rng.sample(range(2, bound + 5), 2)
    if a % b == 0 or b % a == 0:
        return _pair(rng)
    return common * a, common * b


def unit(rng: random.Random, m: int) -> int:
    """A number that has an inverse modulo m."""
    while True:
        a = rng.randint(2, m - 1)
        if math.gcd(a, m) == 1:
            return a


def _draft(
    question: str, answer: int, numbers: tuple[int, ...], *, form: str = "an integer"
) -> Draft:
    facts = {"numbers": " ".join(map(str, numbers))}
    return Draft(question=question, form=form, answer=str(answer), facts=facts)


TRIALS: Mapping[str, Callable[..., int]] = {
    "congruence": lambda a, b, m: next(n for n in range(m) if (a * n - b) % m == 0),
    "power": lambda a, e, m: reduce(lambda value, _: value * a % m, range(e), 1),
    "inverse": lambda a, m: next(n for n in range(m) if a * n % m == 1),
    "order": lambda a, m: next(n for n in range(1, m) if pow(a, n, m) == 1),
    "remainders": lambda a, m: len({(n**2 + a * n) % m for n in range(m)}),
    "gcd": lambda a, b: max(d for d in range(1, a + 1) if a % d == b % d == 0),
    "lcm": lambda a, b: next(n for n in range(a, a * b + 1, a) if n % b == 0),
    "totient": lambda m: sum(math.gcd(n, m) == 1 for n in range(1, m + 1)),
    "divisor_sum": lambda m: sum(d for d in range(1, m + 1) if m % d == 0),
    "two_congruences": lambda a, p, b, q: next(
        n for n in range(p * q) if n % p == a and n % q == b
    ),
}

_rule = partial(Rule, grade=grade, tiers=(1,), chance=0.1)

# Chances of the best number: measured on 300 problems each.
RULES: Mapping[str, Rule] = {
    "congruence": _rule(draft=_congruence),
    "power": _rule(draft=_power),
    "inverse": _rule(draft=_inverse),
    "order": _rule(draft=_order, chance=0.17),
    "remainders": _rule(draft=_remainders, chance=0.17),
    "gcd": _rule(draft=_gcd),
    "lcm": _rule(draft=_lcm),
    "totient": _rule(draft=_totient),
    "divisor_sum": _rule(draft=_divisor_sum),
    "two_congruences": _rule(draft=_two_congruences),
}
