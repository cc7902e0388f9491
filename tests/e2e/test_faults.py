"""Faults in the middle of a run: it goes on, or ends in one line and keeps its last whole step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from run_metrics import read_metrics
from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TROUBLED = """\
import asyncio, contextlib, os, signal
from pathlib import Path
import psutil, torch
from plain_engine import Plain, PlainEngine

FULL = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."

def kill(words):
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if words in " ".join(one.cmdline()):
                one.kill()

class TroubledEngine(PlainEngine):
    async def line(self, ids, *, max_tokens, seed):
        trouble = Path("trouble")
        if self._version == 1 and trouble.exists():
            match trouble.read_text():
                case "the engine hangs":
                    await asyncio.Event().wait()
                case "no memory for a forward":
                    raise RuntimeError(FULL)
                case "the fork server is killed":
                    kill("repl_sandbox.guest.boot")
                case "a forward for the update finds no memory":
                    refuse(self._model)
                    trouble.unlink()
        return await super().line(ids, max_tokens=max_tokens, seed=seed)

def refuse(model):
    def fail(*_):
        if torch.is_grad_enabled():
            raise RuntimeError(FULL)
    model.register_forward_pre_hook(fail)

class Troubled(Plain):
    def open(self, config, loaded, *, row_tokens):
        made = super().open(config, loaded, row_tokens=row_tokens)
        made.__class__ = TroubledEngine
        return made
"""

SETTINGS = (
    *small(report__checkpoint_every=9, grpo__learning_rate=1e-3),
    *set_words("sampling.engine=troubled:Troubled", "sampling.engine_timeout_s=8"),
)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("the engine hangs", "the engine took more than 8 s for a line and counts as hung; "),
        ("no memory for a forward", "no memory for the rollouts; "),
        ("the fork server is killed", "the fork server is gone"),
        ("a forward for the update finds no memory", "no memory for the update; "),
    ],
)
def test_what_a_run_cannot_go_on_without_ends_it_in_one_line_after_its_last_whole_step(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, trouble: str, said: str
) -> None:
    shutil.copy(EXAMPLES / "plain_engine.py", tmp_path)
    (tmp_path / "troubled.py").write_text(TROUBLED)
    (tmp_path / "trouble").write_text(trouble)
    ended = repl_rl("train", "--model", str(tiny_model), "--output", "run", *SETTINGS)
    assert (ended.code, ended.left_behind) == (1, []), ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"repl-rl: {said}")
    assert line.endswith(
        "; after step 1: run holds metrics and trajectories, and whole weights in "
        "checkpoints/checkpoint-1"
    )
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-1" / "COMPLETE").exists()
    (tmp_path / "trouble").unlink(missing_ok=True)
    resumed = repl_rl("train", "--resume", "run")
    assert (resumed.code, resumed.left_behind) == (0, []), resumed.stderr
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [1, 2]
