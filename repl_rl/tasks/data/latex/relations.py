r"""Equations and inequalities: what stands before the sign, and what a condition says.

    P = (3, 4) -> the name P, the value (3, 4);   -1 \le x < 2 -> And(-1 <= x, x < 2)

A name is what one gives to a value: x, x_1, f(x), AB, \angle A, (x, y). Anything else in front of
`=` makes it an equation, which is no value.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from repl_rl.tasks.data.latex.atoms import Atom, Atoms
from repl_rl.tasks.data.latex.brackets import is_enclosed, outside, split

_SIGNS = frozenset(("=", "<", ">", "<=", ">=", "!=", "in"))
_NO_UNKNOWNS = frozenset(("e", "i", "E", "I", "O", "pi"))
_APPLIED = re.compile(r"'*(\^\(-1\))?\([A-Za-z0-9,]+\)|'+|\^\(-1\)|\^\(?T\)?")
"""Behind a letter: f(x), f^{-1}(x), f', A^{-1}, A^T."""
_LENGTH = re.compile(r"\|?[A-Z]{2,4}\|?")


@dataclass(frozen=True, slots=True)
class Relation:
    """a < b <= c: what stands between the signs, and the signs."""

    sides: tuple[Atoms, ...]
    signs: tuple[str, ...]

    @property
    def is_equation(self) -> bool:
        return bool(self.signs) and set(self.signs) == {"="}

    @property
    def is_inequality(self) -> bool:
        return bool(self.signs) and "in" not in self.signs


def has_relation(atoms: Atoms) -> bool:
    """Say whether a sign of a relation stands in no brackets."""
    return any(mark.text in _SIGNS for _, mark in outside(atoms))


def relation(atoms: Atoms) -> Relation:
    """Sides between the signs; without a sign all of it is one side."""
    signs = tuple(mark.text for _, mark in outside(atoms) if mark.text in _SIGNS)
    sides = tuple(split(atoms, _SIGNS))
    if not all(sides):
        raise ValueError("nothing on one side of a relation")
    return Relation(sides, signs)


def named(equation: Relation) -> tuple[list[str], Atoms]:
    """(the names, the value) of x = y = 2. Raises ValueError for other equations."""
    *before, value = equation.sides
    names = [name_of(side) for side in before]
    if len(before) == 1 and names == [""] and (name := name_of(value)):
        return [name], before[0]
    if not all(names):
        raise ValueError("an equation where a value is expected")
    return names, value


def name_of(atoms: Atoms) -> str:
    """Name of a value, as an identifier where it is one letter; empty for no name."""
    if (unknown := unknown_of(atoms)) or not atoms:
        return unknown
    if is_enclosed(atoms) and atoms[0].text == "(":
        names = [name_of(part) for part in split(atoms[1:-1], (",",))]
        return f"({', '.join(names)})" if len(names) > 1 and all(names) else ""
    if len(atoms) == 1 and atoms[0].kind == "text":
        return repr(atoms[0].text)
    places = [index for index, one in enumerate(atoms) if one.text == "angle"]
    if places and places[0] <= 1 and all(_spelled(one) for one in atoms[places[0] + 1 :]):
        return "angle"
    if len(atoms) == 1 and atoms[0].text == "overline":
        return name_of(atoms[0].parts[0])
    spelled = "".join(_spelled(one) or "?" for one in atoms)
    if _LENGTH.fullmatch(spelled):
        return f"|{spelled.strip('|')}|"
    for length in (1, 3):
        name = unknown_of(atoms[:length])
        behind = "".join(_spelled(one) or "?" for one in atoms[length:])
        if name and _APPLIED.fullmatch(behind):
            return f"{name}{behind}"
    return ""


def unknown_of(atoms: Atoms) -> str:
    """The name of an unknown that stands alone, such as x, x_1, theta; empty for anything else."""
    if not atoms or atoms[0].kind != "letter" or atoms[0].text in _NO_UNKNOWNS:
        return ""
    if len(atoms) == 1:
        return atoms[0].text
    if len(atoms) == 3 and atoms[1].text == "_":
        below = _spelled(atoms[2]).strip("()")
        return f"{atoms[0].text}_{below}" if below.isalnum() else ""
    return ""


def _spelled(atom: Atom) -> str:
    if atom.kind == "group":
        return f"({''.join(map(_spelled, atom.parts[0]))})"
    return atom.text if atom.kind in ("letter", "word", "number", "mark") else ""


def condition(found: Relation, text: Callable[[Atoms], str]) -> str:
    """A relation that is solved for an unknown on one of its sides."""
    spelled = []
    for sign, (left, right) in zip(found.signs, itertools.pairwise(found.sides), strict=True):
        if not (unknown_of(left) or unknown_of(right)):
            raise ValueError("a relation that is not solved for an unknown")
        name = {"=": "Eq", "!=": "Ne"}.get(sign)
        sides = text(left), text(right)
        spelled.append(f"{name}({', '.join(sides)})" if name else f" {sign} ".join(sides))
    if len(spelled) > 1 and {sign[0] for sign in found.signs} not in ({"<"}, {">"}):
        raise ValueError("relations in several directions")
    return spelled[0] if len(spelled) == 1 else f"And({', '.join(spelled)})"
