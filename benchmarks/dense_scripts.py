"""The scripts of `sympy-proofs`, in more and smaller steps: tasks for `density.py`.

    expand((x + 1)**2 - x**2)   ->   u1 = (x + 1)**2 / u2 = u1 - x**2 / u2 / expand(u2)

The problems, their answers and the strategies are those of the task. What differs is how much of a
step goes into one line.
"""

import ast
import random
from collections.abc import Iterator

from repl_rl.records import Problem
from repl_rl.tasks.base import Script
from repl_rl.tasks.sympy_proofs import SympyProofs


class Dense(SympyProofs):
    """Of each script, the first step that can be taken apart is `extra` lines longer."""

    extra = 0

    def demonstrate(self, problem: Problem, rng: random.Random) -> Script:
        inner = super().demonstrate(problem, rng)
        is_due, seen = self.extra > 0, None
        while True:
            try:
                line = next(inner) if seen is None else inner.send(seen)
            except StopIteration:
                return
            lines = steps(line, self.extra) if is_due else [line]
            is_due = is_due and len(lines) == 1
            for each in lines:
                seen = yield each


class Two(Dense):
    """As they are: most have two lines."""


class Four(Dense):
    extra = 2


class Eight(Dense):
    extra = 6


def steps(line: str, extra: int) -> list[str]:
    """The same in `extra` lines more; the line alone where it is no step of the work."""
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        return [line]
    if not isinstance(statement, ast.Expr | ast.Assign) or line.startswith("submit"):
        return [line]
    parts = _Parts((extra + 1) // 2)
    statement.value = parts.reduced(statement.value)
    if parts.taken:
        shown = _shown(parts.taken, extra - len(parts.taken))
        return [*shown, ast.unparse(statement)]
    if isinstance(statement, ast.Assign):
        return [line]
    # The last look is what `_` stands for in the lines that follow.
    return [*_shown([("u1", line)], extra - 1), "u1"]


def _shown(taken: list[tuple[str, str]], count: int) -> Iterator[str]:
    """Each part gets its name, and then is looked at, in turn, until there are `count` looks."""
    looks = [count // len(taken) + (place < count % len(taken)) for place in range(len(taken))]
    for (name, source), times in zip(taken, looks, strict=True):
        yield f"{name} = {source}"
        yield from [name, f"type({name})", f"str({name})"][:times]
        yield from [name] * (times - 3)


class _Parts:
    """Takes the inner steps of an expression out of it, innermost first, `most` at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken: list[tuple[str, str]] = []
        """(name, source), in the order in which they are needed."""

    def reduced(self, whole: ast.expr) -> ast.expr:
        """The expression with names for its parts. The outermost step stays where it is."""
        for field, value in ast.iter_fields(whole):
            if isinstance(value, ast.expr):
                setattr(whole, field, self._named(value))
            elif isinstance(value, list):
                setattr(whole, field, [self._named(one) if isinstance(one, ast.expr) else one
                                       for one in value])  # fmt: skip
        return whole

    def _named(self, part: ast.expr) -> ast.expr:
        part = self.reduced(part)
        if not isinstance(part, ast.Call | ast.BinOp):
            return part
        if len(self.taken) == self._most:
            return part
        name = f"u{len(self.taken) + 1}"
        self.taken.append((name, ast.unparse(part)))
        return ast.Name(name)
