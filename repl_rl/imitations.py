"""Tell a line that pretends to be what the interpreter writes from an honest one.

Floor 2. Pure. Knows texts and Python's grammar. Does not know kernels, nor what a line did.
"""

from __future__ import annotations

import ast
import re
import warnings

MAX_PARSED_CHARS = 2000

# What the interpreter alone writes: prompts, numbered outputs, tracebacks, its banner.
_SCREEN = re.compile(
    r"""\s*(\#+\s*)?(
        >>>
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
_LABEL = re.compile(
    r"\s*#+\s*((the\s+)?((python|repl|interpreter|console|program|code)\s+)?(output|stdout)|out|"
    r"(this\s+)?(prints|printed))\s*(:|=>|->)",
    re.IGNORECASE,
)
_ARROW = re.compile(r"\s*#+\s*([-=]{1,2}>|<<<|\u2192|\u21d2)")
_SHOWN = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.BinOp, ast.UnaryOp, ast.Call)


def imitates_output(source: str) -> bool:
    """True where a line pretends to be what the interpreter writes.

    That is a prompt, an `Out[n]`, a traceback, a stock message of an exception, or a value behind
    `Output:` or an arrow. A bare value, `# 4`, is none: after a statement its output stands there
    already, and before one it is a guess that a person would write down too.
    """
    return any(map(is_imitation, source.split("\n")))


def is_imitation(line: str) -> bool:
    return bool(_SCREEN.match(line) or _SCREEN_CODE.match(line)) or _labels_a_value(line)


def _labels_a_value(line: str) -> bool:
    """`# Output: [2, x]`, `# Output:` and `# => 4`, but neither `# Output: roots` nor `# => x`."""
    if found := _LABEL.match(line):
        shown = line[found.end() :].strip()
        return not shown or _is_value(shown)
    found = _ARROW.match(line)
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
