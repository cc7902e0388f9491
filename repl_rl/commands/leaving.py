"""Sentences about what a run has left behind, and commands for what to do next.

    run folder -> a sentence, commands

Knows a run's folder, and whether its end was asked for.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from repl_rl.errors import ConfigError, ReplRLError
from repl_rl.runs.folder import METRICS, last_checkpoint
from repl_rl.runs.metrics import read_rows
from repl_sandbox.types import SandboxError, SettingError

_WIDTH = 80


@contextlib.contextmanager
def leaving(left: Callable[[], str], after: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Say what is `left` of a run that is called off, or cannot go on, and what to do `after`."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("\n\n".join(filter(None, [left(), after()]))) from None
    except (ConfigError, SettingError):
        raise  # nothing has begun
    except (ReplRLError, SandboxError) as error:
        raise type(error)(f"{error}; {left()}") from None


def left_by(run: Path, *, checkpoint_every: int) -> str:
    """Describe what an unfinished run has left, with the folder of its weights if it has any."""
    if not (run / METRICS).exists():
        return "nothing was written"
    step = max((row.step for row in read_rows(run)), default=0)
    weights = last_checkpoint(run)
    state = f"{run} is begun"
    if step:
        state = f"after step {step}: {run} holds metrics and trajectories"
    if weights is not None:
        return f"{state}, and whole weights in {weights.relative_to(run)}"
    if not step:
        return f"{state}, and nothing was trained yet"
    return f"{state}, but no weights: the first checkpoint comes after step {checkpoint_every}"


def next_after(run: Path, code: Sequence[str] = ()) -> str:
    """Return the commands to type after an interrupted run; an empty text where it left nothing.

    `code` are options that find the modules that its config names.
    """
    if not (run / METRICS).exists():
        return ""
    again = ["repl-rl", "train", *code, "--resume", str(run)]
    if last_checkpoint(run) is None:
        return commands(["repl-rl", "show", str(run), "--worst"], again)
    return commands(
        ["repl-rl", "eval", str(run), *code], ["repl-rl", "show", str(run), "--worst"], again
    )


def next_after_end(run: Path, code: Sequence[str] = ()) -> str:
    """Return the commands to type after a run that ended, those that show most of it first."""
    name = str(run)
    return commands(
        ["repl-rl", "replay", name, *code, "--html", f"{run}/page.html"],
        ["repl-rl", "reward", "explain", name, *code],
        ["repl-rl", "replay", name, *code, "--worst"],
        ["repl-rl", "eval", name, *code],
        ["repl-rl", "ask", "QUESTION", *code, "--model", name],
    )


def commands(*lines: list[str]) -> str:
    """`next:` and one command a line; a long one is continued below."""
    return "\n".join(["next:", *map(_command, lines)])


def _command(words: list[str]) -> str:
    rows, row = [], " "
    for word in map(shlex.quote, words):
        # Break before an option, so that it stays with its value.
        if word.startswith("--") and len(" ".join(words)) + 2 > _WIDTH:
            rows.append(f"{row} \\")
            row = "     "
        row += f" {word}"
    return "\n".join([*rows, row])
