"""All families by name, each with the rules that make its problems.

The rules of one call come from the modules of this folder, those of several lines from `wide`.
"""

from __future__ import annotations

from collections.abc import Mapping

from repl_rl.tasks.sympy_proofs import calculus, equation, identity, modular
from repl_rl.tasks.sympy_proofs.family import Family, Rule, one_call
from repl_rl.tasks.sympy_proofs.wide import equations, recurrence, sums
from repl_rl.tasks.sympy_proofs.wide import modular as wide_modular

_RULES: Mapping[str, Mapping[str, Rule]] = {
    "identity": one_call(identity.KINDS, identity.grade),
    "equation": one_call(equation.KINDS, equation.grade) | dict(equations.RULES),
    "modular": one_call(modular.KINDS, modular.grade) | dict(wide_modular.RULES),
    "calculus": one_call(calculus.KINDS, calculus.grade),
    "recurrence": recurrence.RULES,
    "sum": sums.RULES,
}

FAMILIES: Mapping[str, Family] = {
    name: Family(name=name, rules=rules) for name, rules in _RULES.items()
}
