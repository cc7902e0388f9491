"""Number theory in several lines: towers of powers, systems of congruences.

Numbers come first and are bound to names; the answer follows from them by steps of which none can
be left out. Knows no interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide.values import by_value

INTEGER = "an integer"

PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191)


def _tower(rng: random.Random, tier: int) -> Draft:
    """a**(b**c) mod m by Euler's theorem: b**c has more digits than any memory holds."""
    p, q = rng.sample(PRIMES, 2)
    m, totient = p * q, (p - 1) * (q - 1)
    a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(10**12, 10**15)
    answer = pow(a, pow(b, c, totient) + totient, m)
    return Draft(
        question="Find the remainder of a**(b**c) by m",
        form=INTEGER,
        answer=str(answer),
        setup=(f"a, b, c, m = {a}, {b}, {c}, {m}",),
        solution=(
            "t = totient(m)",
            "e = pow(b, c, int(t)) + t",
            "submit_final_answer(pow(a, int(e), m))",
        ),
        one_liners=(
            "pow(a, b**c, m)",
            "pow(a, pow(b, c, m), m)",
            "Mod(a**(b**c), m)",
            "(a**c) % m",
        ),
    )


RULES: Mapping[str, Rule] = {
    "tower": Rule(draft=_tower, grade=by_value(), tiers=(2,), chance=0.02),
}
