"""What `benchmarks/compare.py` measures, in the order of its page.

A case runs in a process of its own and prints a row at a time: ours beside a peer's, in one unit,
with which is better. The measurements are those of the scripts beside it, at sizes that fit into
half an hour of two cores. Knows no page and no deadline of the whole.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]

HERE = Path(__file__).resolve().parent
EXECUTOR_S = 10
"""Seconds for the lines of an executor."""


def row(what: str, peer: str, unit: str, ours: float, theirs: float, better: str) -> Row:
    """`better` says which figure is ahead: `more`, `less`, or `near` where theirs is the truth."""
    return {
        "what": what,
        "peer": peer,
        "unit": unit,
        "ours": rounded(ours),
        "theirs": rounded(theirs),
        "better": better,
    }


def rounded(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def loop() -> Iterator[Row]:
    import torch
    import transformers
    from huggingface_hub import constants
    from tool_loop import COUNT, all_sides, best_seconds

    torch.set_num_threads(1)
    constants.HF_HUB_DISABLE_TELEMETRY = True
    transformers.logging.set_verbosity_error()
    sides = all_sides()
    for share in (0.05, 0.0):
        found = best_seconds(sides, share, tries=2)
        ours = 60 * COUNT / found.pop("repl-rl")
        calls = f"calls of 10 ms, {100 * share:.0f} % of them 2 s" if share else "calls of 10 ms"
        for peer, seconds in found.items():
            theirs = 60 * COUNT / seconds
            yield row(f"32 trajectories, {calls}", peer, "a minute", ours, theirs, "more")


def update() -> Iterator[Row]:
    from bench import REAL
    from update import costs

    words = [*REAL, "--ways", "trl", "tree", "--groups", "4"]
    theirs, ours = costs(words)
    what = f"an update of 32 trajectories, {ours.num_tokens:,} tokens"
    speed, their_speed = (one.num_tokens / one.cpu_s for one in (ours, theirs))
    yield row(what, "TRL", "tokens/CPU s", speed, their_speed, "more")
    yield row("the same, waited for", "TRL", "s", ours.wall_s, theirs.wall_s, "less")
    peak, their_peak = (one.peak / (1 << 20) for one in (ours, theirs))
    yield row("the same, memory above the weights", "TRL", "MiB", peak, their_peak, "less")


def kernels() -> Iterator[Row]:
    import kernels as kernels_

    from repl_sandbox.types import Isolation

    with tempfile.TemporaryDirectory(prefix="repl-rl-compare-") as folder:
        os.environ |= {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder}
        stock = asyncio.run(kernels_.measure_stock(kernels_.QUICK))
        ours, _ = asyncio.run(kernels_.measure_ours(kernels_.QUICK, Isolation.AUTO))
    for quantity in kernels_.QUANTITIES:
        if quantity.name in stock and quantity.name in ours:
            what = quantity.name.removesuffix(", p50 / p99")
            what = what if what == quantity.name else f"{what}, median"
            better = "more" if quantity.unit == "/s" else "less"
            unit, figure = quantity.unit.replace("/s", "a second"), ours[quantity.name][0]
            yield row(what, "ipykernel", unit, figure, stock[quantity.name][0], better)


QUANTITIES: Mapping[str, tuple[str, str, str]] = {
    "p50 ms": ("a line of sympy, median", "ms", "less"),
    "start ms": ("a session that has answered", "ms", "less"),
    "lines/s": ("lines, starts and ends of sessions counted in", "a second", "more"),
    "MiB, 8": ("8 idle sessions with sympy", "MiB", "less"),
    "same %": ("lines that show what CPython shows", "%", "more"),
}
"""Columns of an executor's row that are shown, with unit and the better direction."""


def executors() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="repl-rl-compare-") as folder:
        words = ["--seconds", str(EXECUTOR_S), "--sessions", "8", "--output", folder]
        command = [sys.executable, str(HERE / "executors.py"), *words]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found = list(map(json.loads, (Path(folder) / "executors.jsonl").read_text().splitlines()))
    ours = next(one for one in found if one["executor"] == "repl-rl")
    others = [one for one in found if not one["executor"].startswith("repl-rl")]
    for key, (what, unit, better) in QUANTITIES.items():
        for one in others:
            if not math.isnan(one[key]):  # of a process whose memory may not be read
                theirs = max(0.0, one[key])
                yield row(what, one["executor"], unit, ours[key], theirs, better)


def scores(what: str, ours: Any, theirs: Any) -> Iterator[Row]:
    """Rows of two judges of the same pairs."""
    for name, key, unit, better in (
        ("right ones accepted", "recall", "%", "more"),
        ("accepted ones that are right", "precision", "%", "more"),
        ("wrong ones called right", "wrong_called_right", "pairs", "less"),
        ("right ones called wrong", "right_called_wrong", "pairs", "less"),
        ("a verdict, median", "ms_p50", "ms", "less"),
    ):
        scale = 100 if unit == "%" else 1
        mine, others = (scale * getattr(one, key) for one in (ours, theirs))
        yield row(f"{ours.pairs:,} {what}: {name}", PEER, unit, mine, others, better)


def grader() -> Iterator[Row]:
    from grader import judges, score

    made = dict(judges(5.0))
    yield from scores("answers of sympy", *(score(made[one]()) for one in ("repl-rl", PEER)))


def latex() -> Iterator[Row]:
    from grader import score
    from latex_golds import readings

    (_, ours, read, _), (_, theirs, read_by_them, senseless) = readings()
    yield from scores("answers to LaTeX", score(ours), score(theirs))
    what = f"of {senseless} texts without one value, those that are read as one"
    yield row(what, PEER, "texts", read, read_by_them, "less")


def memory() -> Iterator[Row]:
    from memory import parsed, peaks

    words = ["--cases", "float32", "lora", "checkpointing"]
    for name, found in peaks(parsed(words)):
        assert not isinstance(found, str), found
        yield row(f"the estimate of an update, {name}", "what it takes", "MiB", *found, "near")


def anew() -> Iterator[Row]:
    """A row of the table of breadth, made here; not one that is compared."""
    import breadth

    stored = breadth.read(breadth.FILE)
    warm = [one for one in stored if one["stage"] == "warm"]
    cheapest = min(warm or stored, key=lambda one: one["cpu_s"])
    with tempfile.TemporaryDirectory(prefix="repl-rl-compare-") as folder:
        maker = breadth.Maker(breadth.MODEL, Path(folder), cheapest["problems"])
        yield maker.row(cheapest["family"], cheapest["stage"])


PEER = "math-verify"


class Case(NamedTuple):
    title: str
    measure: Callable[[], Iterator[Row]]
    minutes: float
    """About so long on two idle cores."""
    limit_s: float
    packages: tuple[str, ...]
    """Distributions of the peers, whose versions are kept."""
    about: str


CASES: Mapping[str, Case] = {
    "loop": Case(
        "The loop beside TRL's tool loop", loop, 2, 420, ("trl", "transformers"),
        "The same tokens of a random model of 1.3 M weights, six calls a trajectory; TRL goes in "
        "rounds, and nothing waits here (`benchmarks/tool_loop.py`).",
    ),
    "update": Case(
        "An update beside stock TRL", update, 2, 540, ("trl", "torch"),
        "SmolLM2-135M-Instruct, four prompts of eight siblings, one GRPO step on the same "
        "trajectories (`benchmarks/update.py`).",
    ),
    "kernels": Case(
        "Kernels beside a stock ipykernel", kernels, 1, 300, ("ipykernel", "jupyter_client"),
        "Sealed kernels, each asked by the client that comes with it (`benchmarks/kernels.py`). "
        "Ours are forked from a server that has loaded sympy: its own start, which comes once, and "
        "the pages that kernels share with it are left out.",
    ),
    "executors": Case(
        "Kernels beside other executors of Python", executors, 5, 660,
        ("ipykernel", "sandlock", "smolagents", "autogen-ext", "swe-rex"),
        f"The same lines of sympy for {EXECUTOR_S} seconds each, a session a trajectory. A slow "
        "executor comes to fewer of them; one that starts an interpreter a line keeps no session, "
        "and so no memory. `benchmarks/executors.py` says what each is.",
    ),
    "grader": Case(
        "The grader beside math-verify: answers of sympy", grader, 2, 420, (PEER, "sympy"),
        "Pairs of a known answer and one that is equal to it, or not; math-verify gets the LaTeX "
        "that sympy makes of them. The pairs are ours, and this grader was made with them at hand "
        "(`benchmarks/grader.py`).",
    ),
    "latex": Case(
        "The grader beside math-verify: answers as data sets have them", latex, 2, 420,
        (PEER, "sympy"),
        "Answers in LaTeX and words, as files of problems hold them, and what a kernel would hand "
        "over. These pairs are ours too (`benchmarks/latex_golds.py`).",
    ),
    "memory": Case(
        "Memory: the estimate beside what is taken", memory, 2, 420, ("torch", "transformers"),
        "What `repl-rl train --dry-run` expects of an update of a model of 0.1 B weights, and its "
        "peak (`benchmarks/memory.py`). Memory of kernels and of TRL's update stands above.",
    ),
    "breadth": Case(
        "A row of breadth", anew, 2, 540, ("reasoning-gym", "torch"),
        "The warm start that costs least, made anew.",
    ),
}  # fmt: skip
