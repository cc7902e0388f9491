r"""Tuples, intervals, sets of reals, matrices and relations: what brackets and signs stand for.

    [1, 2) \cup \{3\} -> Union(Interval(1, 2, False, True), {3})

A pair is a point and an interval. Whether its ends rise is not known here: an empty interval is
dropped where values are compared. How an element is read is the caller's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from repl_rl.tasks.data.latex.atoms import Atom, Atoms, flattened, is_enclosed, outside, split

Several = Callable[[Atoms], list[str]]
"""The texts of the values of one element."""

_OPERATIONS: Mapping[str, str] = {"cup": "Union", "cap": "Intersection", "setminus": "Complement"}
_NUMBERS: Mapping[str, str] = {"R": "Reals", "Z": "Integers", "Q": "Rationals", "C": "Complexes"}
"""Not the natural ones, of which nobody knows whether 0 is one."""
_INFINITE = "oo"
_MATRICES = ("pmatrix", "bmatrix", "Bmatrix", "matrix", "psmallmatrix", "bsmallmatrix")
_IN_BRACKETS = ("matrix", "smallmatrix", "array")


@dataclass(frozen=True, slots=True)
class Region:
    """A set of numbers, and as far as it is one of intervals, what it says of an unknown."""

    text: str
    ends: tuple[str, str, bool, bool] | None = None
    """Ends of an interval: left, right, and whether each is left out."""
    parts: tuple[Region, ...] = ()
    """Parts of a union."""

    def condition(self, name: str) -> str:
        """Condition on the name: `And(1 < x, x <= 2)`; empty for a set not made of intervals."""
        if self.parts:
            conditions = [part.condition(name) for part in self.parts]
            return f"Or({', '.join(conditions)})" if all(conditions) else ""
        if self.ends is None:
            return ""
        left, right, is_left_open, is_right_open = self.ends
        sides = []
        if _INFINITE not in left:
            sides.append(f"{left} {'<' if is_left_open else '<='} {name}")
        if _INFINITE not in right:
            sides.append(f"{name} {'<' if is_right_open else '<='} {right}")
        return f"And({', '.join(sides)})" if len(sides) == 2 else "".join(sides)


def is_region(atoms: Atoms) -> bool:
    """Say whether it is a set and nothing else: braces, unions, the reals."""
    if any(mark.text in _OPERATIONS for _, mark in outside(atoms)):
        return True
    if len(atoms) == 1:
        return atoms[0].text in ("mathbb", "emptyset") and atoms[0].kind != "text"
    return is_enclosed(atoms) and atoms[0].text == "{" and atoms[-1].text == "}"


def is_interval(atoms: Atoms) -> bool:
    """Say whether it is a pair in round or square brackets."""
    is_bracketed = is_enclosed(atoms) and atoms[0].text in "([" and atoms[-1].text in ")]"
    return is_bracketed and len(split(atoms[1:-1], (",", ";"))) == 2


def is_only_interval(atoms: Atoms) -> bool:
    """Say whether a pair is no point: half open, or endless."""
    is_mixed = (atoms[0].text == "(") is not (atoms[-1].text == ")")
    return is_mixed or any(one.text == "infty" for one in flattened(atoms))


def region(atoms: Atoms, several: Several) -> Region:
    """The set of numbers that it spells. Raises ValueError."""
    signs = [mark.text for _, mark in outside(atoms) if mark.text in _OPERATIONS]
    if len(set(signs)) > 1:
        raise ValueError("unions and differences without brackets")
    if not signs:
        return _plain(atoms, several)
    operands = [_plain(part, several) for part in split(atoms, _OPERATIONS)]
    if signs[0] == "setminus" and len(signs) > 1:
        raise ValueError("a difference of more than two sets")
    text = f"{_OPERATIONS[signs[0]]}({', '.join(one.text for one in operands)})"
    return Region(text, parts=tuple(operands) if signs[0] == "cup" else ())


def _plain(atoms: Atoms, several: Several) -> Region:
    if len(atoms) == 1 and atoms[0].text == "emptyset":
        return Region("set()")
    if len(atoms) == 1 and atoms[0].text == "mathbb":
        name = "".join(one.text for one in atoms[0].parts[0])
        if name not in _NUMBERS:
            raise ValueError(f"a set {name!r} that is not known")
        return Region(_NUMBERS[name])
    if is_interval(atoms):
        return interval(atoms, several)
    if is_enclosed(atoms) and atoms[0].text == "{" and atoms[-1].text == "}":
        inside = atoms[1:-1]
        parts = split(inside, (",", ";")) if inside else []
        return Region(set_text([one for part in parts for one in several(part)]))
    if is_enclosed(atoms) and any(mark.text in _OPERATIONS for _, mark in outside(atoms[1:-1])):
        return region(atoms[1:-1], several)
    raise ValueError("a set that is not known")


def interval(atoms: Atoms, several: Several) -> Region:
    """A pair in brackets."""
    ends = [several(part) for part in split(atoms[1:-1], (",", ";"))]
    if any(len(end) != 1 for end in ends):
        raise ValueError("several values where one is expected")
    left, right = (end[0] for end in ends)
    is_open = atoms[0].text == "(", atoms[-1].text == ")"
    text = f"Interval({left}, {right}, {is_open[0]}, {is_open[1]})"
    return Region(text, (left, right, *is_open))


def enclosed(atoms: Atoms, several: Several) -> Iterator[str]:
    """(a, b), [a, b), <a, b>: a tuple, a list, an interval, a vector."""
    left, right = atoms[0].text, atoms[-1].text
    values = [several(part) for part in split(atoms[1:-1], (",", ";"))]
    if any(len(value) != 1 for value in values):
        raise ValueError("several values where one is expected")
    inside = ", ".join(value[0] for value in values)
    if (left, right) == ("langle", "rangle"):
        yield f"({inside})"
        yield f"Matrix([{inside}])"
    elif (left, right) in (("(", ")"), ("[", "]")):
        pair = f"{left}{inside}{right}"
        both = [pair, *([interval(atoms, several).text] if is_interval(atoms) else [])]
        yield from both[::-1] if is_interval(atoms) and is_only_interval(atoms) else both
        return
    elif len(values) != 2 or left not in "([" or right not in ")]":
        raise ValueError("brackets that do not fit")
    if is_interval(atoms):
        yield interval(atoms, several).text


def set_text(values: Sequence[str]) -> str:
    return "{" + ", ".join(values) + "}" if values else "set()"


def matrix(atoms: Atoms, text: Callable[[Atoms], str]) -> Iterator[str] | None:
    """A matrix, with a factor in front or none; None where there is no matrix."""
    positions = [index for index, atom in enumerate(atoms) if atom.kind == "matrix"]
    if not positions:
        return None
    (index, *more) = positions
    before, atom, behind = atoms[:index], atoms[index], atoms[index + 1 :]
    is_bracketed = bool(before and behind) and is_enclosed((before[-1], behind[0]))
    if atom.text in _IN_BRACKETS and is_bracketed and before[-1].text in "([":
        before, behind = before[:-1], behind[1:]
    elif atom.text not in _MATRICES:
        raise ValueError(f"a {atom.text} that is no matrix")
    if more or behind:
        raise ValueError("a matrix among other terms")
    return _matrix(atom, _factor(before, text), text)


def _factor(before: Atoms, text: Callable[[Atoms], str]) -> str:
    if not before:
        return ""
    if [one.text for one in before] == ["-"]:
        return "-1"
    if before[-1].kind == "mark" and before[-1].text == "*":
        before = before[:-1]
    if any(mark.text in ("+", "-", "pm", "=") for index, mark in outside(before) if index):
        raise ValueError("a matrix in a sum")
    return text(before)


def _matrix(atom: Atom, factor: str, text: Callable[[Atoms], str]) -> Iterator[str]:
    cells = [f"({factor})*({text(cell)})" if factor else text(cell) for cell in atom.parts]
    width = atom.num_columns
    starts = range(0, len(cells), width)
    rows = [f"[{', '.join(cells[start : start + width])}]" for start in starts]
    yield f"Matrix([{', '.join(rows)}])"
    if 1 in (width, len(rows)) and len(cells) > 1:
        yield f"({', '.join(cells)})"


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
    positions = [index for index, one in enumerate(atoms) if one.text == "angle"]
    if positions and positions[0] <= 1 and all(_spelled(one) for one in atoms[positions[0] + 1 :]):
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


def condition(solved: Relation, text: Callable[[Atoms], str]) -> str:
    """A relation that is solved for an unknown on one of its sides."""
    spelled = []
    for sign, (left, right) in zip(solved.signs, itertools.pairwise(solved.sides), strict=True):
        if not (unknown_of(left) or unknown_of(right)):
            raise ValueError("a relation that is not solved for an unknown")
        name = {"=": "Eq", "!=": "Ne"}.get(sign)
        sides = text(left), text(right)
        spelled.append(f"{name}({', '.join(sides)})" if name else f" {sign} ".join(sides))
    if len(spelled) > 1 and {sign[0] for sign in solved.signs} not in ({"<"}, {">"}):
        raise ValueError("relations in several directions")
    return spelled[0] if len(spelled) == 1 else f"And({', '.join(spelled)})"
