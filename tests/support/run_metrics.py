"""What a run has measured, as its folder has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> list[dict[str, Any]]:  # Any: a row is JSON
    """The rows of a `metrics.jsonl`, in order."""
    return [json.loads(row) for row in path.read_text().splitlines()]
