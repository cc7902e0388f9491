r"""One expression: atoms -> Python, by precedence, each atom used once or the whole refused.

    \frac{40 \sqrt{3}}{39} -> 40*sqrt(3)/39;   \sin 30^\circ -> sin(30*pi/180)

What has two meanings is chosen by a `Mode`, or refused: 1/2x, \sin x/2, f(x). Numbers stay exact.
Nothing is computed here. Knows neither lists nor relations nor units.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from repl_rl.tasks.data.latex.atoms import FUNCTIONS, Atom, Atoms, flattened, outside, value_of
from repl_rl.tasks.data.latex.quantities import LETTERS, is_unit


@dataclass(frozen=True, slots=True)
class Mode:
    """Choices between meanings that hold for the whole answer."""

    log_base: int = 0
    r"""Base of \log without a base; 0: natural."""
    is_percent: bool = False
    """True where 50 % is 1/2, not 50."""
    letters_are_units: bool = False
    """True where the letter of `5 m` is a unit, not an unknown."""
    sign: str = ""
    r"""Sign that \pm stands for: + or -; empty: it is refused."""


_OPENING = {"(": ")", "[": "]", "|": "|", "lfloor": "rfloor", "lceil": "rceil"}
_ROUNDED = {"|": "Abs", "lfloor": "floor", "lceil": "ceiling"}
_TRIGONOMETRIC = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
_INVERSE = {
    name: f"a{name}" for name in (*_TRIGONOMETRIC, "sinh", "cosh", "tanh", "coth", "sech", "csch")
}
_OF_LETTERS = {"Gamma": "gamma", "zeta": "zeta"}
_APPLIED = ("f", "g", "phi", "varphi", "psi", "sigma", "tau", "mu", "Phi", "Psi", "Delta")
"""Letters in front of brackets that are functions, not factors. So are capitals."""
_CHOSEN = frozenset("CPA")
"""C_5^2 counts choices; it is no power."""
_VECTORS = frozenset("ijk")
_PRODUCT = re.compile(
    r"[a-c]{0,2}[x-z]{0,3}|[kmn]{2,3}|[p-r]{2,3}|[rst]{2,3}|[uv]{2}|r?h|[bhlw]{2,3}|"
    r"[kmnpr]x|[kn]t|abc|mgh|[a-dknt]i|i[a-ckntxyz]"
)
"""Letters that one multiplies, as in `2xy`; they spell no word."""


def expression(atoms: Atoms, mode: Mode) -> str:
    """The text of a Python expression. Raises ValueError for what is not one, whole."""
    try:
        tree = _Reader(atoms, mode).whole()
        text = ast.unparse(tree)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return re.sub(r" (\*\*|[*/]) ", r"\1", text)


def number(text: str) -> ast.expr:
    """A number atom as a fraction, exactly."""
    if len(text) > 1 and text.isdecimal() and text.startswith("0"):
        raise ValueError(f"{text} begins with a 0")
    value = value_of(text)
    whole = ast.Constant(value.numerator)
    if value.denominator == 1:
        return whole
    return ast.BinOp(whole, ast.Div(), ast.Constant(value.denominator))


def mixed(atoms: Atoms, start: int) -> tuple[int, ast.expr] | None:
    r"""(how many atoms, value) of 2\frac{1}{2} or 2 1/2; None for anything else."""
    if start + 1 >= len(atoms):
        return None
    whole, *rest = atoms[start : start + 4]
    if not (whole.kind == "number" and whole.text.isdecimal()):
        return None
    if rest[0].kind == "command" and rest[0].text == "frac":
        parts, length = rest[0].parts, 2
    elif len(rest) == 3 and rest[0].kind == "number" and rest[0].gap and rest[1].text == "/":
        parts, length = ((rest[0],), (rest[2],)), 4
    else:
        return None
    texts = [part[0].text for part in parts if len(part) == 1 and part[0].kind == "number"]
    if len(texts) != 2 or not all(text.isdecimal() for text in texts):
        return None
    above, below = map(int, texts)
    if not 0 < above < below:
        raise ValueError("a number and a fraction that are no mixed number")
    share = ast.BinOp(number(texts[0]), ast.Div(), number(texts[1]))
    return length, ast.BinOp(number(whole.text), ast.Add(), share)


class _Reader:
    """A place in a list of atoms, and what is read from there on."""

    def __init__(self, atoms: Atoms, mode: Mode, *, has_degrees: bool = False) -> None:
        self.atoms = atoms
        self.mode = mode
        self.index = 0
        self.has_degrees = has_degrees
        """True where a degree sign is a factor: in the argument of a sine."""

    def whole(self) -> ast.expr:
        if not self.atoms:
            raise ValueError("nothing where a value is expected")
        tree = self._sum()
        if self.index < len(self.atoms):
            raise ValueError(f"{described(self.atoms[self.index])} is not read here")
        return tree

    def _inside(self, atoms: Atoms) -> ast.expr:
        return _Reader(atoms, self.mode, has_degrees=self.has_degrees).whole()

    def _next(self, *marks: str) -> str:
        """The mark that stands here if it is one of these, taken; empty if it is none."""
        if self.index < len(self.atoms):
            atom = self.atoms[self.index]
            if atom.kind == "mark" and atom.text in marks:
                self.index += 1
                return atom.text
        return ""

    def _peek(self, offset: int = 0) -> Atom | None:
        index = self.index + offset
        return self.atoms[index] if index < len(self.atoms) else None

    # Sums and products

    def _sum(self) -> ast.expr:
        tree = self._signed(self._next("+", "-", "pm"), None)
        while mark := self._next("+", "-", "pm"):
            tree = self._signed(mark, tree)
        return tree

    def _signed(self, mark: str, before: ast.expr | None) -> ast.expr:
        if mark == "pm":
            if not self.mode.sign:
                raise ValueError("several values where one is expected")
            mark = self.mode.sign
        term = self._product()
        if before is None:
            return ast.UnaryOp(ast.USub(), term) if mark == "-" else term
        return ast.BinOp(before, ast.Sub() if mark == "-" else ast.Add(), term)

    def _product(self) -> ast.expr:
        product = self._first_factor()
        is_divided = False
        while True:
            if mark := self._next("*", "/"):
                is_divided = mark == "/"
                operator = ast.Div() if is_divided else ast.Mult()
                product = ast.BinOp(product, operator, self._signed_factor())
            elif self._is_factor():
                if is_divided:
                    raise ValueError("a factor behind a quotient, which may belong below")
                product = ast.BinOp(product, ast.Mult(), self._factor())
            else:
                return product

    def _signed_factor(self) -> ast.expr:
        sign = self._next("+", "-")
        factor = self._first_factor()
        return ast.UnaryOp(ast.USub(), factor) if sign == "-" else factor

    def _first_factor(self) -> ast.expr:
        """A mixed number is one, where no factor stands before it."""
        if (mixed_number := mixed(self.atoms, self.index)) is None:
            return self._factor()
        self.index += mixed_number[0]
        return mixed_number[1]

    def _is_factor(self) -> bool:
        """Say whether what stands here is multiplied with what stands before it."""
        atom = self._peek()
        if atom is None:
            return False
        if atom.gap == "wide" and (atom.kind != "mark" or atom.text in _OPENING):
            raise ValueError("a wide space, which parts two values")
        if atom.kind == "mark":
            return atom.text in _OPENING
        if atom.kind == "number" and not (atom.gap and self.atoms[self.index - 1].kind == "group"):
            raise ValueError(f"the number {atom.text} behind a factor")
        return True

    # Powers and what else stands behind a value

    def _factor(self) -> ast.expr:
        base = self.atoms[self.index] if self._peek() is not None else None
        tree = self._primary()
        is_power = False
        while True:
            if self._next("!"):
                if is_power:
                    raise ValueError("a factorial of a power without brackets")
                name = "factorial2" if self._next("!") else "factorial"
                if (atom := self._peek()) is not None and atom.text == "!":
                    raise ValueError("a factorial of a factorial without brackets")
                tree = _call(name, tree)
            elif self._is_power():
                if is_power:
                    raise ValueError("a power of a power without brackets")
                tree, is_power = self._power(base, tree), True
                self._refuse_function(base)
            elif self.has_degrees and self._next("deg"):
                tree = _times(tree, ast.parse("pi/180", mode="eval").body)
            else:
                return tree

    def _is_power(self) -> bool:
        if self._next("^"):
            return True
        stars = self._peek(), self._peek(1)
        is_python = all(one is not None and one.text == "*" for one in stars)
        if is_python and stars[1] is not None and not stars[1].gap:
            self.index += 2
            return True
        return False

    def _power(self, base: Atom | None, tree: ast.expr) -> ast.expr:
        exponent = self._exponent()
        is_bracket = base is not None and base.kind in ("mark", "group") and base.text != "infty"
        is_root = _is_numeric(exponent) and not _is_integer(exponent)
        if is_bracket and is_root and _is_numeric(tree) and _is_negative(tree):
            raise ValueError("a root of a negative number, spelled as a power")
        return ast.BinOp(tree, ast.Pow(), exponent)

    def _exponent(self) -> ast.expr:
        """A group, or one token; a number is read as long as it is."""
        sign = self._next("-", "+")
        atom = self._peek()
        if atom is None:
            raise ValueError("nothing in an exponent")
        if atom.kind == "mark" and atom.text not in ("(", "infty"):
            raise ValueError(f"{described(atom)} in an exponent")
        inside = atom.parts[0] if atom.kind == "group" else (atom,)
        is_index = len(inside) == 3 and _is_bracketed(inside)
        if is_index or [one.text for one in inside] == ["T"]:
            raise ValueError("a derivative, an index or a transpose, which is no power")
        tree = self._primary()
        return ast.UnaryOp(ast.USub(), tree) if sign == "-" else tree

    # What stands alone

    def _primary(self) -> ast.expr:
        atom = self._peek()
        if atom is None:
            raise ValueError("it ends where a value is expected")
        self.index += 1
        match atom.kind:
            case "number":
                if (following := self._peek()) is not None and following.text == "_":
                    raise ValueError("a number in another base")
                return number(atom.text)
            case "letter":
                return self._letter(atom)
            case "word":
                self._spell_out(atom)
                return self._primary()
            case "text":
                return self._dressed(atom)
            case "group":
                return self._inside(atom.parts[0])
            case "command":
                return self._command(atom)
            case "mark" if atom.text in _OPENING:
                return self._bracketed(atom)
            case "mark" if atom.text == "infty":
                return ast.Name("oo")
        raise ValueError(f"{described(atom)} where a value is expected")

    def _spell_out(self, atom: Atom) -> None:
        """Put the letters of a product in the place of its word."""
        following = self._peek()
        is_raised = following is not None and following.text == "^"
        run = atom.text.removesuffix("e") if is_raised else atom.text
        is_word = is_unit(atom.text) and atom.text not in LETTERS
        if is_word or not _PRODUCT.fullmatch(run):
            raise ValueError(f"words where an expression is expected: {atom.text!r}")
        self.index -= 1
        letters = tuple(Atom("letter", one) for one in atom.text)
        self.atoms = (*self.atoms[: self.index], *letters, *self.atoms[self.index + 1 :])

    def _letter(self, atom: Atom) -> ast.expr:
        name, following = atom.text, self._peek()
        if following is not None and following.kind == "mark":
            if following.text == "'":
                raise ValueError("a derivative that is not worked out")
            if following.text == "(" and name in _OF_LETTERS:
                return _call(_OF_LETTERS[name], self._primary())
            if following.text == "_":
                return self._subscripted(atom)
        self._refuse_function(atom)
        if name == "d" and following is not None and following.kind == "letter":
            raise ValueError("a differential")
        return letter(name)

    def _refuse_function(self, base: Atom | None) -> None:
        """f(x), P^2(A), y(0): brackets that hold an argument, not a factor."""
        following = self.atoms[self.index : self.index + 3]
        if base is None or base.kind != "letter" or not following or following[0].text != "(":
            return
        name = base.text
        closes = len(following) == 3 and following[2].text == ")"
        is_applied = closes and following[1].kind in ("letter", "number") and name != "pi"
        if is_applied or name in _APPLIED or name[0].isupper():
            raise ValueError(f"a function {name} that is not given")

    def _subscripted(self, letter_atom: Atom) -> ast.expr:
        name = letter_atom.text
        self.index += 1
        atom = self._peek()
        self.index += 1
        inside = atom.parts[0] if atom is not None and atom.kind == "group" else (atom,)
        texts = [one.text for one in inside if one is not None and one.kind != "mark"]
        below = "".join(texts)
        if len(texts) != len(inside) or not re.fullmatch(r"[A-Za-z0-9]+", below):
            raise ValueError(f"a subscript of {name} that is no name")
        following = self._peek()
        if name in _CHOSEN and following is not None and following.text == "^":
            raise ValueError(f"{name} with two indices")
        if name in ("i", "e"):
            raise ValueError(f"a constant {name} with a subscript")
        self._refuse_function(letter_atom)
        return ast.Name(f"{name}_{below}")

    def _dressed(self, atom: Atom) -> ast.expr:
        """A value in a font of its own; upright and bold letters have meanings of their own."""
        inside = atom.parts[0]
        kinds = {one.kind for one in inside}
        if not inside or "word" in kinds:
            raise ValueError(f"words where an expression is expected: {atom.text!r}")
        if kinds == {"letter"}:
            is_bold = atom.font in ("mathbf", "boldsymbol", "bm", "bold", "pmb", "bf", "textbf")
            is_upright = not is_bold and atom.font not in ("mathit", "mathnormal", "textit")
            if len(inside) > 1 or (is_bold and (atom.text in _VECTORS or atom.text.isupper())):
                raise ValueError(f"a name that is no unknown: {atom.text!r}")
            if is_upright and inside[0].text not in ("e", "i", "pi"):
                raise ValueError(f"an upright letter: {atom.text!r}")
        return self._inside(inside)

    def _bracketed(self, opening: Atom) -> ast.expr:
        depth, start = 1, self.index
        closing = _OPENING[opening.text]
        while depth:
            atom = self._peek()
            if atom is None:
                raise ValueError(f"{opening.text} that does not close")
            self.index += 1
            if atom.kind == "mark":
                depth += (atom.text == opening.text != closing) - (atom.text == closing)
        inside = self.atoms[start : self.index - 1]
        if opening.text == "[":
            refuse_rounding(inside)
        tree = self._inside(inside)
        return _call(_ROUNDED[opening.text], tree) if opening.text in _ROUNDED else tree

    # Commands

    def _command(self, atom: Atom) -> ast.expr:
        match atom.text:
            case "frac" if len(atom.parts) == 2:
                above, below = atom.parts
                _refuse_derivative(above, below)
                return ast.BinOp(self._inside(above), ast.Div(), self._inside(below))
            case "binom" if len(atom.parts) == 2:
                return _call("binomial", *map(self._inside, atom.parts))
            case "sqrt":
                return self._root(atom)
            case name if name in FUNCTIONS.values():
                return self._function(name)
        raise ValueError(f"{described(atom)} where a value is expected")

    def _root(self, atom: Atom) -> ast.expr:
        following = self._peek()
        is_called = following is not None and following.text == "(" and not following.gap
        if not (atom.parts or is_called):
            raise ValueError("a root of nothing")
        *index, below = (*atom.parts, ()) if is_called else atom.parts
        base = self._primary() if is_called else self._inside(below)
        if not index:
            return _call("sqrt", base)
        order = self._inside(index[0])
        if not (isinstance(order, ast.Constant) and isinstance(order.value, int)):
            raise ValueError("a root of which the order is no number")
        share = ast.BinOp(ast.Constant(1), ast.Div(), order)
        if not _is_numeric(base):
            return ast.BinOp(base, ast.Pow(), share)
        if (is_negative := _is_negative(base)) and order.value % 2 == 0:
            raise ValueError("an even root of a negative number")
        size = ast.UnaryOp(ast.USub(), base) if is_negative else base
        root = ast.BinOp(size, ast.Pow(), share)
        return ast.UnaryOp(ast.USub(), root) if is_negative else root

    def _function(self, name: str) -> ast.expr:
        base: ast.expr | None = None
        if name == "lg":
            name, base = "log", ast.Constant(10)
        elif name == "log":
            base = ast.Constant(self.mode.log_base) if self.mode.log_base else None
            if self._next("_"):
                base = self._primary()
        elif name == "ln":
            name = "log"
        exponent = self._exponent() if self._next("^") else None
        if isinstance(exponent, ast.UnaryOp):
            if ast.unparse(exponent) != "-1" or name not in _INVERSE:
                raise ValueError(f"a negative power of {name}")
            name, exponent = _INVERSE[name], None
        tree = _call(name, self._argument(is_angle=name in _TRIGONOMETRIC))
        if base is not None:
            tree = ast.BinOp(tree, ast.Div(), _call("log", base))
        return tree if exponent is None else ast.BinOp(tree, ast.Pow(), exponent)

    def _argument(self, *, is_angle: bool) -> ast.expr:
        outside, self.has_degrees = self.has_degrees, is_angle
        try:
            return self._argument_inside()
        finally:
            self.has_degrees = outside

    def _argument_inside(self) -> ast.expr:
        """Read an argument in brackets; or all factors up to the next function, undivided."""
        atom = self._peek()
        if atom is not None and (atom.kind == "group" or atom.text in ("(", "[")):
            tree = self._primary()
            following = self._peek()
            is_followed = following is not None and following.kind in ("letter", "word", "group")
            if atom.kind == "group" and is_followed and not _is_bracketed(atom.parts[0]):
                raise ValueError("a factor behind the argument of a function")
            return tree
        sign = self._next("-")
        argument = self._first_factor()
        while (atom := self._peek()) is not None and self._is_factor():
            if atom.kind == "command" and atom.text in FUNCTIONS.values():
                break
            if atom.kind == "mark":
                raise ValueError("brackets behind the argument of a function")
            argument = _times(argument, self._factor())
        following = self._peek(1)
        is_quotient = atom is not None and atom.text == "/"
        if is_quotient and not (following is not None and following.kind == "command"):
            raise ValueError("a quotient that may be inside of a function or outside")
        return ast.UnaryOp(ast.USub(), argument) if sign else argument


def refuse_rounding(inside: Atoms) -> None:
    """[n/2] is a floor as often: square brackets that group nothing, around an unknown."""
    is_sum = any(mark.text in ("+", "-", "pm") for index, mark in outside(inside) if index)
    if not is_sum and any(one.kind in ("letter", "word") for one in flattened(inside)):
        raise ValueError("square brackets, which may round down")


def letter(name: str) -> ast.expr:
    """An unknown or a constant, as grading reads it."""
    if name in ("i", "e"):
        return ast.Name("I" if name == "i" else "E")
    if name in ("E", "I", "O"):
        raise ValueError(f"{name} is a name of sympy's own")
    return ast.Name(name)


def described(atom: Atom) -> str:
    """Name of an atom in an error."""
    return repr(atom.text or atom.kind)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(arguments), [])


def _times(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.BinOp(left, ast.Mult(), right)


def _is_numeric(tree: ast.expr) -> bool:
    return all(
        node.id in ("pi", "E", "I", "sqrt", "log")
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
    )


def _is_negative(tree: ast.expr) -> bool:
    """Say whether a real number is negative. Raises ValueError for one that is not real."""
    from repl_rl.grading.parse import Malformed, parse

    try:
        value = parse(ast.unparse(tree))
        if value.is_real:
            return bool(value.is_negative)
    except (Malformed, AttributeError):
        pass
    raise ValueError("a root of a number that is not real")


def _is_bracketed(atoms: Atoms) -> bool:
    return bool(atoms) and atoms[0].text in ("(", "[") and atoms[-1].text in (")", "]")


def _is_integer(tree: ast.expr) -> bool:
    return re.fullmatch(r"-?\d+", ast.unparse(tree)) is not None


def _refuse_derivative(above: Atoms, below: Atoms) -> None:
    is_d = [part[0].text in ("d", "partial") for part in (above, below) if part]
    if len(is_d) == 2 and all(is_d) and len(below) > 1:
        raise ValueError("a derivative that is not worked out")
