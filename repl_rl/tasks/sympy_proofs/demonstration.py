"""One scripted attempt at a problem: its solution, or a strategy by weight in a style by chance.

    problem -> facts -> strategy -> styled template lines -> source lines, one for each observation

Right and wrong attempts copy expressions alike; they differ in what is chosen. Knows no kernel and
no tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from repl_rl.records import Problem
from repl_rl.tasks.base import Script
from repl_rl.tasks.sympy_proofs.strategies import (
    CALCULUS,
    EQUATION,
    GUESS,
    HOLDS,
    IDENTITY,
    MODULAR,
    NUMBERS,
    SUBMIT_LAST,
    Strategy,
)

# Chances of each habit, in 1.
SKILL = 0.36
"""The first strategy of the table, which is always right, whatever its weight."""
COMMENT = 0.20
"""A comment first."""
NAMED = 0.20
"""The function is assigned to a name first."""
IDLE = 0.04
"""A line that nobody needs."""
SLIP = 0.04
"""A bracket too many, then the line again."""
DIRECT = 0.10
"""The last step goes straight into the submission."""
ASSIGNED = 0.10
"""The last step gets a name, and the name is submitted."""
COPIED = 0.08
"""The last output is typed again instead of `_`."""
UNFINISHED = 0.04
"""No submission that counts."""

MAX_LINES = 12
MAX_COPIED_CHARS = 12
MAX_LINE_CHARS = 100
MAX_DIRECT_CHARS = MAX_LINE_CHARS - len("submit_final_answer()")
_BLOCK = ("for ", "    ", "found", "from ")

TABLES: Mapping[str, Mapping[str, Sequence[Strategy]]] = {
    "identity": IDENTITY,
    "equation": EQUATION,
    "modular": MODULAR,
    "calculus": CALCULUS,
}

_SETS = {
    "integers": ("Integers", "integer"),
    "rationals": ("Rationals", "rational"),
    "reals": ("Reals", "real"),
    "complexes": ("Complexes", "complex"),
}


def demonstration(problem: Problem, rng: random.Random) -> Script:
    """Source lines for `problem`; each yield expects the observation of the line before."""
    if solution := problem.meta.get("solution"):
        return scripted(solution.split("\n"), rng)
    table = TABLES[problem.meta["family"]][problem.meta["kind"]]
    strategy = rng.choices(table, [strategy.weight for strategy in table])[0]
    if rng.random() < SKILL:
        strategy = table[0]
    facts = facts_of(problem)
    lines = _styled(strategy, facts, rng)
    if rng.random() < UNFINISHED:
        lines = _unfinished(lines, rng)
    return played(lines, facts, rng)


def scripted(lines: Sequence[str], rng: random.Random) -> Script:
    """A known solution, with a slip now and then, and sometimes without its end."""
    if rng.random() < UNFINISHED:
        lines = [*lines[:-1], *["# not sure"] * rng.randint(2, 4)]
    for line in lines:
        yield from _with_slips(line, rng)


def facts_of(problem: Problem) -> dict[str, str]:
    """The fields that template lines may name."""
    meta = problem.meta
    facts = dict(meta)
    match meta["family"]:
        case "identity":
            facts["d"] = f"{meta['lhs']} - ({meta['rhs']})"
        case "equation":
            facts["f"] = meta["polynomial"]
            facts["set"], facts["attribute"] = _SETS[meta["domain"]]
        case "modular":
            names = NUMBERS[meta["kind"]].split()
            facts |= dict(zip(names, meta["numbers"].split(), strict=True))
        case "calculus":
            facts["f"] = meta["function"]
    return facts


def _styled(strategy: Strategy, facts: dict[str, str], rng: random.Random) -> list[str]:
    lines = _ended(list(strategy.lines), facts, rng)
    before = []
    if strategy.comment and rng.random() < COMMENT:
        before.append("# " + strategy.comment)
    if "f" in facts and rng.random() < NAMED and any("{f}" in line for line in lines):
        before.append("f = " + facts["f"])
        facts["f"] = "f"
        if rng.random() < IDLE:
            before.append(rng.choice(("f", "type(f)")))
    return before + lines


def _ended(lines: list[str], facts: Mapping[str, str], rng: random.Random) -> list[str]:
    """Draw one of several endings for the lines."""
    if len(lines) < 2 or lines[-1] != SUBMIT_LAST or lines[-2] in ("found", "sum(_)"):
        return lines
    step, draw = lines[-2], rng.random()
    if draw < DIRECT and len(step.format_map(facts)) < MAX_DIRECT_CHARS:
        return [*lines[:-2], f"submit_final_answer({step})"]
    if draw < DIRECT + ASSIGNED:
        return [*lines[:-2], f"answer = {step}", "submit_final_answer(answer)"]
    if draw < DIRECT + ASSIGNED + COPIED:
        return [*lines[:-1], "submit_final_answer({seen})"]
    return lines


def _unfinished(lines: list[str], rng: random.Random) -> list[str]:
    """The work is done, but no submission follows."""
    if rng.random() < 0.5:
        return [*lines[:-1], "submit_final_answer(x, 1)"]
    return [*lines[:-1], *["# not sure"] * rng.randint(2, 4)]


def played(lines: Sequence[str], facts: Mapping[str, str], rng: random.Random) -> Script:
    """Template lines filled from facts and from what the interpreter says as they run."""
    seen = ""
    for template in lines[:MAX_LINES]:
        if template.startswith("?") and seen in HOLDS:
            continue
        line = _filled(template.removeprefix("?"), facts, seen)
        for source in _with_slips(line, rng):
            observation = (yield source).strip()
        seen = observation or seen


def _filled(template: str, facts: Mapping[str, str], seen: str) -> str:
    # Short values are typed again; a traceback or a long expression is not.
    is_copied = 0 < len(seen) <= MAX_COPIED_CHARS and "\n" not in seen
    if template == "submit_final_answer({seen})" and not is_copied:
        return SUBMIT_LAST
    claim = "True" if seen in HOLDS else "_" if seen.isdecimal() else GUESS
    return template.format_map({**facts, "seen": seen, "claim": claim})


def _with_slips(line: str, rng: random.Random) -> Iterator[str]:
    is_plain = line.endswith(")") and not line.startswith((*_BLOCK, "submit", "#"))
    if is_plain and len(line) < MAX_LINE_CHARS and rng.random() < SLIP:
        yield line + ")"
    yield line
