"""One HTML file to read trajectories in, token by token; it loads nothing from elsewhere.

    Annotated, Annotated, ... -> page.html

Each trajectory is data in a script element of its own: a line of JSON for the list, a line for the
rest. Texts of a policy are turned into nodes by the page's script, never into markup.

Knows records and the parts of a page. Does not know runs, vocabularies, models or screens.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from repl_rl.credit.ledger import Entry
from repl_rl.records import OutcomeKind, VerdictKind
from repl_rl.transcript.format import spans
from repl_rl.viewer.replay.annotated import Annotated
from repl_rl.viewer.replay.scene import whole_file
from repl_rl.viewer.show.marked import kind_words, span_texts

SUFFIXES = (".html", ".htm")
"""Suffixes of files that are written here."""
Json = dict[str, Any]
"""An object of the page's data: Any, for it is whatever `json.dumps` takes."""

_STYLES = ("page.css", "views.css")
_SCRIPTS = (
    *("text.js", "records.js", "list.js", "transcript.js", "measures.js", "inspector.js"),
    *("ledger.js", "siblings.js", "tree.js", "main.js"),
)
_DIGITS = 6
"""Significant digits of a number in the page."""
_MARKER = re.compile(r"\{\{(\w+)\}\}")


def write_page(
    path: Path, items: Iterable[Annotated], *, title: str, notes: Sequence[str] = ()
) -> int:
    """Write `items` to `path`, one at a time; returns how many there were.

    The page appears whole or not at all. Raises ConfigError where `path` cannot be written.
    """
    with whole_file(path) as file:
        return _write(file, items, _frame(title, notes))


def _write(file: TextIO, items: Iterable[Annotated], frame: tuple[str, str]) -> int:
    count = 0
    file.write(frame[0])
    for item in items:
        file.write(_element(item))
        count += 1
    file.write(frame[1])
    return count


def _frame(title: str, notes: Sequence[str]) -> tuple[str, str]:
    """Return the parts of a page before and after its trajectories."""
    style = "".join(map(_read, _STYLES))
    script = "".join(map(_read, _SCRIPTS))
    verdicts = {kind: kind_words(kind) for kind in VerdictKind} | {"none": kind_words(None)}
    tones = {kind: kind.traits.tone for kind in OutcomeKind}
    page = {"notes": list(notes), "tones": tones, "verdicts": verdicts}
    parts = {
        "title": html.escape(title),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "page": _data(page),
    }
    before, after = _read("page.html").split("{{trajectories}}")
    # One pass over each half: what was filled in is not read for markers again.
    return _fill(before, parts), _fill(after, parts)


def _fill(template: str, parts: dict[str, str]) -> str:
    return _MARKER.sub(lambda match: parts[match[1]], template)


def _read(name: str) -> str:
    return (importlib.resources.files(__package__) / "page_files" / name).read_text("ascii")


def _policy(style: str, script: str) -> str:
    """Nothing is loaded and nothing runs but this style and this script, by their hashes.

    No text can become markup either, not even by a mistake in the script.
    """
    return (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(value: Json) -> str:
    r"""JSON in ASCII that can stand in a script element: `</script>` is `\u003c/script\u003e`."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _element(item: Annotated) -> str:
    head, rest = _data(summary_of(item)), _data(details_of(item))
    return f'<script type="application/json" class="trajectory">{head}\n{rest}</script>\n'


def summary_of(item: Annotated) -> Json:
    """Return the fields of a trajectory that the list shows and is filtered by."""
    scored = item.ledger.scored
    entries = item.ledger.entries
    return {
        "id": item.id,
        "problem": scored.problem.id,
        "statement": scored.problem.statement,
        "family": scored.problem.meta.get("family"),
        "verdict": "none" if scored.verdict is None else scored.verdict.kind,
        "stop": scored.trajectory.stop_reason,
        "total": _number(scored.reward.total) or 0.0,
        "outcomes": [line.outcome.kind for line in scored.trajectory.lines],
        "mass": _number(item.ledger.mass) or 0.0,
        "max_advantage": max(
            (abs(_number(entry.advantage) or 0.0) for entry in entries), default=0
        ),
        "max_reward": max((abs(_number(entry.reward) or 0.0) for entry in entries), default=0),
    }


def details_of(item: Annotated) -> Json:
    """The rest: tokens, lines, rewards, the verdict."""
    return {**_tokens(item), **_judgement(item), "lines": list(map(_line, item.ledger.entries))}


def _tokens(item: Annotated) -> Json:
    trajectory = item.ledger.scored.trajectory
    known = zip(trajectory.logprobs, trajectory.loss_mask, strict=True)
    return {
        "prompt": trajectory.prompt_text,
        "num_prompt": len(trajectory.prompt_ids),
        "ids": trajectory.completion_ids,
        "mask": "".join("1" if is_sampled else "0" for is_sampled in trajectory.loss_mask),
        "spans": list(map(list, spans(trajectory))),
        "span_texts": span_texts(trajectory) if item.token_texts is None else None,
        "texts": item.token_texts,
        "logprobs": [_number(value) if is_sampled else None for value, is_sampled in known],
        "trainer": None
        if (logprobs := item.trainer_logprobs) is None
        else list(map(_number, logprobs)),
    }


def _line(entry: Entry) -> Json:
    line = entry.line
    return {
        "index": line.index,
        "source": line.source,
        "start": line.start,
        "stop": line.stop,
        "outcome": line.outcome.kind,
        "observation": line.outcome.observation,
        "is_truncated": line.outcome.is_truncated,
        "wall_ms": _number(line.outcome.wall_ms),
        "cpu_ms": _number(line.outcome.cpu_ms),
        "reward": _number(entry.reward),
        "advantage": _number(entry.advantage),
        "share": _number(entry.share),
    }


def _judgement(item: Annotated) -> Json:
    scored, trajectory = item.ledger.scored, item.ledger.scored.trajectory
    return {
        "siblings": item.siblings,
        "num_siblings": item.ledger.num_siblings,
        "share": _number(item.ledger.share),
        "outcome_reward": _number(scored.reward.outcome_reward),
        "terms": {name: _number(value) for name, value in scored.reward.terms.items()},
        "verdict": _verdict(item),
        "submission": trajectory.submission,
        "meta": dict(scored.problem.meta),
        "group": trajectory.group_index,
        "sibling": trajectory.sibling_index,
        "branch": _branch(item),
        "edges": [
            {name: _number(value) for name, value in asdict(edge).items()} for edge in item.edges
        ],
        "policy_version": trajectory.policy_version,
        "seed": str(trajectory.seed),  # too large for a browser's numbers to be exact
    }


def _branch(item: Annotated) -> Json | None:
    branch = item.ledger.scored.trajectory.branch
    if branch is None:
        return None
    return {"sibling": branch.sibling_index, "lines": branch.num_lines, "id": item.left}


def _verdict(item: Annotated) -> Json | None:
    verdict = item.ledger.scored.verdict
    if verdict is None:
        return None
    return {
        "method": verdict.method,
        "evidence": verdict.evidence,
        "ms": _number(verdict.ms),
        "grader_error": verdict.grader_error,
    }


def _number(value: float | None) -> float | None:
    """Round to `_DIGITS` significant digits; None where JSON has no word for it."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")
