"""Composites: chains of links of several families.

    a is the largest root of ...; b is the sum of ... + a*k ...; find the remainder of ... b ...

What a link asks for follows from what the ones before have found, so a chain is as long as it has
links. Knows no link's means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from repl_rl.tasks.sympy_proofs.draft import Draft
from repl_rl.tasks.sympy_proofs.family import Rule
from repl_rl.tasks.sympy_proofs.wide.links import LINKS, Given, Link
from repl_rl.tasks.sympy_proofs.wide.values import by_value

NAMES = "abcdgh"
"""Of the links; sympy has none of these."""
NUM_LINKS = {3: 2, 4: 3, 5: 5}
"""By tier."""
MODULI = (211, 223, 227, 229, 233, 239, 241, 251)
CHANCE = 0.03

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
        uses = shape(count)
        kinds = rng.sample(tuple(LINKS), count)
        links: list[Link] = []
        for kind, used, name in zip(kinds, uses, NAMES, strict=False):
            links.append(LINKS[kind](rng, name, _given(rng, [links[i] for i in used])))
        return _draft(rng, links, uses, kinds)

    return draft


def _given(rng: random.Random, links: Sequence[Link]) -> Given:
    """The number that a link begins with: its own, or made of those that it uses."""
    if not links:
        own = rng.randint(3, 40)
        return Given(str(own), own)
    name = " + ".join(link.name for link in links)
    return Given(f"({name})" if len(links) > 1 else name, sum(link.value for link in links))


def _draft(rng: random.Random, links: Sequence[Link], uses: Uses, kinds: Sequence[str]) -> Draft:
    modulus = rng.choice(MODULI)
    last, factor = _given(rng, [links[i] for i in uses[-1]]), rng.randint(2, 60)
    answer = factor * last.value**2 % modulus
    return Draft(
        question="\n".join(
            [
                *(f"{link.text}." for link in links),
                f"Find the remainder of {factor}*{last.name}**2 by {modulus}.",
            ]
        ),
        form="an integer",
        answer=str(answer),
        facts={"families": " ".join(kinds)},
        solution=(
            *(line for link in links for line in link.lines),
            f"submit_final_answer({factor}*{last.name}**2 % {modulus})",
        ),
    )


def _rule(shape: Callable[[int], Uses], tiers: tuple[int, ...], *, is_held_out: bool) -> Rule:
    return Rule(
        draft=_composite(shape),
        grade=by_value,
        tiers=tiers,
        chance=CHANCE,
        is_held_out=is_held_out,
    )


RULES: Mapping[str, Rule] = {
    "chain": _rule(_chain, (3, 4, 5), is_held_out=False),
    "tree": _rule(_tree, (4, 5), is_held_out=False),
    "braid": _rule(_braid, (4, 5), is_held_out=True),
}
