"""Scripts that answer in whole numbers. Letters in braces are numbers of the statement.

`modinv`, `crt` and `phi` are not imported by the prompt: a NameError follows, and what is done
after it decides whether the script is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repl_rl.tasks.sympy_proofs.strategies.strategy import Strategy, loop, tool, way

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
        tool(0.19, "mod_inverse({a}, {m})*{b} % {m}", thought="inverse times {b}, mod {m}"),
        tool(0.05, "[n for n in range({m}) if ({a}*n - {b}) % {m} == 0][0]", thought="try all n"),
        tool(0.02, *loop("for n in range({m}):", "{a}*n % {m} == {b}", "n"), "found[0]"),
        tool(0.03, "modinv({a}, {m})", "mod_inverse({a}, {m})*{b} % {m}", thought="modinv"),
        tool(0.16, "mod_inverse({a}, {m})*{b}", thought="inverse times {b}"),
        tool(0.15, "solve({a}*n - {b}, n)", thought="solve for n"),
        tool(0.12, "{a}*{b} % {m}", thought="the product"),
        tool(0.10, "mod_inverse({a}, {m})", thought="the inverse"),
        way(0.10, "modinv({a}, {m})", "submit_final_answer({b})", thought="modinv"),
        way(0.05, "submit_final_answer({b})", thought="a guess"),
    ),
    "power": (
        tool(0.22, "pow({a}, {e}, {m})", thought="power mod {m}"),
        tool(0.07, "{a}**{e} % {m}", thought="the remainder"),
        tool(0.15, "{a}*{e} % {m}", thought="the product"),
        tool(0.15, "pow({a}, {m}, {e})", thought="power"),
        tool(0.14, "{a}**({e} % {m})", thought="a smaller power"),
        tool(0.10, "Mod({a}, {m})", thought="mod {m}"),
        tool(0.03, "powmod({a}, {e}, {m})", "pow({a}, {e}, {m})", thought="powmod"),
        way(0.09, "powmod({a}, {e}, {m})", "submit_final_answer(1)", thought="powmod"),
        way(0.05, "submit_final_answer(1)", thought="a guess"),
    ),
    "inverse": (
        tool(0.19, "mod_inverse({a}, {m})", thought="mod_inverse"),
        tool(0.07, "pow({a}, -1, {m})", thought="power -1 mod {m}"),
        tool(0.04, "modinv({a}, {m})", "mod_inverse({a}, {m})", thought="modinv"),
        tool(0.15, "mod_inverse({m}, {a})", thought="mod_inverse"),
        tool(0.14, "Rational(1, {a})", thought="one over {a}"),
        tool(0.12, "{m} - {a}", thought="the difference"),
        tool(0.12, "{m} % {a}", thought="the remainder"),
        way(0.10, "modinv({a}, {m})", "submit_final_answer({a})", thought="modinv"),
        way(0.04, "submit_final_answer({a})", thought="a guess"),
    ),
    "order": (
        tool(0.22, "n_order({a}, {m})", thought="n_order"),
        tool(0.05, "[n for n in range(1, {m}) if {a}**n % {m} == 1][0]", thought="try all n"),
        tool(0.05, "order({a}, {m})", "n_order({a}, {m})", thought="order"),
        tool(0.18, "totient({m})", thought="totient"),
        tool(0.13, "mod_inverse({a}, {m})", thought="inverse"),
        tool(0.13, "{a}**{m} % {m}", thought="a power"),
        tool(0.12, "n_order({m}, {a})", "submit_final_answer({m})", thought="n_order"),
        way(0.10, "order({a}, {m})", "submit_final_answer({m})", thought="order"),
    ),
    "remainders": (
        tool(0.22, "len({{(n**2 + {a}*n) % {m} for n in range({m})}})", thought="count a set"),
        tool(0.04, "v = [(n**2 + {a}*n) % {m} for n in range({m})]", "len(set(v))"),
        tool(0.19, "len([(n**2 + {a}*n) % {m} for n in range({m})])", thought="count a list"),
        tool(0.18, "len({{n**2 + {a}*n for n in range({m})}})", thought="count a set"),
        tool(0.10, "len(quadratic_residues({m}))", thought="residues"),
        tool(0.13, "(n**2 + {a}*n) % {m}", thought="mod {m}"),
        tool(0.10, "len({{(n**2 + {a}*n) % {m} for n in range({a})}})", thought="count a set"),
    ),
    "gcd": (
        tool(0.21, "gcd({a}, {b})", thought="gcd"),
        tool(0.06, "igcd({a}, {b})", thought="igcd"),
        tool(0.02, "factorint({a})", "factorint({b})", "gcd({a}, {b})", thought="factor both"),
        tool(0.20, "lcm({a}, {b})", thought="lcm"),
        tool(0.17, "{a} % {b}", thought="the remainder"),
        tool(0.14, "abs({a} - {b})", thought="the difference"),
        tool(0.10, "gcd({a}*{b})", "submit_final_answer({b})", thought="gcd"),
        tool(0.03, "hcf({a}, {b})", "gcd({a}, {b})", thought="hcf"),
        way(0.07, "hcf({a}, {b})", "submit_final_answer(1)", thought="hcf"),
    ),
    "lcm": (
        tool(0.19, "lcm({a}, {b})", thought="lcm"),
        tool(0.05, "ilcm({a}, {b})", thought="ilcm"),
        tool(0.04, "{a}*{b}//gcd({a}, {b})", thought="product over gcd"),
        tool(0.24, "{a}*{b}", thought="the product"),
        tool(0.22, "gcd({a}, {b})", thought="gcd"),
        tool(0.12, "max({a}, {b})", thought="the larger"),
        tool(0.03, "scm({a}, {b})", "lcm({a}, {b})", thought="scm"),
        way(0.09, "scm({a}, {b})", "submit_final_answer({a})", thought="scm"),
    ),
    "totient": (
        tool(0.20, "totient({m})", thought="totient"),
        tool(0.04, "len([n for n in range({m}) if igcd(n, {m}) == 1])", thought="count them"),
        tool(0.05, "phi({m})", "totient({m})", thought="phi"),
        tool(0.18, "divisor_count({m})", thought="divisors"),
        tool(0.17, "{m} - 1", thought="all but one"),
        tool(0.16, "len(primefactors({m}))", thought="prime factors"),
        tool(0.08, "primepi({m})", thought="primes"),
        way(0.08, "phi({m})", "submit_final_answer({m})", thought="phi"),
    ),
    "divisor_sum": (
        tool(0.19, "divisor_sigma({m})", thought="divisor_sigma"),
        tool(0.09, "sum(divisors({m}))", thought="sum of divisors"),
        tool(0.03, "divisors({m})", "sum(_)", thought="list them"),
        tool(0.18, "divisor_count({m})", thought="divisors"),
        tool(0.17, "sum(primefactors({m}))", thought="prime factors"),
        tool(0.18, "divisors({m})", thought="divisors"),
        tool(0.08, "factorint({m})", thought="factor"),
        tool(0.03, "sigma({m})", "divisor_sigma({m})", thought="sigma"),
        way(0.07, "sigma({m})", "submit_final_answer({m})", thought="sigma"),
    ),
    "two_congruences": (
        tool(
            0.20,
            "[n for n in range({p}*{q}) if n % {p} == {a} and n % {q} == {b}][0]",
            thought="try all n below {p}*{q}",
        ),
        tool(
            0.06,
            "crt([{p}, {q}], [{a}, {b}])",
            "from sympy.ntheory.modular import crt",
            "crt([{p}, {q}], [{a}, {b}])[0]",
            thought="crt",
        ),
        tool(
            0.03,
            *loop("for n in range({p}*{q}):", "n % {p} == {a} and n % {q} == {b}", "n"),
            "found[0]",
        ),
        way(0.18, "crt([{p}, {q}], [{a}, {b}])", "submit_final_answer({a})", thought="crt"),
        tool(0.18, "{a}*{q} + {b}*{p}", thought="mix them"),
        tool(0.16, "[n for n in range(99) if n % {p} == {a}][0]", thought="the first one"),
        tool(0.10, "solve(n - {a}, n)", thought="solve for n"),
        way(0.08, "submit_final_answer({a} + {b})", thought="the sum"),
    ),
}
