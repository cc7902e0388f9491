"""Composites: chains of links of several families.

    a is the largest root of ...; b is the sum of ... + a*k ...; find the remainder of ... b ...

What a link asks for follows from what the ones before have found, so a chain is as long as it has
links. Knows no link's means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import sympy

from repl_rl.tasks.sympy_proofs.family import Draft, Rule
from repl_rl.tasks.sympy_proofs.wide.modes import by_value

X = sympy.Symbol("x")


@dataclass(frozen=True, slots=True)
class Given:
    """A number that is known by its name."""

    name: str
    value: int

    @property
    def bounded(self) -> Given:
        """Remainder of the number by 17, plus 2: from 2 to 18."""
        value = self.value % 17 + 2
        return Given(f"({self.name} % 17 + 2)" if self.is_named else str(value), value)

    @property
    def is_named(self) -> bool:
        """False for a number that the problem says itself."""
        return not self.name.isdigit()


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    """`the sum of ...`"""
    value: int
    steps: tuple[str, str]
    """A line and an expression for the value; those of the links before have run."""


Maker = Callable[[random.Random, Given], Link]


def _root(rng: random.Random, given: Given) -> Link:
    """The roots are p*given + q, r and two that are imaginary: which is largest has to be seen."""
    p, q, r, c = rng.randint(1, 3), rng.randint(-20, 20), rng.randint(-9, 60), rng.randint(1, 30)
    number = sympy.Symbol("g") if given.is_named else sympy.Integer(given.value)
    polynomial = sympy.expand((X - p * number - q) * (X - r) * (X**2 + c))
    spelled = str(sympy.collect(polynomial, X)).replace("g", given.name)
    return Link(
        f"the largest real root of {spelled}",
        max(p * given.value + q, r),
        (f"r = [v for v in solve({spelled}, x) if v.is_real]", "max(r)"),
    )


def _power_sum(rng: random.Random, given: Given) -> Link:
    p, q, top = rng.randint(1, 9), rng.randint(-9, 9), given.bounded
    summand = f"{p}*k**2 + {q}*k"
    return Link(
        f"the sum of {summand} for k = 1 to {top.name}",
        sum(p * k * k + q * k for k in range(1, top.value + 1)),
        (f"s = summation({summand}, (k, 1, n))", f"s.subs(n, {top.name})"),
    )


def _residue(rng: random.Random, given: Given) -> Link:
    base, power = rng.randint(2, 60), rng.randint(10**6, 10**9)
    modulus = rng.choice((101, 127, 149, 163, 181, 199))
    return Link(
        f"the remainder of ({given.name} + {base})**{power} by {modulus}",
        pow(given.value + base, power, modulus),
        (
            f"t = {power} % totient({modulus})",
            f"pow(int({given.name} + {base}), int(t), {modulus})",
        ),
    )


def _recurrence(rng: random.Random, given: Given) -> Link:
    p, q, first = rng.randint(1, 5), rng.randint(1, 5), rng.randint(1, 9)
    index, modulus = rng.randint(15, 40), rng.choice((103, 131, 151, 173, 197))
    before, now = first, given.value
    for _ in range(index - 1):
        before, now = now, p * now + q * before
    return Link(
        f"the remainder of u({index}) by {modulus}, where u(0) = {first}, "
        f"u(1) = {given.name} and u(m + 2) = {p}*u(m + 1) + {q}*u(m)",
        now % modulus,
        (
            f"U = Matrix([[{p}, {q}], [1, 0]])**{index - 1}",
            f"(U*Matrix([{given.name}, {first}]))[0] % {modulus}",
        ),
    )


def _integral(rng: random.Random, given: Given) -> Link:
    p, q, top = rng.randint(1, 6), rng.randint(1, 5), rng.randint(1, 5)
    integrand = f"{3 * p}*x**2 + {2 * q}*{given.name}*x - {given.name}"
    return Link(
        f"the integral of {integrand} over x from 0 to {top}",
        p * top**3 + q * given.value * top**2 - given.value * top,
        (f"F = integrate({integrand}, x)", f"F.subs(x, {top}) - F.subs(x, 0)"),
    )


def _limit(rng: random.Random, given: Given) -> Link:
    """(exp(2*u*x) - 1 - 2*u*x)/x**2 tends to 2*u**2, and cos brings v**2 more."""
    v, u = 2 * rng.randint(1, 6), given.bounded
    expression = f"(exp(2*{u.name}*x) - 2*{u.name}*x - cos({v}*x))/x**2"
    return Link(
        f"the limit of {expression} as x tends to 0",
        2 * u.value**2 + v * v // 2,
        (f"u = {u.name}", f"limit((exp(2*u*x) - 2*u*x - cos({v}*x))/x**2, x, 0)"),
    )


def _determinant(rng: random.Random, given: Given) -> Link:
    p, q, r, s, t = (rng.randint(-9, 9) for _ in range(5))
    g = given.value
    rows = f"[[{given.name}, {p}, {q}], [{r}, 2, {s}], [{t}, 1, 3]]"
    return Link(
        f"the determinant of the matrix with the rows {rows}",
        g * (6 - s) - p * (3 * r - s * t) + q * (r - 2 * t),
        (f"M = Matrix({rows})", "M.det()"),
    )


LINKS: Mapping[str, Maker] = {
    "equation": _root,
    "sum": _power_sum,
    "modular": _residue,
    "recurrence": _recurrence,
    "calculus": _integral,
    "limit": _limit,
    "algebra": _determinant,
}
"""By the family whose means find it."""


NAMES = "abcdgh"
"""Names of the links; sympy has none of these."""
NUM_LINKS = {3: 2, 4: 3, 5: 5}
"""By tier."""
MODULI = (211, 223, 227, 229, 233, 239, 241, 251)

Uses = Sequence[tuple[int, ...]]
"""For each link and for the answer the links that it uses."""


def _chain(count: int) -> Uses:
    """Each uses the one before."""
    return [(), *((number,) for number in range(count))]


def _tree(count: int) -> Uses:
    """Uses of a tree: of two neighbours one starts afresh, and the next joins both."""
    joined = [() if i == 0 or i % 2 else (i - 2, i - 1) for i in range(count)]
    return [*joined, (count - 1,)]


def _braid(count: int) -> Uses:
    """Each uses the two before."""
    pairs = ((number - 2, number - 1) for number in range(2, count + 1))
    return [(), (0,), *pairs]


def _composite(shape: Callable[[int], Uses]) -> Callable[[random.Random, int], Draft]:
    def draft(rng: random.Random, tier: int) -> Draft:
        count = NUM_LINKS[tier]
        uses, kinds = shape(count), rng.sample(tuple(LINKS), count)
        known: list[Given] = []
        stated, solution = [], []
        for kind, used, name in zip(kinds, uses, NAMES, strict=False):
            link = LINKS[kind](rng, _given(rng, [known[i] for i in used]))
            known.append(Given(name, link.value))
            stated.append(f"{name} is {link.text}.")
            solution += [link.steps[0], f"{name} = {link.steps[1]}"]
        modulus = rng.choice(MODULI)
        last, factor = _given(rng, [known[i] for i in uses[-1]]), rng.randint(2, 60)
        answer = f"{factor}*{last.name}**2"
        return Draft(
            question="\n".join([*stated, f"Find the remainder of {answer} by {modulus}."]),
            form="an integer",
            answer=str(factor * last.value**2 % modulus),
            facts={"families": " ".join(kinds)},
            solution=(*solution, f"submit_final_answer({answer} % {modulus})"),
        )

    return draft


def _given(rng: random.Random, links: Sequence[Given]) -> Given:
    """The number that a link begins with: its own, or made of those that it uses."""
    if not links:
        own = rng.randint(3, 40)
        return Given(str(own), own)
    name = " + ".join(link.name for link in links)
    return Given(f"({name})" if len(links) > 1 else name, sum(link.value for link in links))


_rule = partial(Rule, grade=by_value, chance=0.03)

RULES: Mapping[str, Rule] = {
    "chain": _rule(draft=_composite(_chain), tiers=(3, 4, 5)),
    "tree": _rule(draft=_composite(_tree), tiers=(4, 5)),
    "braid": _rule(draft=_composite(_braid), tiers=(4, 5), is_held_out=True),
}
