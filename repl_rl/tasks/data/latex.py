r"""What a gold answer in LaTeX may mean, spelled as Python that `grading.parse` reads.

    \frac{40 \sqrt{3}}{39} -> 40*sqrt(3)/39;   (1, 2) -> (1, 2) or Interval(1, 2, True, True)

The shape (lists, tuples, sets, units, percent) is read here, because libraries that look for an
answer in prose find one in any text. What is left, an expression, is parsed whole or refused by
latex2sympy2_extended, the parser of math-verify. Slow or hostile text may hang it, so this runs in
a grader's process alone, once for each gold.

Knows no submission and no verdict. Raises ValueError for what has no reading.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import sympy

MAX_READINGS = 6
_OPENING, _CLOSING = "([{", ")]}"

_DECORATION = re.compile(
    r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|displaystyle|quad|qquad)(?![A-Za-z])|\\[,;:! ]|~"
)
_WORDS = re.compile(r"\\(?:text|mathrm|textbf|mbox|textrm|operatorname)\s*\{([^{}]*)\}")
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)?(?:\.\d+)?")
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)")
_AND = re.compile(r",?\s+(?:and|or)\s+")
_UNIT = re.compile(
    r"(?<=[\d}\s)])\s*(?:square |cubic |sq\.? )?(?:units?|(?:milli|centi|kilo)?met(?:er|re)s?|"
    r"[cmk]?m|inch(?:es)?|in|feet|foot|ft|yards?|miles?|mi|degrees?|radians?|seconds?|sec|s|minutes?|min|"
    r"hours?|hrs?|h|days?|weeks?|months?|years?|dollars?|cents?|[mk]?g|(?:kilo)?grams?|pounds?|"
    r"lbs?|lit(?:er|re)s?|m[lL]|L|mph|km/h|m/s|points?|ways?|people|students?)"
    r"\.?\s*(?:\^\s*(?:\{\s*\d\s*\}|\d))?$"
)
_REFUSED = re.compile(
    r"\\(?:[lc]?dots|ldotp|overline|underline|equiv|bmod|pmod|mod|implies|iff|forall|exists)(?![a-z])|"
    r"\.\.\.|\d\s*_|(?<![_^\d])\d+ +\d"
)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
"""No command of LaTeX: two letters of prose would be read as a product."""
_PRODUCT = re.compile(r"[a-c]{0,2}[x-z]{0,3}|[kmn]{2,3}|[p-r]{2,3}|[rst]{2,3}|[uv]{2}")
"""Letters that one multiplies, as in `2xy`; they spell no word."""
_FUNCTIONS = {"sqrt", "pi", "log", "ln", "sin", "cos", "tan", "exp", "begin", "end"}
_MATRIX = re.compile(r"\\(begin|end)\{[bpvV]?matrix\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z]?[A-Za-z0-9_]*")


def readings(text: str) -> list[str]:
    """The meanings of a gold answer, the likeliest first, as text for `grading.parse`."""
    found = itertools.islice(dict.fromkeys(_readings(_plain(text))), MAX_READINGS)
    return list(found)


def _plain(text: str) -> str:
    r"""Without dollars, sizes of brackets, spaces of LaTeX and `x =` in front."""
    text = text.strip().removesuffix(".").strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening):
            text = text[len(opening) : -len(closing)]
            break
    text = _DECORATION.sub(" ", text.replace("{,}", ",").replace(r"\!", ""))
    text = text.replace("\\$", "").replace("$", " ").replace("\u2212", "-").replace("\n", " ")
    text = re.sub(r"\^\s*(\{\s*\\circ\s*\}|\\circ)|\\degree|\u00b0", " ", text)
    text = re.sub(r"\\[dtc]frac(?![a-z])", r"\\frac", text)
    text = _WORDS.sub(lambda found: f" {found[1].strip()} ", text)
    return re.sub(r"\s+", " ", text).strip().removesuffix(".").strip()


def _readings(text: str) -> Iterator[str]:
    if not text:
        raise ValueError("no answer is left of it")
    if (number := _number(text)) is not None:
        yield number
        parts = split_at_commas(text)
        if len(parts) > 1 and not any(part.startswith("0") for part in parts):
            yield from _listed(parts)
        return
    if (percent := re.fullmatch(r"(.*?)\s*(?:\\%|%|\\?\bpercent\b)", text)) is not None:
        whole = _one(percent[1])
        yield from (whole, f"({whole})/100")
        return
    text = _UNIT.sub("", text).strip() if not _is_lone_word(text) else text
    if (parts := split_at_commas(_AND.sub(", ", text)))[1:]:
        yield from _listed(parts)
    elif _is_enclosed(text):
        yield from _enclosed(text)
    else:
        yield from _whole(text)


def _listed(parts: Sequence[str]) -> Iterator[str]:
    """Answers between commas: in this order, or as a set where none is repeated."""
    spelled = [one for part in parts for one in _several(part)]
    yield f"[{', '.join(spelled)}]"
    if len(set(spelled)) == len(spelled):
        yield "{" + ", ".join(spelled) + "}"


def _enclosed(text: str) -> Iterator[str]:
    r"""(a, b), [a, b), \{a, b\}: a tuple, an interval, a set."""
    if text.startswith(r"\{"):
        parts = split_at_commas(text[2:-2])
        yield _set([one for part in parts if part for one in _several(part)])
        return
    left, right, parts = text[0], text[-1], split_at_commas(text[1:-1])
    if len(parts) == 1:
        yield from _whole(text)
        return
    values = ", ".join(_one(part) for part in parts)
    if left + right in ("()", "[]"):
        yield f"{left}{values}{right}"
    if len(parts) == 2:
        yield f"Interval({values}, {left == '('}, {right == ')'})"


def _whole(text: str) -> Iterator[str]:
    """One expression, which `+-` makes two of."""
    several = _several(text)
    yield several[0] if len(several) == 1 else _set(several)


def _one(text: str) -> str:
    (found, *more) = _several(text)
    if more:
        raise ValueError("several values where one is expected")
    return found


def _several(text: str) -> list[str]:
    """The values of a part between commas: one, but for a plus-minus and for braces."""
    text = text.strip()
    if (number := _number(text)) is not None:
        return [number]
    if _is_enclosed(text) and len(split_at_commas(text[1:-1])) > 1:
        return [next(_enclosed(text))]
    value = _value(_expression(text))
    values = list(value.args) if isinstance(value, sympy.FiniteSet) else [value]
    return [_spelled(one) for one in values]


def _expression(text: str) -> Any:  # sympy ships no types
    """The whole of `text` as the library reads it."""
    from latex2sympy2_extended import latex2sympy, normalize_latex
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from latex2sympy2_extended.math_normalization import NormalizationConfig

    bare = _MATRIX.sub("", re.sub(r"\\[A-Za-z]+", " ", _MATRIX.sub(" ", text)))
    words = {word for word in _WORD.findall(bare) if not _PRODUCT.fullmatch(word)} - _FUNCTIONS
    if words:
        raise ValueError(f"words where an expression is expected: {min(words)!r}")
    if found := _REFUSED.search(text):
        raise ValueError(f"{found[0].strip()!r} has no one value")
    exact = _DECIMAL.sub(lambda d: rf"{{\frac{{{d[1]}{d[2]}}}{{1{'0' * len(d[2])}}}}}", text)
    exact = re.sub(r"(?<![\\A-Za-z])(sqrt|pi|log|ln|sin|cos|tan|exp)(?![A-Za-z])", r"\\\1", exact)
    exact = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", exact)
    basic = NormalizationConfig(
        basic_latex=True,
        units=False,
        malformed_operators=True,
        nits=False,
        boxed="none",
        equations=False,
    )
    config = ConversionConfig(lowercase_symbols=False)
    try:
        return latex2sympy(
            normalize_latex(exact, basic), normalization_config=None, conversion_config=config
        )
    except Exception as error:  # noqa: BLE001 the library raises Exception itself
        raise ValueError(" ".join(str(error).split())[:80]) from None


def _value(found: Any) -> Any:
    """What `x = ...` and `x in ...` say of x; the imaginary unit; symbols without assumptions."""
    if isinstance(found, sympy.Equality):
        named = found.lhs.is_Symbol or isinstance(found.lhs, sympy.core.function.AppliedUndef)
        if not named:
            raise ValueError("an equation where a value is expected")
        found = found.rhs
    found = found.doit() if hasattr(found, "doit") else found
    symbols = {one: _symbol(one.name) for one in getattr(found, "free_symbols", ())}
    found = found.subs(symbols) if symbols else found
    heads = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)
    if getattr(found, "has", None) and found.has(sympy.nan, sympy.zoo, *heads):
        raise ValueError("a value that is not worked out, or is none")
    return found


def _symbol(name: str) -> Any:
    if name == "i":
        return sympy.I
    if not _NAME.fullmatch(name) or (len(name) > 1 and name[1].islower() and name not in _GREEK):
        raise ValueError(f"a name that is no letter: {name!r}")
    return sympy.Symbol(name)


_GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "rho", "sigma"),
    *("tau", "phi", "psi", "omega", "xi", "eta", "zeta", "kappa", "chi"),
} - {"lambda"}


def _spelled(value: Any) -> str:
    """As `grading.parse` reads it."""
    if isinstance(value, sympy.MatrixBase):
        return f"Matrix({[[sympy.Symbol(_spelled(x)) for x in row] for row in value.tolist()]})"
    if isinstance(value, sympy.Interval):
        ends = f"{_spelled(value.start)}, {_spelled(value.end)}"
        return f"Interval({ends}, {bool(value.left_open)}, {bool(value.right_open)})"
    if isinstance(value, sympy.FiniteSet):
        return _set([_spelled(one) for one in value.args])
    if isinstance(value, sympy.Union | sympy.Complement | sympy.Intersection):
        return f"{type(value).__name__}({', '.join(_spelled(one) for one in value.args)})"
    if value is sympy.S.EmptySet:
        return "set()"
    return str(value)


def _set(spelled: Sequence[str]) -> str:
    return "{" + ", ".join(spelled) + "}" if spelled else "set()"


def _number(text: str) -> str | None:
    """A plain number as Python has it: no commas, a decimal as a fraction."""
    if not _NUMBER.fullmatch(text) or not any(c.isdigit() for c in text):
        return None
    whole, _, decimals = text.replace(",", "").replace(" ", "").partition(".")
    if not decimals:
        return str(sympy.Integer(whole))
    return str(sympy.Rational(f"{whole or '0'}.{decimals}"))


def split_at_commas(text: str) -> list[str]:
    """Parts between the commas that stand in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _is_enclosed(text: str) -> bool:
    """Whether its first bracket closes with its last character, in whatever kind."""
    text = text.replace(r"\{", "{").replace(r"\}", "}")
    if len(text) < 2 or text[0] not in _OPENING or text[-1] not in _CLOSING:
        return False
    depths = itertools.accumulate((c in _OPENING) - (c in _CLOSING) for c in text)
    return all(depth > 0 for depth in itertools.islice(depths, len(text) - 1))


def _is_lone_word(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z]+", text) is not None
