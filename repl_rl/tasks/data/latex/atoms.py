r"""LaTeX as a flat list of atoms: numbers, letters, words, texts, marks, groups, commands.

    \left( 2\pi , \frac12 \right) -> ( 2 pi , frac[1][2] )

pylatexenc finds the structure. Here fonts, sizes and spaces are taken off, synonyms get one name,
and digits become numbers. An atom remembers the space before it, because only that tells `1,234`
from `1, 234`. Brackets are marks: functions on a list say what stands in them, and where commas and
`or` part the rest. Raises ValueError for what has no rule. Does not know what an answer is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from pylatexenc.latexwalker import (
    LatexCharsNode,
    LatexEnvironmentNode,
    LatexGroupNode,
    LatexMacroNode,
    LatexMathNode,
    LatexWalker,
    LatexWalkerError,
)
from pylatexenc.macrospec import EnvironmentSpec, LatexContextDb, MacroSpec

MAX_CHARS = 4000
MAX_DIGITS = 2000

Kind = Literal["number", "letter", "word", "text", "mark", "group", "command", "matrix"]
Gap = Literal["", "blank", "thin", "negative", "wide"]

OPENING = frozenset(("(", "[", "{", "langle", "lfloor", "lceil"))
CLOSING = frozenset((")", "]", "}", "rangle", "rfloor", "rceil"))


@dataclass(frozen=True, slots=True)
class Atom:
    """One piece of a formula."""

    kind: Kind
    text: str = ""
    """Digits, a name, a mark; of a text what it says, of a matrix its environment."""
    parts: tuple[Atoms, ...] = ()
    """Arguments of a command, cells of a matrix row by row, the inside of a group or a text."""
    gap: Gap = ""
    """Gap before it."""
    font: str = ""
    """The command that made it a text."""
    num_columns: int = 0


Atoms = tuple[Atom, ...]

_MARKS: Mapping[str, str] = (
    dict.fromkeys(("cdot", "times", "ast", "cdotp"), "*")
    | dict.fromkeys(("div", "slash"), "/")
    | dict.fromkeys(("le", "leq", "leqslant", "leqq"), "<=")
    | dict.fromkeys(("ge", "geq", "geqslant", "geqq"), ">=")
    | dict.fromkeys(("ne", "neq"), "!=")
    | dict.fromkeys(("lor", "vee"), "or")
    | dict.fromkeys(("land", "wedge"), "and")
    | dict.fromkeys(("lvert", "rvert", "vert", "mid"), "|")
    | dict.fromkeys(("emptyset", "varnothing"), "emptyset")
    | dict.fromkeys(("setminus", "backslash", "smallsetminus"), "setminus")
    | dict.fromkeys(("degree", "textdegree"), "deg")
    | dict.fromkeys(("$", "pounds", "euro", "textdollar"), "$")
    | dict.fromkeys(("\\", "cr", "newline"), "newline")
    | {"lt": "<", "gt": ">", "colon": ":", "%": "%", "prime": "'", "lparen": "(", "rparen": ")"}
    | {"lbrack": "[", "rbrack": "]", "{": "{", "lbrace": "{", "}": "}", "rbrace": "}"}
    | {name: name for name in ("pm", "mp", "in", "cup", "cap", "infty", "circ", "angle")}
    | {name: name for name in ("langle", "rangle", "lfloor", "rfloor", "lceil", "rceil")}
    | {"bigcup": "cup", "bigcap": "cap"}
)
"""Commands without arguments, under one name each."""
_CHARACTERS: Mapping[str, str] = (
    dict.fromkeys("\u00d7\u00b7\u22c5\u2217", "*")
    | dict.fromkeys("\u20ac\u00a3", "$")
    | dict.fromkeys("\u2032\u2019", "'")
    | {"\u2212": "-", "\u00f7": "/", "\u2264": "<=", "\u2265": ">=", "\u2260": "!="}
    | {"\u221e": "infty", "\u222a": "cup", "\u2229": "cap", "\u2208": "in"}
    | {"\u00b0": "deg", "\u00b1": "pm", "\u2205": "emptyset"}
    | {one: one for one in "+-*/^_!=<>()[],;:|&'"}
)
_UNICODE: Mapping[str, str] = (
    {"\u03c0": r"\pi ", "\u221a": r"\sqrt ", "\u00b2": "^{2}", "\u00b3": "^{3}"}
    | {"\u00bd": r"\frac12 ", "\u00bc": r"\frac14 ", "\u00be": r"\frac34 "}
    | dict.fromkeys("\u00a0\u2009\u202f", " ")
)
_GAPS: Mapping[str, Gap] = {
    **dict.fromkeys((",", ":", ";", ">", " ", "enspace", "thinspace"), "thin"),
    **dict.fromkeys(("quad", "qquad"), "wide"),
    **dict.fromkeys(("space", "nobreakspace", "medspace", "thickspace"), "thin"),
    **dict.fromkeys(("!", "negthinspace"), "negative"),
}
_SIZES = """
    big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm Bigm middle displaystyle
    textstyle limits scriptstyle nolimits mathstrut strut noindent /
    """
_DROPPED = frozenset(_SIZES.split())
_OF_TEXTS = """
    text textbf textit textrm textnormal textsf texttt textup mbox textsl textmd hbox emph textsc
    """
_OF_FORMULAS = """
    mathrm mathbf mathit mathsf mathtt mathnormal operatorname boldsymbol bm bold pmb operatorname*
    """
_DECLARED = frozenset(("rm", "bf", "it", "sf", "tt", "bfseries", "itshape", "rmfamily"))
PROSE = frozenset(_OF_TEXTS.split())
FONTS = _DECLARED.union(_OF_FORMULAS.split())
_BOXES = ("boxed", "fbox", "ensuremath")
_STRUCTURES: Mapping[str, str] = {
    **dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac"), "frac"),
    **dict.fromkeys(("binom", "dbinom", "tbinom"), "binom"),
    "sqrt": "sqrt",
    "overline": "overline",
    "mathbb": "mathbb",
    "Bbb": "mathbb",
}
_MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "psmallmatrix", "array")
_ENVIRONMENTS = frozenset((*_MATRICES, "bsmallmatrix", "cases"))
_LETTERS = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa mu nu xi rho sigma tau phi
    varphi chi psi omega pi Gamma Delta Theta Lambda Phi Psi Omega
    """
# As sympy spells lambda: Python has one of its own.
GREEK = {name: name for name in _LETTERS.split()} | {"lambda": "lamda"}
"""Commands that are letters, and the names of their symbols."""
_SHARED = """
    sin cos tan cot sec csc sinh cosh tanh coth log lg exp sech csch asin acos atan acot asec acsc
    asinh acosh atanh acoth asech acsch ln
    """
FUNCTIONS = (
    {name: name for name in _SHARED.split()}
    | {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
    | {f"{arc}{name}": f"a{name}" for arc in ("ar", "arc") for name in ("sinh", "cosh", "tanh")}
    | {"cosec": "csc", "tg": "tan", "ctg": "cot", "arctg": "atan"}
)
"""Commands that are functions, and their names in sympy."""
_PLAIN = {"sqrt", "pi", *FUNCTIONS} - {"lg", "tg"}
"""Words that stand for the command where the backslash is left out."""

_TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+(?![\d.A-Za-z]))?)|(?P<word>[A-Za-z]+)|"
    r"(?P<blank>[\s~]+)|(?P<other>.)",
    re.DOTALL,
)

_GROUP = re.compile(r"\d{3}(\.\d+)?")
_LENGTH = re.compile(r"\[\s*-?[\d.]+\s*(pt|em|ex|cm|mm|in)\s*\]")


def atoms_of(text: str, *, join_commas: bool = False) -> Atoms:
    """All of `text`; `1,234` as one number if commas between digits are to join them."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"more than {MAX_CHARS} characters")
    for character, spelled in _UNICODE.items():
        text = text.replace(character, spelled)
    try:
        walker = LatexWalker(_escaped(text), latex_context=_context(), tolerant_parsing=False)
        nodes, _, _ = walker.get_latex_nodes()
        return _numbered(tuple(_flat(nodes)), join_commas=join_commas)
    except LatexWalkerError as error:
        raise ValueError(f"no LaTeX: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def value_of(number: str) -> Fraction:
    """The exact value of a number atom, such as `1234`, `.5`, `1e-05` and `0.1(6)`."""
    plain, _, repeated = number.rstrip(")").partition("(")
    if not repeated:
        if abs(int(re.split("[eE]", plain)[1] if re.search("[eE]", plain) else 0)) > MAX_DIGITS:
            raise ValueError(f"{number} is too large or too small")
        return Fraction(plain)
    num_decimals = len(plain.partition(".")[2])
    share = Fraction(int(repeated), (10 ** len(repeated) - 1) * 10**num_decimals)
    return Fraction(plain.rstrip(".")) + share


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


def _escaped(text: str) -> str:
    """Escape `%` and a dollar of money, which are no comment and no start of a formula."""
    text = re.sub(r"(?<!\\)%", r"\\%", text)
    if len(re.findall(r"(?<!\\)\$", text)) % 2:
        text = re.sub(r"(?<!\\)\$(?=\s*-?[\d.])", r"\\$", text, count=1)
    return text


def _context() -> Any:  # pylatexenc ships no types
    context = LatexContextDb()
    one = (*PROSE, *FONTS - _DECLARED, *_BOXES, "left", "right", "overline", "mathbb", "Bbb")
    two = ("frac", "dfrac", "tfrac", "cfrac", "binom", "dbinom", "tbinom")
    macros = [MacroSpec(name, "{") for name in one] + [MacroSpec(name, "{{") for name in two]
    macros += [MacroSpec("sqrt", "[{"), MacroSpec("\\", "[")]
    environments = [EnvironmentSpec("array", "{")]
    context.add_context_category("formulas", macros=macros, environments=environments)
    context.set_unknown_macro_spec(MacroSpec(""))
    context.set_unknown_environment_spec(EnvironmentSpec(""))
    return context


def _flat(nodes: Sequence[Any]) -> Iterator[Atom]:
    """Atoms in their order, without spaces, which the atoms behind them remember."""
    gap: Gap = ""
    for atom in _spaced(nodes):
        if isinstance(atom, str):
            gap = atom if (atom != "blank" or not gap) and gap != "wide" else gap
        else:
            yield replace(atom, gap=gap or atom.gap)
            gap = ""


def _spaced(nodes: Sequence[Any]) -> Iterator[Atom | Gap]:
    """Atoms, and between them the kinds of their gaps."""
    for index, node in enumerate(nodes):
        match node:
            case LatexCharsNode(chars=chars):
                yield from _of_characters(chars)
            case LatexMathNode(nodelist=inside):
                yield from _spaced(inside)
                yield "blank"
            case LatexGroupNode(nodelist=inside):
                yield _group(inside)
            case LatexMacroNode(macroname=name) if name in _DECLARED:
                yield _text(nodes[index + 1 :], name)
                return
            case LatexMacroNode():
                yield from _of_macro(node)
            case LatexEnvironmentNode():
                yield _of_environment(node)
            case _:
                raise ValueError(f"{str(node)[:40]!r} is not read")


def _group(nodes: Sequence[Any]) -> Atom:
    """Braces; nothing but their text where it begins with a font, as in {\\bf 12}."""
    inside = tuple(_flat(nodes))
    is_text = len(inside) == 1 and inside[0].kind == "text" and inside[0].font in _DECLARED
    return inside[0] if is_text else Atom("group", parts=(inside,))


def _of_characters(characters: str) -> Iterator[Atom | Gap]:
    for token in _TOKEN.finditer(characters):
        text = token[0]
        if token.lastgroup == "blank":
            yield "blank"
        elif token.lastgroup == "number":
            yield Atom("number", text)
        elif token.lastgroup == "word":
            yield _word(text)
        elif text == ".":
            yield Atom("mark", ".")
        elif text in _CHARACTERS:
            yield Atom("mark", _CHARACTERS[text])
        else:
            raise ValueError(f"{text!r} is not read")


def _word(text: str) -> Atom:
    if text in _PLAIN:
        kind: Kind = "letter" if text == "pi" else "command"
        return Atom(kind, FUNCTIONS.get(text, text))
    if text.lower() in ("or", "and"):
        return Atom("mark", text.lower())
    return Atom("letter" if len(text) == 1 else "word", text)


def _of_macro(node: Any) -> Iterator[Atom | Gap]:
    name = node.macroname
    given = node.nodeargd.argnlist if node.nodeargd is not None else []
    arguments = [argument for argument in given if argument is not None]
    if name in _GAPS:
        yield _GAPS[name]
    elif name in ("left", "right") and len(arguments) == 1:
        yield from _side(tuple(_flat(arguments)))
    elif name in _MARKS:
        if arguments and not _LENGTH.fullmatch(arguments[0].latex_verbatim()):
            raise ValueError("brackets behind a line break")
        yield Atom("mark", _MARKS[name])
    elif name in _BOXES and len(arguments) == 1:
        yield Atom("group", parts=(_inside(arguments[0]),))
    elif (name in PROSE or name in FONTS) and arguments:
        yield _text(arguments[-1:], name) if _inside(arguments[-1]) else "blank"
    elif name == "sqrt" and len(given) == 2 and _inside(given[1]) == (Atom("mark", "("),):
        index = (_inside(given[0]),) if given[0] is not None else ()
        yield Atom("command", "sqrt", parts=index)  # sqrt(...), its argument stands behind it
        yield Atom("mark", "(")
    elif name in _STRUCTURES and arguments:
        parts = tuple(_numbered(_inside(argument)) for argument in arguments)
        yield Atom("command", _STRUCTURES[name], parts=parts)
    elif name in GREEK:
        yield Atom("letter", GREEK[name])
    elif name in FUNCTIONS:
        yield Atom("command", FUNCTIONS[name])
    elif name not in _DROPPED:
        raise ValueError(f"\\{name} is not read")
    if node.macro_post_space:
        yield "blank"


def _side(bracket: Atoms) -> Atoms:
    r"""Bracket behind \left and \right: nothing for a dot, and no relation."""
    names = {".": (), "<": (Atom("mark", "langle"),), ">": (Atom("mark", "rangle"),)}
    return names.get(bracket[0].text, bracket) if len(bracket) == 1 else bracket


def _inside(argument: Any) -> Atoms:
    nodes = argument.nodelist if isinstance(argument, LatexGroupNode) else [argument]
    return tuple(_flat(nodes))


def _text(nodes: Sequence[Any], font: str) -> Atom:
    """Atom of a text with what it says; formulas and formula fonts also have atoms."""
    if len(nodes) == 1 and isinstance(nodes[0], LatexGroupNode):
        nodes = nodes[0].nodelist
    spelled = "".join(_plain_text(node) for node in nodes)
    try:
        inside: Atoms = _numbered(tuple(_flat(nodes)))
    except ValueError:
        inside = ()
    if len(inside) == 1 and inside[0].kind == "command":
        return inside[0]  # \operatorname{arcsin}, \mathrm{sin}
    words = " ".join(spelled.split())
    if words.strip(", ").lower() in ("or", "and"):
        return Atom("mark", words.strip(", ").lower())
    return Atom("text", words, parts=(inside,), font=font)


def _plain_text(node: Any) -> str:
    match node:
        case LatexCharsNode(chars=chars):
            return str(chars).replace("~", " ")
        case LatexGroupNode(nodelist=inside) | LatexMathNode(nodelist=inside):
            return "".join(map(_plain_text, inside))
        case LatexMacroNode(macroname=name, nodeargd=given):
            if name in _GAPS:
                return "" if _GAPS[name] == "negative" else " "
            if name in PROSE or name in FONTS:
                return "".join(_plain_text(one) for one in given.argnlist if one) if given else ""
            if name in _MARKS and not str(_MARKS[name]).isalpha():
                return _MARKS[name]
    return str(node.latex_verbatim())


def _of_environment(node: Any) -> Atom:
    name = node.environmentname.rstrip("*")
    if name not in _ENVIRONMENTS:
        raise ValueError(f"a {node.environmentname} is not read")
    rows: list[list[list[Atom]]] = [[[]]]
    for atom in _flat(node.nodelist):
        if atom.kind == "mark" and atom.text == "newline":
            rows.append([[]])
        elif atom.kind == "mark" and atom.text == "&":
            rows[-1].append([])
        else:
            rows[-1][-1].append(atom)
    if rows[-1] == [[]]:
        rows.pop()
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise ValueError("a matrix of which the rows differ in length")
    cells = tuple(_numbered(tuple(cell)) for row in rows for cell in row)
    return Atom("matrix", name, parts=cells, num_columns=widths.pop())


# Numbers


def _numbered(atoms: Atoms, *, join_commas: bool = False) -> Atoms:
    """Join the groups of a number, read repeated digits, and make degrees one mark."""
    numbered: list[Atom] = []
    index, depth = 0, 0
    while index < len(atoms):
        atom = atoms[index]
        if atom.kind == "group":
            atom = replace(atom, parts=tuple(_numbered(part) for part in atom.parts))
        index += 1
        if atom.kind == "number":
            length, atom = _number(atoms, index - 1, join_commas=join_commas and depth == 0)
            index += length - 1
        elif _is(atom, "^") and index < len(atoms) and _is_circle(atoms[index]):
            atom, index = Atom("mark", "deg", gap=atom.gap), index + 1
        elif atom.kind == "mark":
            depth += (atom.text in ("(", "[", "{")) - (atom.text in (")", "]", "}"))
        numbered.append(atom)
    return tuple(numbered)


def _number(atoms: Atoms, start: int, *, join_commas: bool) -> tuple[int, Atom]:
    """(how many atoms, the number that they are)."""
    first = atoms[start]
    text, index = first.text, start + 1
    is_grouped = text.isdecimal() and len(text) <= 3 and text[0] != "0"
    while is_grouped and "." not in text:
        width = _separator(atoms, index, join_commas)
        if width is None or not _GROUP.fullmatch(atoms[index + width].text):
            break
        text += atoms[index + width].text
        index += width + 1
    rest = atoms[index : index + 2]
    if len(rest) == 2 and _is_braced_comma(rest[0]) and rest[1].kind == "number":
        if "." in text or not rest[1].text.isdecimal():
            raise ValueError(f"{{,}} behind {text} is neither thousands nor a decimal")
        text, index = f"{text}.{rest[1].text}", index + 2
    rest = atoms[index : index + 2]
    if rest and rest[0].text == "overline" and "." in text:
        text, index = f"{text}({_digits(rest[0])})", index + 1
    elif len(rest) == 2 and _is(rest[0], ".") and rest[1].text == "overline":
        text, index = f"{text}.({_digits(rest[1])})", index + 2
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    return index - start, Atom("number", text, gap=first.gap)


def _separator(atoms: Atoms, index: int, join_commas: bool) -> int | None:
    """Count the atoms between the digits before `index` and behind; None where none follow."""
    following = atoms[index : index + 2]
    if following and following[0].kind == "number" and following[0].gap in ("blank", "thin"):
        return 0
    if len(following) == 2 and following[1].kind == "number":
        mark, digits = following
        is_joined = digits.gap == "negative" or (join_commas and not digits.gap)
        if _is_braced_comma(mark) or (_is(mark, ",") and not mark.gap and is_joined):
            return 1
    return None


def _is_braced_comma(atom: Atom) -> bool:
    return atom.kind == "group" and [one.text for one in atom.parts[0]] == [","]


def _digits(atom: Atom) -> str:
    inside = atom.parts[0]
    if len(inside) != 1 or not inside[0].text.isdecimal():
        raise ValueError("a line over what are no digits")
    return inside[0].text


def _is(atom: Atom, mark: str) -> bool:
    return atom.kind == "mark" and atom.text == mark


def _is_circle(atom: Atom) -> bool:
    inside = atom.parts[0] if atom.kind == "group" else (atom,)
    return len(inside) == 1 and inside[0].kind == "mark" and inside[0].text in ("circ", "deg")
