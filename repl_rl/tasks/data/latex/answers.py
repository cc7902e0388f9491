r"""An answer: its choices, lists, relations and sets, each with all that it may mean.

    x < -1 \text{ or } x > 3 -> Or(x < -1, x > 3);   1, 2 -> [1, 2], {1, 2}

The shape is decided from the outside in: choice, `or` and commas, relations, brackets, units. Each
part that is left is one `expression`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from repl_rl.tasks.data.latex.atoms import (
    PROSE,
    Atom,
    Atoms,
    atoms_of,
    flattened,
    is_enclosed,
    joint,
    outside,
    split,
)
from repl_rl.tasks.data.latex.expressions import Mode, expression, refuse_rounding
from repl_rl.tasks.data.latex.quantities import without_unit
from repl_rl.tasks.data.latex.sets import (
    Relation,
    condition,
    enclosed,
    has_relation,
    interval,
    is_interval,
    is_only_interval,
    is_region,
    matrix,
    name_of,
    named,
    region,
    relation,
    set_text,
    unknown_of,
)

MAX_READINGS = 8
_CHOICE = re.compile(r"\(\s*([A-J])\s*\)\.?|([A-J])\s*[.:)]")
_POWER_OF_TEN = re.compile(r"(?<![\d.])(\d+)(?=e[+-][1-9])")
"""Number before an exponent, such as `2e-5`, which may be 2e - 5."""
_ROOTS = ("x", "z")
"""Unknowns of which x_1 and x_2 may be named the other way round."""
_COMMAS = (",", ";")
_JOINTS = (",", ";", "or", "and")
_IDENTIFIER = re.compile(r"[A-Za-z]\w*")


def readings(text: str) -> list[str]:
    """The meanings of a gold answer, the likeliest first, as text for `grading.parse`."""
    texts: dict[str, None] = {}
    why = ""
    for atoms, mode in itertools.product(_variants(text.strip()), _MODES):
        try:
            texts |= dict.fromkeys(_ModeReader(mode).readings(atoms))
        except RecursionError:
            why = why or "nested too deep"
        except ValueError as error:
            why = why or str(error)
    if not texts:
        raise ValueError(why or "no answer is left of it")
    return list(itertools.islice(texts, MAX_READINGS))


_MODES = [
    Mode(log_base=base, is_percent=percent, letters_are_units=units)
    for base, percent, units in itertools.product((0, 10), (False, True), (True, False))
]


def _variants(text: str) -> list[Atoms]:
    """Read commas between digits as parts of numbers, and as commas; 2e-5 as a number, and not."""
    variants: list[Atoms] = []
    for spelled in dict.fromkeys((text, _POWER_OF_TEN.sub(r"\1 ", text))):
        split_up = atoms_of(spelled)
        has_zeros = any(one.kind == "number" and re.match(r"0\d", one.text) for one in split_up)
        variants.append(atoms_of(spelled, join_commas=True))
        if not has_zeros and split_up != variants[-1]:
            variants.append(split_up)
    return variants


def _unwrapped(atoms: Atoms) -> Atoms:
    """Without what surrounds an answer: braces, a font, a period."""
    while atoms:
        last, first = atoms[-1], atoms[0]
        if last.kind == "mark" and last.text in (".", "newline", ","):
            atoms = atoms[:-1]
            if atoms and atoms[-1].text == "." == last.text:
                raise ValueError("dots, which leave a part out")
        elif len(atoms) == 1 and (first.kind == "group" or _is_formula(first)):
            atoms = first.parts[0]
        else:
            break
    return atoms


def _is_formula(atom: Atom) -> bool:
    """Say whether it is a text, but of more than words."""
    words = ("letter", "word", "text")
    return atom.kind == "text" and any(one.kind not in words for one in atom.parts[0])


@dataclass(frozen=True, slots=True)
class _ModeReader:
    """Readings in one mode."""

    mode: Mode

    def readings(self, atoms: Atoms) -> Iterator[str]:
        """Meanings of a whole answer, or of what stands behind its name. Raises ValueError."""
        atoms = _unwrapped(atoms)
        if not atoms:
            raise ValueError("no answer is left of it")
        if (choice := _choice(atoms)) is not None:
            yield from self._chosen(*choice)
        elif (rows := _system_of(atoms)) is not None:
            yield from self.readings(rows)
        elif (alternatives := _systems_of(atoms)) is not None:
            yield from self._systems(alternatives)
        else:
            parts = split(atoms, _JOINTS)
            kind = self._related if any(map(has_relation, parts)) else self._listed
            yield from kind(parts, joint(atoms))

    def _chosen(self, letter: str, value: Atoms) -> Iterator[str]:
        """The letter, and what stands behind it as far as that can be read."""
        yield f"'{letter}'"
        try:
            values = list(self.readings(value))
        except ValueError:
            return
        yield from values

    # Relations

    def _related(self, parts: Sequence[Atoms], word: str) -> Iterator[str]:
        relations = [relation(part) for part in parts]
        first, *others = relations
        if all(one.is_equation for one in relations):
            yield from self._equations(relations, word)
        elif first.is_equation and not any(one.signs for one in others):
            yield from self._listed([named(first)[1], *parts[1:]], word)
        elif not others and first.signs == ("in",):
            yield from self._membership(first)
        elif all(one.is_inequality for one in relations):
            if others and not word:
                raise ValueError("relations with nothing but a comma between them")
            conditions = [condition(one, self._text) for one in relations]
            name = "Or" if word == "or" else "And"
            yield f"{name}({', '.join(conditions)})" if others else conditions[0]
        else:
            raise ValueError("a condition beside a value")

    def _equations(self, relations: Sequence[Relation], word: str) -> Iterator[str]:
        """x = 1; x = y = 1; x = 1, x = 2; x = 1, y = 2."""
        equations = [named(one) for one in relations]
        if len(equations) == 1:
            yield from self.readings(equations[0][1])
            yield from self._equation(*equations[0])
            return
        if any(len(names) > 1 for names, _ in equations):
            raise ValueError("several equations, one of them with several names")
        names, values = [one[0] for one, _ in equations], [value for _, value in equations]
        is_one = len(set(names)) == 1
        if is_one or {name.partition("_")[0] for name in names} in ({one} for one in _ROOTS):
            yield from self._listed(values, word)
            if is_one:
                return
        elif word == "or":
            raise ValueError("values of one name or of another")
        else:
            yield f"[{', '.join(map(self._single, values))}]"
        yield from self._mapping(names, values)

    def _equation(self, names: Sequence[str], value: Atoms) -> Iterator[str]:
        """y = 2x + 3 as the equation of a line; x = y = 1 as both values."""
        if len(split(value, _JOINTS)) > 1 or not all(map(_IDENTIFIER.fullmatch, names)):
            return
        if len(names) > 1:
            yield f"[{', '.join([self._single(value)] * len(names))}]"
            yield from self._mapping(names, [value] * len(names))
        elif _has_unknowns(self._quantity(value)[0]) and not (
            is_enclosed(value) or is_region(value)
        ):
            texts = [f"Eq({names[0]}, {one})" for one in self._several(value)]
            yield texts[0] if len(texts) == 1 else set_text(texts)

    def _mapping(self, names: Sequence[str], values: Sequence[Atoms]) -> Iterator[str]:
        if len(set(names)) == len(names) and all(map(_IDENTIFIER.fullmatch, names)):
            pairs = zip(names, map(self._single, values), strict=True)
            yield f"{{{', '.join(f'{name}: {value}' for name, value in pairs)}}}"

    def _systems(self, alternatives: Sequence[Atoms]) -> Iterator[str]:
        """x = 1, y = 2 or x = 2, y = 1."""
        tuples: list[str] = []
        mappings: list[str] = []
        orders = set()
        for alternative in alternatives:
            equations = [named(relation(one)) for one in split(alternative, (*_COMMAS, "and"))]
            names = [name for one, _ in equations for name in one]
            values = [value for _, value in equations]
            if len(names) != len(values) or len(set(names)) != len(names):
                raise ValueError("a system with several names for one value")
            orders.add(tuple(names))
            tuples.append(f"({', '.join(map(self._single, values))})")
            mappings += self._mapping(names, values)
        if len(orders) != 1:
            raise ValueError("systems of different unknowns")
        yield from _in_any_order(tuples)
        if mappings:
            yield f"[{', '.join(mappings)}]"

    def _membership(self, membership: Relation) -> Iterator[str]:
        """An unknown in a set: the set, and what it says of the unknown."""
        left, right = membership.sides
        if not name_of(left):
            raise ValueError("a set of what is no unknown")
        members = region(_unwrapped(right), self._several)
        yield members.text
        if (unknown := unknown_of(left)) and (text := members.condition(unknown)):
            yield text

    # Lists and single values

    def _listed(self, parts: Sequence[Atoms], word: str = "") -> Iterator[str]:
        """Answers between commas: in this order, or as a set where none is repeated."""
        if len(parts) == 1:
            yield from self._one(_unwrapped(parts[0]))
            return
        units = {unit.rstrip("s") for part in parts if (unit := self._quantity(part)[1])}
        if len(units) > 1:
            raise ValueError(f"values in several units: {', '.join(sorted(units))}")
        if all(map(is_interval, parts)) and any(map(is_only_interval, parts)):
            texts = [interval(part, self._several).text for part in parts]
            yield f"Union({', '.join(texts)})"
            yield f"[{', '.join(texts)}]"
            return
        spelled = [one for part in parts for one in self._several(part)]
        if word == "or" and len(set(spelled)) == 1:
            yield spelled[0]
        else:
            yield from _in_any_order(spelled)

    def _one(self, atoms: Atoms) -> Iterator[str]:
        """A part that is no list."""
        if (described := _described(atoms)) is not None:
            yield from self._built(*described)
        elif is_region(atoms):
            yield region(atoms, self._several).text
        elif _is_tuple(atoms):
            yield from enclosed(atoms, self._element)
        elif (rows := matrix(atoms, self._text)) is not None:
            yield from rows
        elif is_enclosed(atoms) and atoms[0].text == "(":
            yield from self.readings(atoms[1:-1])
        elif is_enclosed(atoms) and atoms[0].text == "[":
            refuse_rounding(atoms[1:-1])
            values = self._several(atoms[1:-1])
            yield from (*values[: len(values) == 1], f"[{', '.join(values)}]")
        else:
            values = self._several(atoms)
            yield values[0] if len(values) == 1 else set_text(values)

    def _built(self, name: Atoms, described: Atoms) -> Iterator[str]:
        """{x : x > 2}, {x in R | x > 2}: the condition on x."""
        if has_relation(name):
            membership = relation(name)
            name, domain = membership.sides[0], membership.sides[-1]
            is_real = region(domain, self._several).text == "Reals"
            if membership.signs != ("in",) or not is_real:
                raise ValueError("a set of other than real numbers")
        parts = split(described, _JOINTS)
        if not unknown_of(name) or not all(map(has_relation, parts)):
            raise ValueError("a set that is described, not given")
        if any(unknown_of(name) not in map(unknown_of, relation(part).sides) for part in parts):
            raise ValueError("a condition on something else")
        if len(parts) > 1 or relation(described).is_inequality:
            conditions = [condition(relation(part), self._text) for part in parts]
            name_of_all = "Or" if joint(described) == "or" else "And"
            several = f"{name_of_all}({', '.join(conditions)})"
            yield several if len(conditions) > 1 else conditions[0]
        else:
            yield from self._membership(relation(described))

    def _several(self, atoms: Atoms) -> list[str]:
        r"""The texts of a part's values: one, but where \pm makes two of it."""
        atoms = _unwrapped(atoms)
        if is_region(atoms):
            return [region(atoms, self._several).text]
        if _is_tuple(atoms):
            return [next(enclosed(atoms, self._element))]
        if (rows := matrix(atoms, self._text)) is not None:
            return [next(rows)]
        value, unit = self._quantity(atoms)
        num_signs = sum(one.kind == "mark" and one.text == "pm" for one in flattened(value))
        if num_signs > 1:
            raise ValueError("several plus-minus signs, which may go together or not")
        modes = [replace(self.mode, sign=sign) for sign in "+-"] if num_signs else [self.mode]
        texts = [expression(value, mode) for mode in modes]
        if unit == "%" and self.mode.is_percent:
            texts = [f"({text})/100" for text in texts]
        return list(dict.fromkeys(texts))

    def _single(self, atoms: Atoms) -> str:
        (text, *more) = self._several(atoms)
        if more:
            raise ValueError("several values where one is expected")
        return text

    def _element(self, atoms: Atoms) -> list[str]:
        """Element of a tuple: an angle there may be meant in radians."""
        if any(one.text == "deg" for one in flattened(atoms)):
            raise ValueError("an angle beside other values")
        return self._several(atoms)

    def _text(self, atoms: Atoms) -> str:
        return expression(atoms, self.mode)

    def _quantity(self, atoms: Atoms) -> tuple[Atoms, str]:
        return without_unit(_unwrapped(atoms), letters_are_units=self.mode.letters_are_units)


def _in_any_order(spelled: Sequence[str]) -> Iterator[str]:
    yield f"[{', '.join(spelled)}]"
    if len(set(spelled)) == len(spelled):
        yield set_text(spelled)


def _choice(atoms: Atoms) -> tuple[str, Atoms] | None:
    r"""(C, 12) of \textbf{(C)}\ 12 and (C) 12."""
    first, rest = atoms[0], atoms[1:]
    if first.kind == "text" and (match := _CHOICE.fullmatch(first.text)):
        return match[1] or match[2], rest
    if first.kind == "text" and first.font in PROSE and rest and re.fullmatch("[A-J]", first.text):
        return first.text, rest
    spelled = "".join(one.text for one in atoms[:3])
    if match := _CHOICE.fullmatch(spelled):
        rest = atoms[3:]
        if rest and rest[0].text in ("-", "+"):
            raise ValueError("a choice in front of a number, or a term of a sum")
        if not rest or rest[0].kind != "mark" or rest[0].text == "$":
            return match[1], rest
    return None


def _system_of(atoms: Atoms) -> Atoms | None:
    r"""The rows of \begin{cases} x = 1 \\ y = 2 \end{cases}, as parts between commas."""
    inside = atoms[1:] if atoms[0].kind == "mark" and atoms[0].text == "{" else atoms
    is_brace = len(inside) < len(atoms)
    if len(inside) != 1 or inside[0].kind != "matrix" or inside[0].num_columns != 1:
        return None
    if inside[0].text != ("array" if is_brace else "cases"):
        return None
    rows = [_unwrapped(row) for row in inside[0].parts]
    if not all(map(has_relation, rows)):
        raise ValueError("rows that are no equations")
    comma = Atom("mark", ",")
    return tuple(one for row in rows for one in (*row, comma))[:-1]


def _systems_of(atoms: Atoms) -> list[Atoms] | None:
    """Return what `or` parts, where commas part equations inside of that."""
    alternatives = [_unwrapped(one) for one in split(atoms, ("or",))]
    if len(alternatives) == 1:
        return None
    systems = [split(one, (*_COMMAS, "and")) for one in alternatives]
    is_system = all(len(one) > 1 and all(map(has_relation, one)) for one in systems)
    is_equations = is_system and all(relation(eq).is_equation for one in systems for eq in one)
    return alternatives if is_equations else None


def _described(atoms: Atoms) -> tuple[Atoms, Atoms] | None:
    """(x, x > 2) of {x : x > 2} and {x | x > 2}; None for other sets."""
    if not is_enclosed(atoms) or atoms[0].text != "{":
        return None
    inside = atoms[1:-1]
    for sign in (":", "|"):
        positions = [index for index, mark in outside(inside) if mark.text == sign]
        if len(positions) == 1:
            return inside[: positions[0]], inside[positions[0] + 1 :]
    return None


def _is_tuple(atoms: Atoms) -> bool:
    return is_enclosed(atoms) and len(split(atoms[1:-1], _COMMAS)) > 1


def _has_unknowns(atoms: Atoms) -> bool:
    return any(
        one.kind == "word" or (one.kind == "letter" and bool(unknown_of((one,))))
        for one in flattened(atoms)
    )
