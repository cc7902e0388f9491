"""Hand-made records for all tests: tokens are bytes, lines are written out, nothing runs."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from attempt_kit import an_attempt
from repl_rl.commands.cli import main
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import Engine
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import (
    Line,
    LineOutcome,
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
)
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import Execution, Kernel
from shared_work import shared_folder
from warm_python import WarmPython

# A slow machine is no counterexample.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Processes that test side by side share the cores: OpenMP's threads of one spin while those of
# another want to run, and each training step takes ten times as long. Before torch is imported.
if at_once := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(at_once))))

CODEC = ByteCodec()


_SLOW = re.compile(r"^pytestmark = (\[[^\]]*)?pytest\.mark\.slow\b", re.MULTILINE)


@cache
def is_slow(path: Path) -> bool:
    """Tell by its text, before it is imported, whether a file of tests is marked slow."""
    return path.suffix == ".py" and _SLOW.search(path.read_text()) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip slow files where no slow test is asked for: they import torch and trl."""
    return True if "not slow" in config.option.markexpr and is_slow(collection_path) else None


@pytest.fixture
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that is set six hours ahead, and back, between any two looks at it."""
    looks, read, read_ns = itertools.count(), time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: read() + 21_600 * (next(looks) % 3 - 1))
    monkeypatch.setattr(time, "time_ns", lambda: read_ns() + 21_600 * 10**9 * (next(looks) % 3 - 1))


SMALL_DISK = 1 << 18


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported is garbage, and it would be searched again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare what is loaded from collections: each training run forces one over all of torch."""
    gc.collect()
    gc.freeze()


Part = tuple[str, OutcomeKind, str | None]
"""(sampled source, its outcome, the injected text that follows it or None)."""

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]


def build_trajectory(
    parts: Sequence[Part],
    *,
    prompt: str = ">>>",
    group_index: int = 0,
    sibling_index: int = 0,
    stop_reason: StopReason = StopReason.MAX_LINES,
    submission: str | None = None,
) -> Trajectory:
    """A trajectory whose tokens are the bytes of `parts`; sampled log-probabilities are -1."""
    ids: list[int] = []
    mask: list[bool] = []
    lines: list[Line] = []
    for index, (source, kind, injected) in enumerate(parts):
        start = len(ids)
        ids.extend(source.encode())
        mask.extend([True] * (len(ids) - start))
        observation = "" if injected is None else injected.removesuffix(">>>").removesuffix("...")
        outcome = LineOutcome(kind=kind, observation=observation)
        lines.append(Line(index=index, source=source, start=start, stop=len(ids), outcome=outcome))
        if injected is not None:
            ids.extend(injected.encode())
            mask.extend([False] * (len(ids) - len(mask)))
    return Trajectory(
        problem_id="p",
        group_index=group_index,
        sibling_index=sibling_index,
        policy_version=0,
        seed=0,
        prompt_text=prompt,
        prompt_ids=tuple(prompt.encode()),
        completion_ids=tuple(ids),
        loss_mask=tuple(mask),
        logprobs=tuple(-1.0 if is_sampled else 0.0 for is_sampled in mask),
        lines=tuple(lines),
        stop_reason=stop_reason,
        submission=submission,
    )


def run_rollout(
    engine: Engine,
    kernel: Kernel,
    config: SamplingConfig,
    *,
    seed: int = 0,
    context_tokens: int = 1 << 16,
) -> Trajectory:
    """One rollout after the prompt `>>>` (three tokens)."""
    attempt = an_attempt(group_index=3, sibling_index=1, seed=seed)
    sampler = LineSampler(engine, CODEC, PYTHON, config, context_tokens=context_tokens)
    return asyncio.run(sampler.sample(attempt, Prompt.plain(">>>"), kernel))


def play_lines(
    *lines: str,
    answers: Mapping[str, Execution] | None = None,
    kernel: FakeKernel | None = None,
    context_tokens: int = 1 << 16,
    **limits: Any,
) -> Trajectory:
    """A rollout of fixed lines; `answers` is what the fake kernel says to each source."""
    return run_rollout(
        ScriptedEngine(CODEC, script(*lines)),
        kernel or FakeKernel(answers),
        SamplingConfig(**limits),
        context_tokens=context_tokens,
    )


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test leaves a mark of trust with who runs it, or finds one there. Runs are shared work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(shared_folder(tmp_path_factory) / "state"))
        yield


@pytest.fixture(scope="session", autouse=True)
def warm_python(state_home: None) -> Iterator[WarmPython]:
    """Starts scripts that find torch and trl imported, and nothing that a test left behind.

    Made before the first test, which may change the environment of its process for good.
    """
    with WarmPython(os.environ) as python:
        yield python


@pytest.fixture(scope="session")
def roll_out() -> Callable[..., Trajectory]:
    return run_rollout


@pytest.fixture(scope="session")
def play() -> Callable[..., Trajectory]:
    return play_lines


@pytest.fixture(scope="session")
def make_trajectory() -> MakeTrajectory:
    return build_trajectory


@pytest.fixture(scope="session")
def make_scored() -> MakeScored:
    """`make_scored(trajectory, outcome, line_rewards, verdict=None)`."""

    def build(
        trajectory: Trajectory,
        outcome: float | None,
        line_rewards: Sequence[float] | None = None,
        verdict: Verdict | None = None,
    ) -> Scored:
        rewards = [0.0] * len(trajectory.lines) if line_rewards is None else line_rewards
        return Scored(
            trajectory=trajectory,
            problem=Problem(id="p", statement="What is 1 + 1?"),
            verdict=verdict,
            reward=Reward(line_rewards=tuple(rewards), outcome_reward=outcome),
        )

    return build


Called = tuple[int, str, str]
"""(exit code, stdout, stderr)"""


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., Called]]:
    """`call(*arguments)` -> (exit code, stdout, stderr), in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    for name in ("HF_HUB_DISABLE_TELEMETRY", "TRL_EXPERIMENTAL_SILENCE", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # undone at the end

    def run(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["repl-rl", *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        return int(str(code or 0)), shown.out, shown.err

    yield run
    signal.signal(signal.SIGTERM, before)
