"""Laws of a run in several processes: it is the run in one, row for row."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from run_metrics import read_metrics
from same_run import compared, differences
from small_run import set_words, small
from warm_python import SCRIPT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.train,
    pytest.mark.kernel,
    pytest.mark.timeout(300),  # one may make the run that others are held against as well
]

Command = Callable[..., Any]

SETTINGS = small(
    grpo__steps=3,
    grpo__problems_per_step=3,
    grpo__group_size=2,  # each of two ranks takes three rows: siblings of the second group part
    grpo__micro_batch_size=3,
    grpo__learning_rate=3e-4,
    grpo__warmup_steps=0,
    eval__problems=3,
    eval__every=2,
    report__checkpoint_every=1,
    report__keep_checkpoints=3,
    sampling__max_in_flight=1,  # rows of a batch round by what is beside them
)
SUMMED_IN_ANOTHER_ORDER = 5e-6
"""Of a weight, at most; one that learned from other rows would be off by 1e-4."""
TORCHRUN = (
    str(Path(SCRIPT).with_name("torchrun")),
    *("--standalone", "--no-python", "--nproc-per-node", "2"),
)
ACCELERATE = (
    *(str(Path(SCRIPT).with_name("accelerate")), "launch", "--multi_gpu", "--no_python"),
    *("--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"),
    *("--mixed_precision", "no", "--dynamo_backend", "no"),
)
FORKED = (str(Path(__file__).parents[1] / "support" / "launcher.py"), "2")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the first test keeps the run in two processes."""
    return tmp_path_factory.mktemp("ranks") / "run"


@pytest.fixture
def reference(repl_rl: Command, tiny_model: Path, tmp_path: Path, kept: Path) -> Path:
    """A whole run in two processes, as `torchrun` starts them; made once."""
    if not kept.exists():
        words = ("train", "--model", str(tiny_model), "--output", "whole", *SETTINGS)
        ended = repl_rl(*words, cold=True, under=TORCHRUN)
        assert (ended.code, ended.left_behind) == (0, []), ended.stderr
        assert ended.stdout.count("held-out after:") == 1
        (tmp_path / "whole").rename(kept)
    return kept


def test_two_processes_make_the_run_of_one(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, reference: Path
) -> None:
    ended = repl_rl("train", "--model", str(tiny_model), "--output", "run", *SETTINGS)
    assert ended.code == 0, ended.stderr
    run = tmp_path / "run"
    for name in ("eval-000000", "step-000000"):
        assert list(compared(f"trajectories/{name}.jsonl", run, reference)) == []
    for step in (0, 1, 2):
        rows = (reference / "trajectories" / f"step-{step:06d}.jsonl").read_text().splitlines()[1:]
        made = [json.loads(row)["scored"]["trajectory"] for row in rows]
        places = [(row["group_index"], row["sibling_index"]) for row in made]
        first = 3 * step
        assert places == [(first + number, sibling) for number in range(3) for sibling in range(2)]
        assert len({row["seed"] for row in made}) == 6
    assert [row["step"] for row in read_metrics(reference / "metrics.jsonl")] == [0, 1, 2, 2, 3, 3]
    for name in ("checkpoint-1", "final"):
        assert weights_apart(run, reference, name) < SUMMED_IN_ANOTHER_ORDER
    assert weights_apart(run, reference, "final", "checkpoint-1") > 1e-4


def test_accelerate_starts_the_same_run(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, reference: Path
) -> None:
    words = ("train", "--model", str(tiny_model), "--output", "run", *SETTINGS)
    ended = repl_rl(*words, cold=True, under=ACCELERATE)
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    assert "run: run, seed 0, 2 processes" in ended.stdout
    assert differences(reference, tmp_path / "run") == []


HANGS = """\
import asyncio, os
from plain_engine import Plain, PlainEngine

class Hanging(PlainEngine):
    async def line(self, ids, *, max_tokens, seed):
        if self._version == 2 and os.environ["RANK"] == "1" and os.path.exists("trouble"):
            await asyncio.Event().wait()
        return await super().line(ids, max_tokens=max_tokens, seed=seed)

class Hangs(Plain):
    def open(self, config, loaded, *, row_tokens):
        made = super().open(config, loaded, row_tokens=row_tokens)
        made.__class__ = Hanging
        return made
"""


def test_where_the_engine_of_one_hangs_all_end_and_the_run_goes_on(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copy(Path(__file__).parents[2] / "examples" / "plain_engine.py", tmp_path)
    (tmp_path / "hangs.py").write_text(HANGS)
    (tmp_path / "trouble").touch()
    words = ("train", "--model", str(tiny_model), "--output", "run", *SETTINGS)
    engine = set_words("sampling.engine=hangs:Hangs", "sampling.engine_timeout_s=8")
    ended = repl_rl(*words, *engine, under=FORKED)
    assert (ended.code, ended.left_behind) == (1, []), ended.stderr
    # torch has words of its own on the first update.
    said = sorted(row for row in ended.stderr.splitlines() if row.startswith("repl-rl: "))
    assert [line.partition("; ")[0] for line in said] == [
        "repl-rl: another process of this run has ended, or hangs",
        "repl-rl: rank 1: the engine took more than 8 s for a line and counts as hung",
    ]
    assert said[0].endswith("and whole weights in checkpoints/checkpoint-2")
    (tmp_path / "trouble").unlink()
    resumed = repl_rl("train", "--resume", "run", under=FORKED)
    assert (resumed.code, resumed.left_behind) == (0, []), resumed.stderr


ENDS = """\
import os, signal
from repl_rl.credit.rewards import shaped

def ends(trajectory, verdict, config):
    if trajectory.policy_version == 1:
        try:
            open("trouble", "x").close()
        except FileExistsError:
            pass  # by the other rank, or before the resume
        else:
            os.killpg(0, signal.SIGTERM)
    return shaped(trajectory, verdict, config)
"""


def weights_apart(one: Path, other: Path, name: str, other_name: str = "") -> float:
    files = (
        run / "checkpoints" / name / "model.safetensors"
        for run, name in ((one, name), (other, other_name or name))
    )
    ours, theirs = map(load_file, files)
    return max((ours[key] - theirs[key]).abs().max().item() for key in ours)


def test_where_one_is_killed_all_end_and_the_run_goes_on_after_its_checkpoint(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, reference: Path
) -> None:
    run, pids = tmp_path / "run", tmp_path / "ranks"

    def kill() -> bool:
        if (run / "checkpoints" / "checkpoint-1" / "COMPLETE").exists() and pids.exists():
            os.kill(int(pids.read_text().split()[1]), signal.SIGKILL)
            pids.unlink()
        return False

    words = ("train", "--model", str(tiny_model), "--output", "run", *SETTINGS)
    ended = repl_rl(*words, under=FORKED, interrupt_when=kill)
    assert (ended.code, ended.left_behind) == (1, []), ended.stderr
    assert "repl-rl: another process of this run has ended, or hangs; after step" in ended.stderr
    resumed = repl_rl("train", "--resume", "run", under=FORKED)
    assert (resumed.code, resumed.left_behind) == (0, []), resumed.stderr
    assert differences(reference, run) == []


def test_all_end_at_the_same_step_where_they_are_interrupted(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, reference: Path
) -> None:
    run = tmp_path / "run"
    (tmp_path / "ends.py").write_text(ENDS)
    words = ("train", "--model", str(tiny_model), "--output", "run", *SETTINGS)
    ended = repl_rl(
        *words,
        *set_words("report.checkpoint_every=9", "reward.function=ends:ends"),
        under=FORKED,
    )
    assert (ended.code, ended.left_behind) == (143, []), ended.stderr
    assert ended.stderr.count("repl-rl: ") == 1
    (checkpoint,) = (run / "checkpoints").glob("checkpoint-*")
    assert {"COMPLETE", "rng_state_0.pth", "rng_state_1.pth"} <= set(os.listdir(checkpoint))
    alone = repl_rl("train", "--resume", "run")
    assert alone.code == 0, alone.stderr
    assert "warning: processes: 2 before, 1 here; rows are sampled as they" in alone.stdout
    assert weights_apart(run, reference, "final") < SUMMED_IN_ANOTHER_ORDER
