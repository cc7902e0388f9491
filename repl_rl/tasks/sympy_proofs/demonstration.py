"""One scripted attempt at a problem: its solution, or a strategy by weight in a style by chance.

    problem -> facts -> strategy -> styled template lines -> source lines, one for each observation

Right and wrong attempts copy expressions alike; they differ in what is chosen. Knows no kernel and
no tokens.

Strategies are a table for each family: a few template lines with a weight each. Fields in braces
are facts of the problem; beside them stand
    {seen}      what the interpreter said last
    {claim}     True if that was 0 or True, `_` if it was another number, else a guess
A line that begins with `?` is played only if the interpreter said neither 0 nor True last. Weights
are relative within a table; they set how often a model sees a way of working, so they set what
reinforcement has to choose from.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from repl_rl.records import Problem
from repl_rl.tasks.base import Script

SUBMIT_LAST = "submit_final_answer(_)"
HOLDS = ("0", "True")
"""Said of an identity that holds."""
GUESS = "3"
"""Place at which an identity is guessed to fail: right one time in three."""


@dataclass(frozen=True, slots=True)
class Strategy:
    weight: float
    lines: tuple[str, ...]
    comment: str = ""
    """A comment that some demonstrations put first."""


def way(weight: float, *lines: str, comment: str = "") -> Strategy:
    """Lines that end in a submission of their own."""
    return Strategy(weight, lines, comment)


def tool(weight: float, *lines: str, comment: str = "") -> Strategy:
    """Lines whose last value is submitted."""
    return Strategy(weight, (*lines, SUBMIT_LAST), comment)


def loop(header: str, condition: str, variable: str) -> Sequence[str]:
    """Collect in a block what satisfies a condition, then show it."""
    body = (f"    if {condition}:", f"        found.append({variable})", "")
    return "found = []", header, *body, "found"


_CLAIM = "submit_final_answer({claim})"
_TRUE = "submit_final_answer(True)"
_LUCKY = f"submit_final_answer({GUESS})"
_FIRST = "?next(t for t in range(1, 9) if _.subs(x, t) != 0)"
"""The least of what a twin cannot hide from, in the last output."""
_FIRST_OF_D = "?next(t for t in range(1, 9) if d.subs(x, t) != 0)"

_CARELESS = (
    way(0.05, _TRUE, comment="looks true"),
    way(0.05, _LUCKY, comment="looks false"),
    way(0.05, "{lhs} == {rhs}", _CLAIM, comment="the same form?"),
    way(0.03, "d = {d}", "d.subs(x, 0)", _TRUE, comment="try x = 0"),
    way(0.04, "check({lhs}, {rhs})", _TRUE, comment="check it"),
    way(0.15, "submit_final_answer(False)", comment="not true"),
    tool(0.12, "Eq({lhs}, {rhs})", comment="an equation"),
    way(0.05, "submit_final_answer(0)", comment="x = 0"),
)

_EXPANDING = (
    way(0.16, "expand({d})", _FIRST, _CLAIM, comment="expand the difference"),
    way(0.02, "d = {d}", "expand(d)", _FIRST_OF_D, _CLAIM, comment="expand the difference"),
    way(0.01, "simplify({d})", _FIRST, _CLAIM, comment="simplify the difference"),
    way(0.02, "expand({lhs}) == {rhs}", _CLAIM, comment="expand the left side"),
    way(0.01, "d = {d}", "simplify(d)", _FIRST_OF_D, _CLAIM),
    tool(0.13, "expand({lhs})", comment="expand the left side"),
    way(0.04, "expand({d})", _TRUE),
    way(0.08, "factor({lhs})", "submit_final_answer(False)", comment="factor it"),
    way(0.03, "check({lhs}, {rhs})", "expand({d})", _FIRST, _CLAIM, comment="check it"),
    *_CARELESS,
)

_TRIGONOMETRIC = (
    way(0.16, "trigsimp({d})", _FIRST, _CLAIM, comment="trigsimp of the difference"),
    way(0.02, "simplify({d})", _FIRST, _CLAIM, comment="simplify the difference"),
    way(0.02, "d = {d}", "simplify(d)", _FIRST_OF_D, _CLAIM, comment="simplify the difference"),
    way(0.01, "d = {d}", "trigsimp(d)", _FIRST_OF_D, _CLAIM),
    way(0.07, "expand({d})", _FIRST, _CLAIM, comment="expand the difference"),
    tool(0.15, "expand({lhs})", comment="expand the left side"),
    way(0.04, "trigsimp({d})", _TRUE),
    way(0.03, "check({lhs}, {rhs})", "trigsimp({d})", _FIRST, _CLAIM, comment="check it"),
    *_CARELESS,
)

IDENTITY: Mapping[str, Sequence[Strategy]] = {
    **dict.fromkeys(("square", "product", "cube", "two_squares"), _EXPANDING),
    **dict.fromkeys(("exp_square", "exp_product"), _EXPANDING),
    **dict.fromkeys(("pythagoras", "double_sine", "double_cosine"), _TRIGONOMETRIC),
}


_NOTHING = "submit_final_answer([])"

_ALL_KINDS = (
    tool(0.16, "solveset({f}, x, S.{set})", comment="solveset over the {domain}"),
    tool(0.04, "[r for r in solve({f}, x) if r.is_{attribute}]", comment="keep the {domain}"),
    tool(
        0.01, *loop("for r in solve({f}, x):", "r.is_{attribute}", "r"), comment="keep the {domain}"
    ),
    tool(0.01, "s = solve({f}, x)", "s", "[r for r in s if r.is_{attribute}]"),
    tool(0.08, "solve({f}, x)", comment="all roots"),
    tool(0.04, "solveset({f}, x, S.Reals)", comment="real roots"),
    tool(0.05, "solveset({f}, x, S.Integers)", comment="whole roots"),
    tool(0.07, "roots({f})", comment="roots"),
    way(0.08, "solve({f}, x)[0]", "submit_final_answer([_])", comment="one root"),
    tool(0.10, "nroots(Poly({f}, x))", comment="numbers"),
    tool(0.11, "factor({f})", comment="factor it"),
    tool(0.03, "solve_poly({f}, x)", "solveset({f}, x, S.{set})", comment="solve it"),
    way(0.06, "solve_poly({f}, x)", _NOTHING, comment="solve it"),
    way(0.05, _NOTHING, comment="no roots"),
    way(0.06, "submit_final_answer([1])", comment="a guess"),
    tool(0.04, "({f}).subs(x, 1)", comment="try x = 1"),
    way(0.02, "solve({f})[5]", "submit_final_answer([1])"),
)

EQUATION: Mapping[str, Sequence[Strategy]] = {
    **dict.fromkeys(("linear", "quadratic", "quadratic_surd", "quadratic_complex"), _ALL_KINDS),
    **dict.fromkeys(("cubic_surd", "cubic_complex", "biquadratic"), _ALL_KINDS),
}


NUMBERS: Mapping[str, str] = {
    "congruence": "a b m",
    "power": "a e m",
    "inverse": "a m",
    "order": "a m",
    "remainders": "a m",
    "gcd": "a b",
    "lcm": "a b",
    "totient": "m",
    "divisor_sum": "m",
    "two_congruences": "a p b q",
}
"""The names of a statement's numbers, in the order in which the problem records them."""

MODULAR: Mapping[str, Sequence[Strategy]] = {
    "congruence": (
        tool(0.19, "mod_inverse({a}, {m})*{b} % {m}", comment="inverse times {b}, mod {m}"),
        tool(0.05, "[n for n in range({m}) if ({a}*n - {b}) % {m} == 0][0]", comment="try all n"),
        tool(0.02, *loop("for n in range({m}):", "{a}*n % {m} == {b}", "n"), "found[0]"),
        tool(0.03, "modinv({a}, {m})", "mod_inverse({a}, {m})*{b} % {m}", comment="modinv"),
        tool(0.16, "mod_inverse({a}, {m})*{b}", comment="inverse times {b}"),
        tool(0.15, "solve({a}*n - {b}, n)", comment="solve for n"),
        tool(0.12, "{a}*{b} % {m}", comment="the product"),
        tool(0.10, "mod_inverse({a}, {m})", comment="the inverse"),
        way(0.10, "modinv({a}, {m})", "submit_final_answer({b})", comment="modinv"),
        way(0.05, "submit_final_answer({b})", comment="a guess"),
    ),
    "power": (
        tool(0.22, "pow({a}, {e}, {m})", comment="power mod {m}"),
        tool(0.07, "{a}**{e} % {m}", comment="the remainder"),
        tool(0.15, "{a}*{e} % {m}", comment="the product"),
        tool(0.15, "pow({a}, {m}, {e})", comment="power"),
        tool(0.14, "{a}**({e} % {m})", comment="a smaller power"),
        tool(0.10, "Mod({a}, {m})", comment="mod {m}"),
        tool(0.03, "powmod({a}, {e}, {m})", "pow({a}, {e}, {m})", comment="powmod"),
        way(0.09, "powmod({a}, {e}, {m})", "submit_final_answer(1)", comment="powmod"),
        way(0.05, "submit_final_answer(1)", comment="a guess"),
    ),
    "inverse": (
        tool(0.19, "mod_inverse({a}, {m})", comment="mod_inverse"),
        tool(0.07, "pow({a}, -1, {m})", comment="power -1 mod {m}"),
        tool(0.04, "modinv({a}, {m})", "mod_inverse({a}, {m})", comment="modinv"),
        tool(0.15, "mod_inverse({m}, {a})", comment="mod_inverse"),
        tool(0.14, "Rational(1, {a})", comment="one over {a}"),
        tool(0.12, "{m} - {a}", comment="the difference"),
        tool(0.12, "{m} % {a}", comment="the remainder"),
        way(0.10, "modinv({a}, {m})", "submit_final_answer({a})", comment="modinv"),
        way(0.04, "submit_final_answer({a})", comment="a guess"),
    ),
    "order": (
        tool(0.22, "n_order({a}, {m})", comment="n_order"),
        tool(0.05, "[n for n in range(1, {m}) if {a}**n % {m} == 1][0]", comment="try all n"),
        tool(0.05, "order({a}, {m})", "n_order({a}, {m})", comment="order"),
        tool(0.18, "totient({m})", comment="totient"),
        tool(0.13, "mod_inverse({a}, {m})", comment="inverse"),
        tool(0.13, "{a}**{m} % {m}", comment="a power"),
        tool(0.12, "n_order({m}, {a})", "submit_final_answer({m})", comment="n_order"),
        way(0.10, "order({a}, {m})", "submit_final_answer({m})", comment="order"),
    ),
    "remainders": (
        tool(0.22, "len({{(n**2 + {a}*n) % {m} for n in range({m})}})", comment="count a set"),
        tool(0.04, "v = [(n**2 + {a}*n) % {m} for n in range({m})]", "len(set(v))"),
        tool(0.19, "len([(n**2 + {a}*n) % {m} for n in range({m})])", comment="count a list"),
        tool(0.18, "len({{n**2 + {a}*n for n in range({m})}})", comment="count a set"),
        tool(0.10, "len(quadratic_residues({m}))", comment="residues"),
        tool(0.13, "(n**2 + {a}*n) % {m}", comment="mod {m}"),
        tool(0.10, "len({{(n**2 + {a}*n) % {m} for n in range({a})}})", comment="count a set"),
    ),
    "gcd": (
        tool(0.21, "gcd({a}, {b})", comment="gcd"),
        tool(0.06, "igcd({a}, {b})", comment="igcd"),
        tool(0.02, "factorint({a})", "factorint({b})", "gcd({a}, {b})", comment="factor both"),
        tool(0.20, "lcm({a}, {b})", comment="lcm"),
        tool(0.17, "{a} % {b}", comment="the remainder"),
        tool(0.14, "abs({a} - {b})", comment="the difference"),
        tool(0.10, "gcd({a}*{b})", "submit_final_answer({b})", comment="gcd"),
        tool(0.03, "hcf({a}, {b})", "gcd({a}, {b})", comment="hcf"),
        way(0.07, "hcf({a}, {b})", "submit_final_answer(1)", comment="hcf"),
    ),
    "lcm": (
        tool(0.19, "lcm({a}, {b})", comment="lcm"),
        tool(0.05, "ilcm({a}, {b})", comment="ilcm"),
        tool(0.04, "{a}*{b}//gcd({a}, {b})", comment="product over gcd"),
        tool(0.24, "{a}*{b}", comment="the product"),
        tool(0.22, "gcd({a}, {b})", comment="gcd"),
        tool(0.12, "max({a}, {b})", comment="the larger"),
        tool(0.03, "scm({a}, {b})", "lcm({a}, {b})", comment="scm"),
        way(0.09, "scm({a}, {b})", "submit_final_answer({a})", comment="scm"),
    ),
    "totient": (
        tool(0.20, "totient({m})", comment="totient"),
        tool(0.04, "len([n for n in range({m}) if igcd(n, {m}) == 1])", comment="count them"),
        tool(0.05, "phi({m})", "totient({m})", comment="phi"),
        tool(0.18, "divisor_count({m})", comment="divisors"),
        tool(0.17, "{m} - 1", comment="all but one"),
        tool(0.16, "len(primefactors({m}))", comment="prime factors"),
        tool(0.08, "primepi({m})", comment="primes"),
        way(0.08, "phi({m})", "submit_final_answer({m})", comment="phi"),
    ),
    "divisor_sum": (
        tool(0.19, "divisor_sigma({m})", comment="divisor_sigma"),
        tool(0.09, "sum(divisors({m}))", comment="sum of divisors"),
        tool(0.03, "divisors({m})", "sum(_)", comment="list them"),
        tool(0.18, "divisor_count({m})", comment="divisors"),
        tool(0.17, "sum(primefactors({m}))", comment="prime factors"),
        tool(0.18, "divisors({m})", comment="divisors"),
        tool(0.08, "factorint({m})", comment="factor"),
        tool(0.03, "sigma({m})", "divisor_sigma({m})", comment="sigma"),
        way(0.07, "sigma({m})", "submit_final_answer({m})", comment="sigma"),
    ),
    "two_congruences": (
        tool(
            0.20,
            "[n for n in range({p}*{q}) if n % {p} == {a} and n % {q} == {b}][0]",
            comment="try all n below {p}*{q}",
        ),
        tool(
            0.06,
            "crt([{p}, {q}], [{a}, {b}])",
            "from sympy.ntheory.modular import crt",
            "crt([{p}, {q}], [{a}, {b}])[0]",
            comment="crt",
        ),
        tool(
            0.03,
            *loop("for n in range({p}*{q}):", "n % {p} == {a} and n % {q} == {b}", "n"),
            "found[0]",
        ),
        way(0.18, "crt([{p}, {q}], [{a}, {b}])", "submit_final_answer({a})", comment="crt"),
        tool(0.18, "{a}*{q} + {b}*{p}", comment="mix them"),
        tool(0.16, "[n for n in range(99) if n % {p} == {a}][0]", comment="the first one"),
        tool(0.10, "solve(n - {a}, n)", comment="solve for n"),
        way(0.08, "submit_final_answer({a} + {b})", comment="the sum"),
    ),
}


_X = "(x, {low}, {high})"
_K = "(k, {low}, {high})"

CALCULUS: Mapping[str, Sequence[Strategy]] = {
    "derivative": (
        tool(0.23, "diff({f}, x)", comment="diff"),
        tool(0.06, "Derivative({f}, x).doit()", comment="a derivative, done"),
        tool(0.04, "expand(diff({f}, x))", comment="diff"),
        tool(0.18, "integrate({f}, x)", comment="integrate"),
        tool(0.16, "Derivative({f}, x)", comment="a derivative"),
        tool(0.13, "diff({f}, x, x)", comment="diff"),
        tool(0.09, "({f}).subs(x, 1)", comment="a value"),
        tool(0.03, "derive({f}, x)", "diff({f}, x)", comment="derive"),
        way(0.08, "derive({f}, x)", "submit_final_answer({f})", comment="derive"),
    ),
    "antiderivative": (
        tool(0.22, "integrate({f}, x)", comment="integrate"),
        tool(0.04, "Integral({f}, x).doit()", comment="an integral, done"),
        way(
            0.06,
            "F = integrate({f}, x)",
            "simplify(diff(F, x) - ({f}))",
            "submit_final_answer(F)",
            comment="integrate and check",
        ),
        tool(0.20, "diff({f}, x)", comment="diff"),
        tool(0.18, "Integral({f}, x)", comment="an integral"),
        tool(0.14, "integrate({f}, (x, 0, 1))", comment="integrate"),
        tool(0.07, "({f})*x", comment="times x"),
        tool(0.03, "antiderivative({f}, x)", "integrate({f}, x)", comment="antiderivative"),
        way(0.06, "antiderivative({f}, x)", "submit_final_answer({f})", comment="antiderivative"),
    ),
    "definite": (
        tool(0.23, f"integrate({{f}}, {_X})", comment="integrate from {low} to {high}"),
        tool(
            0.07,
            "F = integrate({f}, x)",
            "F.subs(x, {high}) - F.subs(x, {low})",
            comment="F at both ends",
        ),
        tool(0.04, f"Integral({{f}}, {_X}).doit()", comment="an integral, done"),
        tool(0.15, "integrate({f}, x)", comment="integrate"),
        tool(0.14, f"Integral({{f}}, {_X})", comment="an integral"),
        tool(0.10, f"integrate({{f}}, {_X}).n()", comment="a number"),
        tool(0.10, "integrate({f}, (x, {high}, {low}))", comment="integrate"),
        tool(0.09, "F = integrate({f}, x)", "F.subs(x, {high})", comment="F at the end"),
        tool(0.07, "({f}).subs(x, {high}) - ({f}).subs(x, {low})", comment="the difference"),
    ),
    "sum": (
        tool(0.24, f"summation({{f}}, {_K})", comment="summation"),
        tool(0.05, "sum({f} for k in range({low}, {high} + 1))", comment="add up to {high}"),
        tool(0.05, f"Sum({{f}}, {_K}).doit()", comment="a sum, done"),
        tool(0.02, *loop("for k in range({low}, {high} + 1):", "k >= {low}", "{f}"), "sum(found)"),
        tool(0.18, "sum({f} for k in range({low}, {high}))", comment="add up"),
        tool(0.18, f"Sum({{f}}, {_K})", comment="a sum"),
        tool(0.14, f"integrate({{f}}, {_K})", comment="integrate"),
        tool(0.08, "({f}).subs(k, {high})", comment="the last one"),
        way(0.06, f"sum({{f}}, {_K})", "submit_final_answer({high})", comment="sum"),
    ),
    "closed_sum": (
        tool(0.25, "summation({f}, (k, 1, n))", comment="summation to n"),
        tool(0.06, "Sum({f}, (k, 1, n)).doit()", comment="a sum, done"),
        tool(0.04, "s = summation({f}, (k, 1, n))", "factor(s)", comment="summation to n"),
        tool(0.16, "Sum({f}, (k, 1, n))", comment="a sum"),
        tool(0.14, "integrate({f}, (k, 1, n))", comment="integrate"),
        tool(0.14, "summation({f}, (k, 1, n - 1))", comment="summation"),
        tool(0.10, "({f}).subs(k, n)", comment="the last one"),
        tool(0.06, "summation({f}, (k, 1, 10))", comment="summation"),
        way(0.05, "sum({f} for k in range(1, n + 1))", "submit_final_answer(n)", comment="sum"),
    ),
}


# Chances of each habit, in 1.
SKILL = 0.5
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
