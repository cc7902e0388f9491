"""Laws of a run with workers: it is the run without, and nothing of it outlives it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from repl_rl.commands.cli import USAGE_ERROR
from same_run import compared, differences
from small_run import set_words, small
from watched_command import WatchedCommand

pytestmark = [
    pytest.mark.slow,
    pytest.mark.deaths,
    pytest.mark.train,
    pytest.mark.kernel,
    pytest.mark.timeout(900),
]

Command = Callable[..., Any]

SETTINGS = small(
    grpo__steps=2,
    grpo__problems_per_step=3,
    grpo__group_size=2,
    grpo__learning_rate=1e-3,
    grpo__warmup_steps=0,
    eval__problems=3,
    report__checkpoint_every=1,
)
FORKED = (str(Path(__file__).parents[1] / "support" / "launcher.py"), "2")
SERVED = """\
from pathlib import Path
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from plain_engine import Plain, PlainEngine

class ServedEngine(PlainEngine):
    label = ""

    async def sync(self, weights, *, version):
        Path("served").mkdir(exist_ok=True)
        self.label = str(version)
        save_file({name: one.detach().clone() for name, one in weights}, f"served/{version}")
        await self.adopt(self.label, version=version)

    async def adopt(self, label, *, version):
        self._model.load_state_dict(load_file(f"served/{label}"), strict=False)
        self._version = version

class Served(Plain):
    name = "served"
    shares_weights = False
    is_client = True

    def open(self, config, loaded, *, row_tokens):
        return ServedEngine(
            AutoModelForCausalLM.from_config(loaded.config).eval(),
            newline_ids=loaded.codec.newline_ids,
            eos_ids=loaded.codec.eos_ids,
            temperature=config.sampling.temperature,
            forbidden_ids=loaded.forbidden_ids,
        )
"""
"""An engine whose weights lie in a file, as those of a server do."""


@pytest.fixture
def repl_rl(repl_rl: WatchedCommand) -> WatchedCommand:
    """Workers start in Pythons of their own, which import torch: on busy cores that takes long."""
    return replace(repl_rl, timeout_s=300.0)


@pytest.fixture
def words(tiny_model: Path, tmp_path: Path) -> list[str]:
    shutil.copy(Path(__file__).parents[2] / "examples" / "plain_engine.py", tmp_path)
    (tmp_path / "served_engine.py").write_text(SERVED)
    engine = set_words("sampling.engine=served_engine:Served")
    return ["train", "--model", str(tiny_model), *SETTINGS, *engine]


def workers_of_all() -> list[psutil.Process]:
    """Workers that run below this process."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        if (one.info["cmdline"] or [])[-2:] == ["repl_rl.commands.cli", "worker"]:
            found.append(one)
    return found


def test_a_run_with_workers_of_which_one_is_killed_is_the_run_without(
    repl_rl: Command, words: list[str], tmp_path: Path
) -> None:
    alone = repl_rl(*words, "--output", "alone")
    assert (alone.code, alone.left_behind) == (0, []), alone.stderr
    killed: list[int] = []

    def kill() -> bool:
        if not killed and (tmp_path / "run" / "trajectories" / "step-000000.jsonl").exists():
            victim = workers_of_all()[0]
            victim.send_signal(signal.SIGKILL)
            killed.append(victim.pid)
        return False

    ended = repl_rl(
        *words, *set_words("workers.count=2"), "--output", "run", interrupt_when=kill
    )  # fmt: skip
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr + ended.stdout
    assert killed
    assert "workers: 2, kernels " in ended.stdout
    assert ended.stdout.count("has ended (exit code -9); ") == 1
    differing = differences(tmp_path / "alone", tmp_path / "run")
    assert [one for one in differing if "origin.config" not in one] == []
    assert {one.name for one in (tmp_path / "run" / "workers").iterdir()} == {
        "worker-0.log",
        "worker-1.log",
    }
    more = set_words("workers.count=0", "grpo.steps=3")
    resumed = repl_rl("train", "--resume", "run", *more)
    assert (resumed.code, resumed.left_behind) == (0, []), resumed.stderr
    assert "workers.count = 0, 2 before" in resumed.stderr


def test_a_worker_that_dies_beside_an_update_changes_no_row(
    repl_rl: Command, words: list[str], tmp_path: Path
) -> None:
    """It has rollouts of the next step under way; the last of three is made beside the second."""
    more = set_words("grpo.staleness=1", "grpo.steps=3", "eval.problems=0")
    alone = repl_rl(*words, *more, "--output", "alone")
    assert (alone.code, alone.left_behind) == (0, []), alone.stderr
    killed: list[int] = []

    def kill() -> bool:
        if not killed and (tmp_path / "run" / "trajectories" / "step-000001.jsonl").exists():
            killed.append(workers_of_all()[0].pid)
            os.kill(killed[0], signal.SIGKILL)
        return False

    several = set_words("workers.count=2")
    ended = repl_rl(*words, *more, *several, "--output", "run", interrupt_when=kill)
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr + ended.stdout
    assert killed
    differing = differences(tmp_path / "alone", tmp_path / "run")
    assert [one for one in differing if "origin.config" not in one] == []


def test_ranks_with_workers_of_their_own_make_the_rows_of_one_process(
    repl_rl: Command, words: list[str], tmp_path: Path
) -> None:
    alone = repl_rl(*words, "--output", "alone", *set_words("grpo.steps=1"))
    assert alone.code == 0, alone.stderr
    more = set_words("workers.count=1", "grpo.steps=1")
    ended = repl_rl(*words, *more, "--output", "run", under=FORKED)
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    for name in ("eval-000000", "step-000000"):
        differing = compared(f"trajectories/{name}.jsonl", tmp_path / "alone", tmp_path / "run")
        assert [one for one in differing if "origin.config" not in one] == []
    assert len(list((tmp_path / "run" / "workers").iterdir())) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_run_that_is_ended(
    repl_rl: Command, words: list[str], tmp_path: Path, number: signal.Signals
) -> None:
    def is_under_way() -> bool:
        return (tmp_path / "run" / "trajectories" / "eval-000000.jsonl").exists()

    ended = repl_rl(
        *words,
        *set_words("workers.count=1", "grpo.steps=50"),
        *("--output", "run"),
        interrupt_when=is_under_way,
        interrupt_with=number,
    )
    code = {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    assert (ended.code, ended.left_behind) == (code, []), ended.stderr


def test_a_worker_without_a_trainer_says_so(repl_rl: Command) -> None:
    ended = repl_rl("worker")
    assert (ended.code, ended.stdout) == (USAGE_ERROR, "")
    assert ended.stderr == (
        "repl-rl: `repl-rl train` starts its workers itself; set workers.count there\n"
    )
