"""Blocks that a kernel runs together, and texts that nothing runs: forms beside the line.

A block runs as a tool call does: nothing of it where it does not compile, else up to the first
error. Every bare expression shows its value, not the last alone. `form_samplers.py` samples these
forms, and `form_scripts.py` shows demonstrations in them.
"""

import ast
import re
import traceback
import warnings
from collections.abc import Iterator

from repl_rl import LineOutcome, OutcomeKind, submitted_expression
from repl_rl.rollout.episode import Session
from repl_rl.transcript.format import is_comment
from repl_rl.transcript.outcomes import comment_kind, parse
from repl_sandbox.statements import FILENAME, UNCOMPILABLE

_FRAME = re.compile(rf'(?<=File "{FILENAME}", line )\d+(?=, in <module>)')


class BlockSession(Session):
    """Runs several lines as one source."""

    async def run(self, text: str) -> LineOutcome:
        """Run all statements, up to the first that raises or submits."""
        if is_comment(text):
            return LineOutcome(kind=comment_kind(text))
        try:
            found = list(statements(text))
        except UNCOMPILABLE as error:
            shown = self.shorten("".join(traceback.format_exception_only(error)))
            return LineOutcome(kind=OutcomeKind.SYNTAX_ERROR, observation=shown)
        shown, wall_ms = "", 0.0
        for above, source in found:
            outcome = await super().run(source)
            shown += _numbered(outcome.observation, above)
            wall_ms += outcome.wall_ms
            if outcome.kind.traits.is_error or self.submission is not None:
                return LineOutcome(
                    kind=outcome.kind, observation=self.shorten(shown), wall_ms=wall_ms
                )
        kind = OutcomeKind.OK_OUTPUT if shown else OutcomeKind.OK_SILENT
        return LineOutcome(kind=kind, observation=self.shorten(shown), wall_ms=wall_ms)


def _numbered(shown: str, above: int) -> str:
    """A traceback's lines, counted in the block and not in its statement."""
    return _FRAME.sub(lambda found: str(int(found[0]) + above), shown)


def statements(text: str) -> Iterator[tuple[int, str]]:
    """(lines above it, source) of each statement. Raises where the whole does not compile."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, FILENAME, "exec", dont_inherit=True)
        body = ast.parse(text).body
    lines = text.split("\n")
    while body:
        node = body.pop(0)
        start = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
        end = node.end_lineno or start
        while body and body[0].lineno <= end:  # behind a semicolon
            end = body.pop(0).end_lineno or end
        # A statement with lines of its own ends with a blank one.
        is_open = any(hasattr(node, name) for name in ("body", "cases"))
        yield start - 1, "\n".join(lines[start - 1 : end]) + "\n" * is_open


class WrittenSession(Session):
    """Runs nothing, and takes the last line of a text at its word."""

    async def run(self, text: str) -> LineOutcome:
        self.submission = written_answer(text.rstrip("\n").rpartition("\n")[2])
        return LineOutcome(kind=OutcomeKind.SUBMITTED)


def written_answer(line: str) -> str | None:
    """The answer that a line submits; None where it leaves work to whoever reads it, as `2*3`."""
    expression = submitted_expression(line.strip())
    tree = None if expression is None else parse(expression)
    return None if tree is None or any(map(_is_work, ast.walk(tree))) else expression


def _is_work(node: ast.AST) -> bool:
    """No kernel prints two numbers with a sign between them, but for a fraction."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.Div):
            return _is_number(left) and _is_number(right)
        case _:
            return False


def _is_number(node: ast.AST) -> bool:
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant)
