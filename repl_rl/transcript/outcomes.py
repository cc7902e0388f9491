"""Name what became of a line, from its text, its execution and what ran before.

Decides on the trusted side: here a kernel's answers are only data. Knows no tokens.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from repl_rl.records import OutcomeKind
from repl_rl.transcript.format import SUBMIT
from repl_rl.transcript.imitations import begins_as_output, imitates_output, parse
from repl_sandbox.statements import Syntax
from repl_sandbox.types import ExecStatus, Execution

_FROM_OUTSIDE = {ExecStatus(kind.value): kind for kind in OutcomeKind if kind.traits.kernel}
_FROM_ERROR = {name: kind for kind in OutcomeKind for name in kind.traits.error_types}


def thought_kind(source: str) -> OutcomeKind:
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
    if begins_as_output(source):
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
    if _calls_submit(source):
        return OutcomeKind.BAD_SUBMIT
    kind = _FROM_ERROR.get(error_type, OutcomeKind.RUNTIME_ERROR)
    if kind is OutcomeKind.SYNTAX_ERROR and syntax is not Syntax.UNKNOWN:
        # Raised by what it ran, which is a text of its own or something else.
        return kind if _runs_text(source) else OutcomeKind.RUNTIME_ERROR
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


def _calls_submit(source: str) -> bool:
    return SUBMIT in source and _calls(source, {SUBMIT})


def _runs_text(source: str) -> bool:
    """True where a source hands a text to the compiler: `exec("1+")` costs what `1+` does."""
    return _calls(source, {"exec", "eval", "compile"})


def _calls(source: str, names: Collection[str]) -> bool:
    tree = parse(source)
    return tree is not None and any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for node in ast.walk(tree)
    )
