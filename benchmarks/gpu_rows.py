"""Rows that `benchmarks/gpu.py` measures, in the order of their worth.

Knows which there are, and the laws. Does not know how the others are measured, or the page.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpu_decoding import (
    busy,
    compiled,
    gap,
    in_flight,
    in_vllm,
    line_tax,
    line_tax_of_shape,
    replay,
    tool_loop,
)
from gpu_job import Cells, Job
from gpu_training import (
    curve,
    grpo,
    grpo_by_vllm,
    killed,
    memory,
    rollout,
    update,
    update_long,
    update_packed,
    warm,
)

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ("pytest_timeout", "repl_rl.golden.pytest_plugin")
"""Plugins of pytest that its settings here name. The others that a machine has may warn, and a
warning ends a session of tests."""


def laws_command(*more: str) -> list[str]:
    """Words of a pytest that runs the laws, for `LAWS_ENV`."""
    return [
        *(sys.executable, "-m", "pytest", "tests/e2e/test_device.py", "tests/laws/test_device.py"),
        *("-m", "gpu", "-vv", "--maxfail=8", "-p", "no:cacheprovider", "--tb=short"),
        *("-W", "default", *(word for name in PLUGINS for word in ("-p", name)), *more),
    ]


LAWS_ENV = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}


def laws(job: Job) -> Iterator[Cells]:
    """The laws of engines, on the device, with steps of fixed shape and without."""
    process = subprocess.Popen(
        laws_command(),
        cwd=ROOT,
        env=os.environ | LAWS_ENV | {"REPL_RL_TEST_DEVICE": job.device},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip())
        passed = sum(" PASSED" in one for one in said)
        yield {"passed": passed, "last": said[-1]}
    if process.wait():
        yield {"said": [line for line in said if " PASSED" not in line][-90:]}
        raise RuntimeError(f"pytest ended with {process.returncode}")


class Row(NamedTuple):
    measure: Callable[[Job], Iterator[Cells]]
    limit_s: float
    package: str = "torch"
    """Where this is not installed there is nothing to measure."""


ROWS: Mapping[str, Row] = {
    "laws": Row(laws, 150),
    "line tax": Row(line_tax, 60),
    "vllm": Row(in_vllm, 150, "vllm"),
    "rollout": Row(rollout, 75),
    "busy": Row(busy, 60),
    "update": Row(update, 60),
    "grpo": Row(grpo, 120),
    "vllm grpo": Row(grpo_by_vllm, 150, "vllm"),
    "update 16k": Row(update_packed, 60),
    "update long": Row(update_long, 60),
    "tool loop": Row(tool_loop, 120),
    "curve": Row(curve, 60),
    "memory": Row(memory, 60),
    "gap": Row(gap, 60),
    "warm": Row(warm, 60),
    "killed": Row(killed, 60),
    "line tax 0.6 B": Row(line_tax_of_shape, 60),
    "replay": Row(replay, 60),
    "in flight": Row(in_flight, 60),
    "compiled": Row(compiled, 120),
}
"""By worth."""


def measurable() -> list[str]:
    """Rows whose package is installed."""
    return [name for name, row in ROWS.items() if importlib.util.find_spec(row.package)]
