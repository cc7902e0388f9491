"""A plain in-process REPL for scripts that the tests themselves trust; no sandbox, no limits."""

from __future__ import annotations

import codeop
import contextlib
import io
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from repl_rl.tasks.base import Script
from repl_rl.tasks.sympy_proofs import SympyProofs


@dataclass
class Attempt:
    """What a script did: its lines and what it submitted first, as `repr` shows it."""

    lines: list[str] = field(default_factory=list)
    submission: str | None = None


class Interpreter:
    def __init__(self, setup: str) -> None:
        self._setup: dict[str, Any] = {}
        for line in setup.splitlines():
            if line != "{{problem}}":
                exec(line, self._setup)

    def play(self, script: Script) -> Attempt:
        """Run a script to its submission or its end."""
        attempt, block = Attempt(), []
        namespace = {**self._setup, "submit_final_answer": lambda value: submit(attempt, value)}
        observation = None
        with contextlib.closing(script), contextlib.suppress(StopIteration):
            while attempt.submission is None:
                line = next(script) if observation is None else script.send(observation)
                attempt.lines.append(line)
                block.append(line)
                observation, is_complete = run("\n".join(block), namespace)
                block = [] if is_complete else block
        return attempt


def submit(attempt: Attempt, value: object) -> None:
    attempt.submission = repr(value)


def run(source: str, namespace: dict[str, Any]) -> tuple[str, bool]:
    """The observation of `source`, and whether it was complete."""
    if source.startswith("#"):
        return "", True
    try:
        code = codeop.compile_command(source, "<stdin>", "single")
    except SyntaxError as error:
        return f"SyntaxError: {error.msg}", True
    if code is None:
        return "", False
    with displayed(namespace) as output:
        try:
            exec(code, namespace)
        except Exception:  # noqa: BLE001 a script's mistake is shown to the script
            output.write(traceback.format_exc(limit=0))
    return output.getvalue().strip(), True


@contextlib.contextmanager
def displayed(namespace: dict[str, Any]) -> Iterator[io.StringIO]:
    """Output of a statement, with the value of an expression shown and kept as `_`."""
    output = io.StringIO()

    def show(value: object) -> None:
        if value is not None:
            namespace["_"] = value
            output.write(f"{value!r}\n")

    hook, sys.displayhook = sys.displayhook, show
    try:
        with contextlib.redirect_stdout(output):
            yield output
    finally:
        sys.displayhook = hook


@pytest.fixture(scope="session")
def interpreter() -> Interpreter:
    return Interpreter(SympyProofs().prompt)
