"""Comparison of two runs: their files bit for bit, but for what a clock has measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMED = (
    *("_ms", "_s", "seconds", "step_time", "eval_runtime", "time/", "engine/"),
    "rollout/wasted_tokens",
)
"""Names of numbers that depend on when something happened."""


def differences(one: Path, other: Path) -> list[str]:
    """Differences of two runs' metrics, trajectories and weights, in words."""
    found = list(compared("metrics.jsonl", one, other))
    names = {path.name for run in (one, other) for path in (run / "trajectories").iterdir()}
    for name in sorted(names):
        found += compared(f"trajectories/{name}", one, other)
    for name in ("final", *sorted(path.name for path in (one / "checkpoints").glob("check*"))):
        digests = {_weights(run / "checkpoints" / name) for run in (one, other)}
        if len(digests) != 1:
            found.append(f"weights of {name}")
    return found


def compared(name: str, one: Path, other: Path) -> Iterator[str]:
    """Differences between the rows of a file of two runs, in words."""
    rows, others = (_rows(run / name) for run in (one, other))
    if len(rows) != len(others):
        yield f"{name}: {len(rows)} and {len(others)} rows"
    for number, pair in enumerate(zip(rows, others, strict=False), 1):
        row, again = map(dict, map(_leaves, pair))
        for key in sorted(row.keys() | again.keys()):
            if row.get(key) != again.get(key):
                yield f"{name}:{number}: {key} {row.get(key)!r:.60} and {again.get(key)!r:.60}"


def _rows(path: Path) -> list[dict[str, Any]]:  # Any: a row is JSON
    if not path.is_file():
        return []
    return [json.loads(row) for row in path.read_text().splitlines()]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of all that no clock has measured."""
    if not isinstance(value, dict | list):
        yield name.removesuffix("."), value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if not any(str(key).endswith(mark) or str(key).startswith(mark) for mark in TIMED):
            yield from _leaves(inner, f"{name}{key}.")


def _weights(checkpoint: Path) -> str:
    files = sorted(checkpoint.glob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
