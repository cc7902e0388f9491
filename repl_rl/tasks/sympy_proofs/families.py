"""All families by name, each with the rules that make its problems.

The rules of one call come from the modules of this folder, those of several lines from `wide`.
"""

from __future__ import annotations

from collections.abc import Mapping

from repl_rl.tasks.sympy_proofs import calculus, equation, identity, modular
from repl_rl.tasks.sympy_proofs.family import Family, Rule, one_call
from repl_rl.tasks.sympy_proofs.wide import (
    algebra,
    composite,
    equations,
    inequality,
    limit,
    ode,
    recurrence,
    sums,
)
from repl_rl.tasks.sympy_proofs.wide import calculus as wide_calculus
from repl_rl.tasks.sympy_proofs.wide import identity as wide_identity
from repl_rl.tasks.sympy_proofs.wide import modular as wide_modular

_RULES: Mapping[str, Mapping[str, Rule]] = {
    "identity": {
        **one_call(identity.KINDS, identity.grade, chances=identity.CHANCES),
        **wide_identity.RULES,
    },
    "equation": {
        **one_call(equation.KINDS, equation.grade, chances=equation.CHANCES),
        **equations.RULES,
    },
    "modular": {
        **one_call(modular.KINDS, modular.grade, chances=modular.CHANCES),
        **wide_modular.RULES,
    },
    "calculus": {
        **one_call(calculus.KINDS, calculus.grade, chances=calculus.CHANCES),
        **wide_calculus.RULES,
    },
    "sum": sums.RULES,
    "limit": limit.RULES,
    "inequality": inequality.RULES,
    "ode": ode.RULES,
    "recurrence": recurrence.RULES,
    "algebra": algebra.RULES,
    "composite": composite.RULES,
}

FAMILIES: Mapping[str, Family] = {
    name: Family(name=name, rules=rules) for name, rules in _RULES.items()
}
