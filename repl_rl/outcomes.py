"""Name what became of a line, from its text, its execution and what ran before.

Floor 2. Decides on the trusted side: what a kernel says is read here as data. Knows no tokens.
"""

from __future__ import annotations

import ast
import re
import warnings

from repl_rl.transcript import SUBMIT
from repl_rl.types import OutcomeKind
from sandbox.types import ExecStatus, Execution

MAX_SUBMIT_CHARS = 2000

# `# ... and so on` is an honest comment, so `...` counts without a `#` alone.
_FAKE_OUTPUT = re.compile(
    r"\s*(\.\.\. \S|(#\s*)?(>>>|(In|Out)\s*\[\d+\]:|Traceback \(most recent call))"
)

# `x = 1`, `x, y = 1, 2`, `x[0] += 1`, `x.y: int = 1`; no `==` and no keyword of a call.
_SILENT = re.compile(r"(import|from|del|pass|assert)\b|[\w.\[\], :'\"]+([-+*/%@&|^]|//|\*\*)?=[^=]")
_BLOCK = re.compile(r"(def|class|for|while|if|with|try|async|@)")

_FROM_STATUS = {
    ExecStatus.INCOMPLETE: OutcomeKind.INCOMPLETE,
    ExecStatus.TIMEOUT: OutcomeKind.TIMEOUT,
    ExecStatus.KILLED: OutcomeKind.KILLED,
    ExecStatus.DIED: OutcomeKind.DIED,
}

_FROM_ERROR = {
    "SyntaxError": OutcomeKind.SYNTAX_ERROR,
    "IndentationError": OutcomeKind.SYNTAX_ERROR,
    "TabError": OutcomeKind.SYNTAX_ERROR,
    "NameError": OutcomeKind.NAME_ERROR,
    "UnboundLocalError": OutcomeKind.NAME_ERROR,
    "MemoryError": OutcomeKind.MEMORY,
    "OutputLimit": OutcomeKind.OUTPUT_LIMIT,
}


def thought_kind(source: str) -> OutcomeKind:
    """The kind of a source that holds nothing but comments and blanks."""
    if imitates_output(source):
        return OutcomeKind.FAKE_OUTPUT
    return OutcomeKind.COMMENT if source.strip() else OutcomeKind.BLANK


def executed_kind(source: str, execution: Execution, history: set[tuple[str, str]]) -> OutcomeKind:
    """The kind of a source that a kernel ran. `history` holds (source, output) of what ran well."""
    if execution.status in _FROM_STATUS:
        return _FROM_STATUS[execution.status]
    if execution.status is ExecStatus.ERROR:
        if imitates_output(source):
            return OutcomeKind.FAKE_OUTPUT
        if _calls_submit(source):
            return OutcomeKind.BAD_SUBMIT
        return _FROM_ERROR.get(execution.error_type or "", OutcomeKind.RUNTIME_ERROR)
    if (source, execution.output) in history:
        return OutcomeKind.DUPLICATE
    return OutcomeKind.OK_OUTPUT if execution.output else OutcomeKind.OK_SILENT


def silent_kind(source: str) -> OutcomeKind | None:
    """The kind that a source has if it prints nothing; None where it is likely to print.

    A guess from its looks: assignments, imports, definitions and open blocks print nothing.
    """
    first, _, rest = source.partition("\n")
    if "print(" in source:
        return None
    if first.rstrip().endswith(":") and not source.endswith("\n"):
        return OutcomeKind.INCOMPLETE
    if not rest and _SILENT.match(first):
        return OutcomeKind.OK_SILENT
    return OutcomeKind.OK_SILENT if rest.endswith("\n") and _BLOCK.match(first) else None


def imitates_output(source: str) -> bool:
    """True where a line pretends to be a prompt, an `Out[n]` or a traceback of the interpreter."""
    return any(_FAKE_OUTPUT.match(line) for line in source.split("\n"))


def submitted_expression(source: str) -> str | None:
    """The expression in a lone, top-level `submit_final_answer(expression)`, else None.

    Example: `submit_final_answer([2, 3])` gives `[2, 3]`; two arguments, a keyword, a star, an
    assignment or anything else on the line gives None, and so does a line over 2,000 characters.
    """
    if SUBMIT not in source:
        return None
    match _parse(source):
        case ast.Module(
            body=[ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]))]
        ) if name == SUBMIT and not isinstance(argument, ast.Starred):
            return _standing_alone(source, argument)
        case _:
            return None


def _standing_alone(source: str, argument: ast.expr) -> str | None:
    """The argument's text; in brackets where it needs them outside the brackets of the call."""
    text = ast.get_source_segment(source, argument)
    if text is not None and ("\n" in text or isinstance(argument, ast.NamedExpr)):
        return f"({text})"
    return text


def _calls_submit(source: str) -> bool:
    tree = _parse(source) if SUBMIT in source else None
    return tree is not None and any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == SUBMIT
        for node in ast.walk(tree)
    )


def _parse(source: str) -> ast.Module | None:
    if len(source) > MAX_SUBMIT_CHARS:
        return None
    with warnings.catch_warnings():
        # `"\d"` or `1 is 1` in a policy's line is not worth a warning in the trainer.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        # A NUL byte is a ValueError, deep nesting a MemoryError or RecursionError.
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
