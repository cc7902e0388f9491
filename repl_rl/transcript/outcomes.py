"""Name what became of a line, from its text, its execution and what ran before.

A line that only imitates a prompt or an output is told by its shape. Decides on the trusted side:
here a kernel's answers are only data. Knows no tokens.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Collection, Sequence

from repl_rl.records import OutcomeKind
from repl_rl.transcript.format import SUBMIT
from repl_sandbox.statements import Syntax
from repl_sandbox.types import ExecStatus, Execution

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


def _is_imitation(line: str) -> bool:
    line = _as_read(line)
    return bool(_SCREEN.match(line) or _SCREEN_CODE.match(line)) or _labels_a_value(line)


def _as_read(line: str) -> str:
    """A line as a reader sees it: wide letters made narrow, invisible characters dropped."""
    text = unicodedata.normalize("NFKC", line.replace("\t", " "))
    return "".join(one for one in text if unicodedata.category(one)[0] not in "CM").translate(
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
    if label := _LABEL.match(line):
        value = line[label.end() :].strip()
        return not value or _is_value(value)
    label = _CLAIM.match(line)
    return label is not None and _is_literal(line[label.end() :].strip())


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


_FROM_OUTSIDE = {ExecStatus(kind.value): kind for kind in OutcomeKind if kind.traits.kernel}
_FROM_ERROR = {name: kind for kind in OutcomeKind for name in kind.traits.error_types}


def comment_kind(source: str) -> OutcomeKind:
    """The kind of a source that holds nothing but comments and blanks: no kernel sees it."""
    if imitates_output(source):
        return OutcomeKind.FAKE_OUTPUT
    return OutcomeKind.COMMENT if source.strip() else OutcomeKind.BLANK


def executed_kind(
    source: str, execution: Execution, history: set[tuple[str, str]], *, syntax: Syntax
) -> OutcomeKind:
    """The kind of a source that a kernel ran. `history` holds (`statement_key`, output) of each
    source that ran without error.

    `syntax` says whether it compiles, not the kernel: code may have made the kernel call an error
    `ok`, or an exception of its own `SyntaxError`.

    Only the first line can make it an imitation: a prompt or a traceback further down may be part
    of a docstring.

    >>> from repl_sandbox import Compiler, ExecStatus, Execution
    >>> ran = Execution(status=ExecStatus.OK, output="2")
    >>> executed_kind("1+1", ran, set(), syntax=Compiler().syntax("1+1"))
    <OutcomeKind.OK_OUTPUT: 'ok_output'>
    """
    if execution.status in _FROM_OUTSIDE:
        return _FROM_OUTSIDE[execution.status]
    is_open = execution.status is ExecStatus.INCOMPLETE
    if syntax is Syntax.OPEN or (is_open and syntax is Syntax.UNKNOWN):
        return OutcomeKind.INCOMPLETE
    first = source.partition("\n")[0]
    if any(map(_is_imitation, first.splitlines())) or _is_idle(source):
        return OutcomeKind.FAKE_OUTPUT
    if syntax is Syntax.BROKEN:
        return OutcomeKind.SYNTAX_ERROR
    if is_open or execution.status is ExecStatus.ERROR:
        return _error_kind(source, execution.error_type or "", syntax)
    if (statement_key(source), execution.output) in history and (
        execution.output or _is_restated(source)
    ):
        return OutcomeKind.DUPLICATE
    return OutcomeKind.OK_OUTPUT if execution.output else OutcomeKind.OK_SILENT


def statement_key(source: str) -> str:
    """A key that is equal for sources that say the same: blanks and comments do not count."""
    tree = parse(source)
    try:
        return source if tree is None else ast.dump(tree)
    except RecursionError:  # it parses, and is nested more deeply than Python calls
        return source


def _error_kind(source: str, error_type: str, syntax: Syntax) -> OutcomeKind:
    if _calls(source, {SUBMIT}):
        return OutcomeKind.BAD_SUBMIT
    kind = _FROM_ERROR.get(error_type, OutcomeKind.RUNTIME_ERROR)
    if kind is OutcomeKind.SYNTAX_ERROR and syntax is not Syntax.UNKNOWN:
        # Raised by what it ran: `exec("1+")` costs what `1+` does.
        is_text = _calls(source, {"exec", "eval", "compile"})
        return kind if is_text else OutcomeKind.RUNTIME_ERROR
    return kind


def _is_restated(source: str) -> bool:
    """True where a silent source can change nothing when it runs again: imports, plain assignments.

    `i += 1`, `x = x - f(x)/g(x)` and `a.append(1)` are steps, however often they are taken.
    """
    tree = parse(source)
    return tree is not None and all(map(_only_names, tree.body))


def _only_names(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.Assign(targets=targets, value=value):
            read = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
            named = [node for target in targets for node in ast.walk(target)]
            return not any(isinstance(n, ast.Name) and n.id in read for n in named)
        case _:
            return False


def submitted_expression(source: str) -> str | None:
    """The expression in a lone, top-level `submit_final_answer(expression)`, else None.

    Several arguments are a tuple: `submit_final_answer([2, 3])` gives `[2, 3]`, and with `2, 3` it
    gives `(2, 3)`. None for no argument, a keyword, a star, an assignment or anything else on the
    line, and for a line over 2,000 characters.

    >>> submitted_expression("submit_final_answer(x + 1)")
    'x + 1'
    """
    if SUBMIT not in source:
        return None
    match parse(source):
        case ast.Module(
            body=[ast.Expr(value=ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]))]
        ) if name == SUBMIT and arguments:
            return _standing_alone(source, arguments)
        case _:
            return None


def _standing_alone(source: str, arguments: Sequence[ast.expr]) -> str | None:
    """The text of arguments, in brackets where it needs them outside the brackets of the call."""
    texts: list[str] = []
    for argument in arguments:
        text = ast.get_source_segment(source, argument)
        if text is None or isinstance(argument, ast.Starred):
            return None
        needs_brackets = "\n" in text or isinstance(argument, ast.NamedExpr)
        texts.append(f"({text})" if needs_brackets else text)
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _calls(source: str, names: Collection[str]) -> bool:
    tree = parse(source)
    return tree is not None and any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for node in ast.walk(tree)
    )
