"""Brackets in a list of atoms: what stands in them, and where commas and `or` part the rest.

Knows no meaning of what stands between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from repl_rl.tasks.data.latex.atoms import Atom, Atoms

OPENING = frozenset(("(", "[", "{", "langle", "lfloor", "lceil"))
CLOSING = frozenset((")", "]", "}", "rangle", "rfloor", "rceil"))


def outside(atoms: Atoms) -> Iterator[tuple[int, Atom]]:
    """Marks that stand in no brackets, with their places. Raises ValueError where none closes."""
    depth = 0
    for index, atom in enumerate(atoms):
        if atom.kind != "mark":
            continue
        depth -= atom.text in CLOSING
        if depth < 0:
            raise ValueError("a bracket that was not opened")
        if depth == 0 and atom.text not in CLOSING and atom.text not in OPENING:
            yield index, atom
        depth += atom.text in OPENING
    if depth:
        raise ValueError("a bracket that does not close")


def split(atoms: Atoms, marks: Collection[str]) -> list[Atoms]:
    """Parts between these marks; a comma in front of `or` and `and` parts nothing by itself."""
    positions = [(index, atom.text) for index, atom in outside(atoms) if atom.text in marks]
    parts, start = [], 0
    for index, mark in [*positions, (len(atoms), "")]:
        part = atoms[start:index]
        is_word_behind_comma = mark in ("or", "and") and start and atoms[start - 1].text == ","
        if part or not is_word_behind_comma:
            parts.append(part)
        start = index + 1
    if len(parts) > 1 and not all(parts):
        raise ValueError("nothing between two commas")
    return parts


def joint(atoms: Atoms) -> str:
    """`or`, `and`, or neither. Raises ValueError for both."""
    words = {atom.text for _, atom in outside(atoms)} & {"or", "and"}
    if len(words) > 1:
        raise ValueError("`and` beside `or`")
    return "".join(words)


def is_enclosed(atoms: Atoms) -> bool:
    """Say whether its first bracket closes with its last atom, in whatever kind."""
    if len(atoms) < 2 or atoms[0].text not in OPENING or atoms[-1].text not in CLOSING:
        return False
    if atoms[0].kind != "mark" or atoms[-1].kind != "mark":
        return False
    depth = 0
    for atom in atoms[:-1]:
        if atom.kind == "mark":
            depth += (atom.text in OPENING) - (atom.text in CLOSING)
        if depth == 0:
            return False
    return depth == 1


def flattened(atoms: Sequence[Atom]) -> list[Atom]:
    """All atoms, those inside of others too."""
    flat = []
    for atom in atoms:
        flat.append(atom)
        for part in atom.parts:
            flat += flattened(part)
    return flat
