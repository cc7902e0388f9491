"""Sentences about what a run has left behind, and commands for what to do next.

    run folder -> a sentence, commands

Knows a run's folder and task, and whether its end was asked for.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from repl_rl.errors import ConfigError, ReplRLError
from repl_rl.records import Split
from repl_rl.runs.folder import METRICS, last_checkpoint
from repl_rl.runs.metrics import read_rows
from repl_rl.tasks.base import Task
from repl_sandbox.types import SandboxError, SettingError

_WIDTH = 80
_SHORT = 40
"""Characters of a question that fits a command."""
_LOOKED_AT = 20
"""Problems among which a short one is looked for."""


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
    held = f"after step {step}: {run} holds metrics and trajectories" if step else f"{run} is begun"
    if weights is not None:
        return f"{held}, and whole weights in {weights.relative_to(run)}"
    if not step:
        return f"{held}, and nothing was trained yet"
    return f"{held}, but no weights: the first checkpoint comes after step {checkpoint_every}"


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


def next_after_end(
    run: Path, code: Sequence[str] = (), *, question: str | None = None, may_push: bool = False
) -> str:
    """Commands after a run that ended, those that show most of it first.

    `question` is a problem of its task in a few words; `may_push`: somebody is logged in to a hub.
    """
    name = str(run)
    ask = [["repl-rl", "ask", question, *code, "--model", name]] if question else []
    push = [["repl-rl", "push", name, "OWNER/NAME"]] if may_push else []
    return commands(
        ["repl-rl", "replay", name, *code, "--html", f"{run}/page.html"],
        ["repl-rl", "reward", "explain", name, *code],
        ["repl-rl", "replay", name, *code, "--worst"],
        ["repl-rl", "eval", name, *code],
        *(push or ask),
    )


def question_of(task: Task, *, seed: int) -> str | None:
    """A held-out problem that stands on one row, without the one on the form of its answer.

    None where the first few are long, or bind names.
    """
    for problem in itertools.islice(task.problems(Split.HELD_OUT, seed=seed), _LOOKED_AT):
        question, _, form = problem.statement.partition("\n")
        is_whole = not form or (form.startswith("Answer:") and "\n" not in form)
        if is_whole and not problem.setup and len(question) <= _SHORT:
            return question
    return None


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
