"""A trajectory as a Jupyter notebook: a cell a statement, with its outputs and its numbers.

    Annotated, setup sources -> notebook -> any Jupyter client, on the kernel `repl-rl`

Its outputs have the shape in which that kernel sends them, so a notebook that was run again can be
compared with what was recorded. Knows nbformat and records. Does not know kernels or runs.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from repl_rl.credit.ledger import Entry
from repl_rl.records import LineOutcome, OutcomeKind, Trajectory
from repl_rl.transcript.format import SUBMIT, is_comment, spans, strip_line
from repl_rl.viewer.replay.annotated import Annotated
from repl_rl.viewer.replay.scene import whole_file
from repl_rl.viewer.show.marked import verdict_words
from repl_sandbox.guest.repl import DUMMY_BASE
from repl_sandbox.render import clean

SUFFIXES = (".ipynb",)
"""Suffixes of files that are written here."""
FORMAT = 1
"""Version of what stands under `repl_rl` in the metadata of a notebook and of its cells."""
TIMEOUT_TAG = "repl-rl-timeout"
"""Tag of cells at which the kernel was interrupted or killed, or died. Nobody times a line in
Jupyter: such a cell would run for ever, or take the kernel with it."""

KERNELSPEC = {
    "name": "repl-rl-lines",
    "display_name": "Sealed Python REPL, line by line (repl-rl)",
    "language": "python",
}
LANGUAGE_INFO = {"name": "python", "mimetype": "text/x-python", "file_extension": ".py"}
"""Language as the kernel gives it, except the version of Python, which a run in Jupyter adds."""

_RAISED = re.compile(
    r'^(?:Traceback \(most recent call last\):|  File "<stdin>", line \d+.*)\n'
    r"(?: .*\n|\n)*"
    r"(?:[\w<>]+\.)*(\w+)(?::.*)?$",
    re.MULTILINE,
)
"""The head of a traceback, what is indented below it, the class of the exception."""
# The row below a cut may lack its beginning.
_LAST_ROW = re.compile(
    r"(?<!omitted\] \.\.\.\n)^(?:[\w<>]+\.)*(\w*(?:Error|Exception|Interrupt))(?::.*)?\n?\Z",
    re.MULTILINE,
)

_SETUP = """\
# What the kernel had run before the first line, and where its random generators started.
{sources}

def seed_generators(seed):
    import random, sys
    random.seed(seed)
    if "sympy" in sys.modules:
        from sympy.core import random as sympy_random, symbol
        sympy_random.seed(seed)
        symbol.Dummy._base_dummy_index = {dummy_base} - symbol.Dummy._count

seed_generators({seed})
del seed_generators
"""
_ANSWER = f"""\
# When this was recorded, the value was handed over here. Run again, it is shown.
def {SUBMIT}(answer):
    return answer
"""
_INTRODUCTION = f"""\
# A recorded trajectory

{{facts}}

The problem:

{{statement}}

After the setup, each code cell is one statement of the policy, with the comments that led to it
and the output that it got. Raw cells hold what was sampled and never ran. Reward, advantage, mask
and log-probability of each line stand in the metadata of its cell, under `repl_rl`.

On the kernel `repl-rl` the cells run again. A cell with the tag `{TIMEOUT_TAG}` ran into a limit or
ended its kernel, and Jupyter sets it no deadline: nbclient passes over it; in a browser leave it
out or interrupt it.
"""

Cell = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Statement:
    """Lines that share a cell: comments, then the lines that the kernel got as one source."""

    comments: tuple[Entry, ...]
    body: tuple[Entry, ...]
    """Empty for the comments at the end of a trajectory."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.comments + self.body

    @property
    def kind(self) -> OutcomeKind:
        """Outcome of the last line. A cell of comments alone holds comments and prints nothing."""
        return self.body[-1].line.outcome.kind if self.body else OutcomeKind.OK_SILENT

    @property
    def source(self) -> str:
        """Source that the kernel got."""
        return _typed(self.body)

    @property
    def cell_source(self) -> str:
        """Source that the cell shows."""
        comments = [_cleaned(_typed(self.comments))] * bool(self.comments)
        return "\n".join(comments + [_as_code(self.source)] * bool(self.body))


def to_notebook(item: Annotated, *, setup: Sequence[str]) -> nbformat.NotebookNode:
    """A valid notebook of format 4.5, the same for the same trajectory.

    `setup` are the sources that the kernel had run before the first line. What others wrote is
    shown as `clean` leaves it. Where that changes the source of a line, the metadata of its cell
    hold as `source` what the kernel got.
    """
    trajectory = item.ledger.scored.trajectory
    cells = [
        v4.new_markdown_cell(_introduction(item), id="introduction"),
        v4.new_code_cell(_setup(setup, seed=trajectory.seed), id="setup"),
    ]
    numbers = _numbers(item)
    for statement in _statements(item.ledger.entries):
        if statement.kind is OutcomeKind.SUBMITTED:
            # Right before the call: a policy may have rebound the name, and every other call must
            # fail on the stub of the setup, as it did.
            name = f"answer-{statement.body[-1].line.index}"
            cells.append(v4.new_code_cell(_ANSWER, id=name))
        cells.append(_statement_cell(statement, numbers, _shown_value(statement, trajectory)))
    metadata = {
        "kernelspec": KERNELSPEC,
        "language_info": LANGUAGE_INFO,
        "repl_rl": _about(item),
    }
    notebook: nbformat.NotebookNode = v4.new_notebook(metadata=metadata, cells=cells)
    return notebook


def write_notebook(path: Path, item: Annotated, *, setup: Sequence[str]) -> None:
    """Write it as plain ASCII. Raises ConfigError where `path` cannot be written."""
    notebook = to_notebook(item, setup=setup)
    text = nbformat.writes(notebook, ensure_ascii=True)
    with whole_file(path) as file:
        file.write(text + "\n")


def _statements(entries: Sequence[Entry]) -> Iterator[_Statement]:
    """Lines as a session joins them: a comment inside an open statement is part of it."""
    comments: list[Entry] = []
    body: list[Entry] = []
    for entry in entries:
        kind = entry.line.outcome.kind
        if not body and kind is not OutcomeKind.CUT and is_comment(strip_line(entry.line.source)):
            comments.append(entry)
            continue
        body.append(entry)
        if kind is not OutcomeKind.INCOMPLETE:
            yield _Statement(tuple(comments), tuple(body))
            comments, body = [], []
    if comments or body:
        yield _Statement(tuple(comments), tuple(body))


def _shown_value(statement: _Statement, trajectory: Trajectory) -> str | None:
    """Return the value that a statement handed over, as its cell shows it."""
    value = trajectory.value_of(statement.body[-1].line) if statement.body else None
    # Any prompt shows None as nothing.
    return None if statement.kind is OutcomeKind.SUBMITTED and value == "None" else value


def _statement_cell(  # Any, here and below: nbformat has no types
    statement: _Statement, numbers: Mapping[int, Cell], value: str | None
) -> Any:
    kind = statement.kind
    about: Cell = {"lines": [numbers[entry.line.index] for entry in statement.entries]}
    if _cleaned(statement.source) != statement.source:
        about["source"] = statement.source
    if kind.traits.kernel:
        about["kernel"] = kind.traits.kernel
    name = f"line-{statement.entries[0].line.index}"
    if not kind.traits.ran:
        # Some converters take a raw cell without a type for HTML.
        metadata = {"repl_rl": about, "format": "text/plain", "raw_mimetype": "text/plain"}
        return v4.new_raw_cell(statement.cell_source, id=name, metadata=metadata)
    metadata = {"repl_rl": about} | ({"tags": _tags(kind)} if kind.traits.is_error else {})
    outputs = _outputs(statement, value)
    return v4.new_code_cell(statement.cell_source, id=name, metadata=metadata, outputs=outputs)


def _tags(kind: OutcomeKind) -> list[str]:
    """Tags by which clients go on after the error, and pass over a cell that would stop them."""
    stopped = [TIMEOUT_TAG, "skip-execution"] if kind.traits.kernel else []
    return ["raises-exception", *stopped]


def _outputs(statement: _Statement, value: str | None) -> list[Any]:
    """Return outputs as the kernel sends them: one text with a traceback, then the bare error."""
    text = clean("".join(entry.line.outcome.observation for entry in statement.entries))
    if value is not None:
        text += f"{clean(value)}\n"
    outputs = [v4.new_output("stream", text=text)] if text else []
    if statement.body and (error_type := _error_type(text, statement.body[-1].line.outcome)):
        outputs.append(v4.new_output("error", ename=error_type))
    return outputs


def _error_type(text: str, outcome: LineOutcome) -> str | None:
    """Class name of the exception that ended a line of this outcome; None without one."""
    if not outcome.kind.traits.is_error:
        return None
    names = (_LAST_ROW if outcome.is_truncated else _RAISED).findall(text)
    # The output does not always name it: it was cut, or a message begins with something else.
    return next(iter([*names[-1:], *outcome.kind.traits.error_types]), None)


def _numbers(item: Annotated) -> dict[int, Cell]:
    """All that is known of each line but its text, by the line's index."""
    trajectory = item.ledger.scored.trajectory
    runs = _mask_runs(trajectory)
    return {
        entry.line.index: {
            "index": entry.line.index,
            "outcome": str(entry.line.outcome.kind),
            "is_truncated": entry.line.outcome.is_truncated,
            "reward": entry.reward,
            "advantage": entry.advantage,
            "share": entry.share,
            "tokens": [entry.line.start, entry.line.stop],
            "logprob": math.fsum(trajectory.logprobs[entry.line.start : entry.line.stop]),
            "mask": runs[entry.line.index],
        }
        for entry in item.ledger.entries
    }


def _mask_runs(trajectory: Trajectory) -> Mapping[int, list[list[object]]]:
    """[start, stop, is sampled] of each line and of what was injected after it, by line."""
    runs: defaultdict[int, list[list[object]]] = defaultdict(list)
    for span in spans(trajectory):
        # Tokens before the first line go with it.
        runs[max(span.line_index, 0)].append([span.start, span.stop, span.is_sampled])
    return runs


def _about(item: Annotated) -> Cell:
    """Return the notebook's own metadata about the trajectory."""
    scored = item.ledger.scored
    trajectory = scored.trajectory
    return {
        "format": FORMAT,
        "trajectory": item.id,
        "problem": scored.problem.id,
        "statement": scored.problem.statement,
        "seed": trajectory.seed,
        "policy_version": trajectory.policy_version,
        "group_index": trajectory.group_index,
        "sibling_index": trajectory.sibling_index,
        "stop_reason": str(trajectory.stop_reason),
        "verdict": None if scored.verdict is None else str(scored.verdict.kind),
        "outcome_reward": scored.reward.outcome_reward,
        "total_reward": scored.reward.total,
        "submission": trajectory.submission,
    }


def _introduction(item: Annotated) -> str:
    """The cell that a browser renders: what others wrote stands in fences, as plain text."""
    about = _about(item)
    names = (
        *("trajectory", "problem", "seed", "policy_version", "stop_reason", "verdict"),
        *("outcome_reward", "total_reward", "submission"),
    )
    about["verdict"] = verdict_words(item.ledger.scored.verdict)
    facts = "\n".join(f"{name:<16}{clean(str(about[name]))}" for name in names)
    statement = _cleaned(item.ledger.scored.problem.statement)
    return _INTRODUCTION.format(facts=_fenced(facts), statement=_fenced(statement))


def _fenced(text: str) -> str:
    """`text` in a fence that nothing in it can close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _setup(setup: Sequence[str], *, seed: int) -> str:
    # A blank line closes a block, as the end of each source did.
    sources = "\n\n".join(_as_code(source).rstrip("\n") for source in setup)
    return _SETUP.format(sources=sources, seed=seed, dummy_base=DUMMY_BASE)


def _typed(entries: Sequence[Entry]) -> str:
    return "\n".join(strip_line(entry.line.source) for entry in entries)


def _as_code(source: str) -> str:
    """Cleaned; in a source, and nowhere else, a kernel ends a line at `\\r`."""
    return _cleaned(source.replace("\r\n", "\n").replace("\r", "\n"))


def _cleaned(text: str) -> str:
    """Line by line: a sequence that is never closed would take the lines below with it."""
    return "\n".join(map(clean, text.split("\n")))
