"""Tell lines that imitate the interpreter's output from honest ones.

Pure. Knows texts and Python's grammar. Does not know kernels, nor what a line did.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings

MAX_PARSED_CHARS = 2000

# What the interpreter alone writes: prompts, numbered outputs, tracebacks, its banner.
_SCREEN = re.compile(
    r"""\s*(\#+\s*)?(
        >\s*>\s*>
      | (In|Out)\s*\[\d+\]:
      | Traceback\ \(most\ recent\ call
      | File\ "<(stdin|string|module|ipython-input[^>]*)>",\ line\ \d
      | (NameError:\ name\ '\w+'\ is\ not\ defined
        |ZeroDivisionError:\ division\ by\ zero
        |IndexError:\ \w+\ index\ out\ of\ range
        |SyntaxError:\ invalid\ syntax
        |TypeError:\ unsupported\ operand\ type\(s\).*
        |\w+Error:\ '\w+'\ object\ (is\ not|has\ no|does\ not)\ .*)\s*$
      | Python\ 3\.\d+\.\d+\ .*\ on\ (linux|darwin|win32)
      | Type\ "help",\ "copyright"
      | </?(output|stdout|interpreter|repl)>
      | ```(output|text|console|stdout)\b
    )""",
    re.VERBOSE,
)
# `# ... and so on` is an honest comment, and no variable is called after an exception.
_SCREEN_CODE = re.compile(r"\.\.\.\s+\S|[A-Z]\w*(Error|Exception|Warning|Interrupt|Iteration): ")

# `# Output: 4` and `# => 4` show a value; `# Output: the roots` and `# => x is even` say something.
_SPEAKER = r"(the\s+)?(python|repl|interpreter|console|terminal|kernel|program|code)\s+"
_SPEAKS = r"(says|said|shows|showed|gives|gave|returns|returned|prints|printed|answers|answered)"
_LABEL = re.compile(
    rf"\s*\#+\s*((({_SPEAKER})?|the\s+)(output|stdout)|\[?out\]?|{_SPEAKER}{_SPEAKS}|"
    r"(this\s+)?(prints|printed))\s*(:|=>|->)",
    re.IGNORECASE,
)
# People use these words, too: a literal must follow them, as it must follow an arrow.
_CLAIM = re.compile(
    rf"\s*\#+\s*([-=]{{1,2}}>|<<<|[\u2192\u21d2=]|results?\s*[:=>]|\[out\]|{_SPEAKER}{_SPEAKS}\s|"
    r"((it|this|that)\s+)?(gives|yields|evaluates\s+to|printed)(\s|:)|(the\s+)?output\s+is\s)",
    re.IGNORECASE,
)
# Other characters than `>` that look like it.
_LOOK_ALIKES = str.maketrans(
    {"\u203a": ">", "\u276f": ">", "\u232a": ">", "\u00bb": ">>", "\u226b": ">>", "\u22d9": ">>>"}
)
_SHOWN = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.BinOp, ast.UnaryOp, ast.Call)


def imitates_output(source: str) -> bool:
    """True where a line imitates the interpreter's output.

    That is a prompt, an `Out[n]`, a traceback, a stock message of an exception, or a value behind
    `Output:`, an arrow, `=` or a word like `gives`. A bare value, `# 4`, is not: after a statement
    its output is there already, and before one it is a guess that a person would write down, too.
    """
    return any(map(_is_imitation, source.splitlines())) or _is_idle(source)


def begins_as_output(source: str) -> bool:
    """Say whether a source that runs imitates output in its first line or is idle: a prompt further
    down may be part of a docstring."""
    first = source.partition("\n")[0]
    return any(map(_is_imitation, first.splitlines())) or _is_idle(source)


def _is_imitation(line: str) -> bool:
    line = _as_read(line)
    return bool(_SCREEN.match(line) or _SCREEN_CODE.match(line)) or _labels_a_value(line)


def _as_read(line: str) -> str:
    """A line as a reader sees it: wide letters made narrow, invisible characters dropped."""
    shown = unicodedata.normalize("NFKC", line.replace("\t", " "))
    return "".join(one for one in shown if unicodedata.category(one)[0] not in "CM").translate(
        _LOOK_ALIKES
    )


def _is_idle(source: str) -> bool:
    """`'Out[1]: 4'` and `solve  # -> 4`: code that does nothing but carry an imitation."""
    tree = parse(source) if re.search("['\"#]", source) else None
    match tree:
        case ast.Module(
            body=[ast.Expr(value=ast.Name() | ast.Attribute() | ast.Constant() as node)]
        ):
            quoted = node.value if isinstance(node, ast.Constant) else ""
            last = source.encode().splitlines()[(node.end_lineno or 1) - 1]
            carried = [last[node.end_col_offset :].decode(), *str(quoted).splitlines()]
            return any(map(_is_imitation, carried))
        case _:
            return False


def _labels_a_value(line: str) -> bool:
    """`# Output: [2, x]`, `# Output:` and `# => 4`, but neither `# Output: roots` nor `# => x`."""
    if found := _LABEL.match(line):
        shown = line[found.end() :].strip()
        return not shown or _is_value(shown)
    found = _CLAIM.match(line)
    return found is not None and _is_literal(line[found.end() :].strip())


def _is_value(text: str) -> bool:
    match parse(text):
        case ast.Module(body=[ast.Expr(value=value)]):
            return isinstance(value, _SHOWN)
        case _:
            return False


def _is_literal(text: str) -> bool:
    """True for numbers, strings, True, None, and lists of them: no name stands in them."""
    tree = parse(text) if _is_value(text) else None
    return tree is not None and not any(isinstance(node, ast.Name) for node in ast.walk(tree))


def parse(source: str) -> ast.Module | None:
    """The tree of a source; None where there is none, or where it is over the bound."""
    if len(source) > MAX_PARSED_CHARS:
        return None
    with warnings.catch_warnings():
        # `"\d"` or `1 is 1` in a policy's line is not worth a warning in the trainer.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        # A NUL byte is a ValueError, deep nesting a MemoryError or RecursionError.
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
