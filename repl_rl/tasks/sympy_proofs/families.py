"""All families by name, and which modules hold the rules that make their problems.

The rules of one call stand in modules of this folder, those of several lines in `wide`. A module is
loaded when a problem of its tiers is drawn or graded.
"""

from __future__ import annotations

from collections.abc import Mapping

from repl_rl.tasks.sympy_proofs.family import Family

_ALL = (1, 2, 3, 4, 5)
_LATER = _ALL[1:]

_MODULES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "identity": {"identity": (1,), "wide.identity": _LATER},
    "equation": {"equation": (1,), "wide.equations": _LATER},
    "modular": {"modular": (1,), "wide.modular": _LATER},
    "calculus": {"calculus": (1,), "wide.calculus": _LATER},
    "sum": {"wide.sums": _ALL},
    "limit": {"wide.limit": _ALL},
    "inequality": {"wide.inequality": _ALL},
    "ode": {"wide.ode": _ALL},
    "recurrence": {"wide.recurrence": _ALL},
    "algebra": {"wide.algebra": _ALL},
    "composite": {"wide.composite": (3, 4, 5)},
}

FAMILIES = {name: Family(name=name, modules=modules) for name, modules in _MODULES.items()}
