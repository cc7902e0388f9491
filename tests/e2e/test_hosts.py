"""Laws of a run on two machines, and of one in shards: each is the run of one process.

A machine is a network namespace; a server samples, over HTTP, from weights that come as files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hosts import Host, two_hosts
from same_run import compared
from small_run import small
from warm_python import SCRIPT
from watched_command import WatchedCommand

SUPPORT = Path(__file__).parents[1] / "support"
LIMIT_S = 500
pytestmark = [
    pytest.mark.slow,
    pytest.mark.deaths,
    pytest.mark.train,
    pytest.mark.kernel,
    pytest.mark.timeout(2 * LIMIT_S),
]

SUMMED_IN_ANOTHER_ORDER = 5e-6
FORKED = (str(SUPPORT / "launcher.py"), "2")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
SHARDED = """\
import os
from cpu_shards import shard_on_cpu
from repl_rl.engines.vllm.server import VLLMServer

class Server(VLLMServer):
    pass

shard_on_cpu()
os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "true"
"""
"""An engine whose name has this process shard as it would on GPUs."""


def settings(url: str, folder: Path, **changes: object) -> list[str]:
    """Three groups of four: of four ranks those on both hosts have siblings of the second group."""
    return small(
        **{
            "grpo__steps": 3,
            "grpo__problems_per_step": 3,
            "grpo__group_size": 4,
            "grpo__micro_batch_size": 3,
            "grpo__learning_rate": 3e-4,
            "grpo__warmup_steps": 0,
            "eval__problems": 4,
            "report__checkpoint_every": 1,
            "report__keep_checkpoints": 3,
            "sampling__engine": "vllm-server",
            "sampling__servers": json.dumps([url]),
            "sampling__weights_dir": str(folder),
            **changes,
        }
    )


@contextlib.contextmanager
def served(
    model: Path, folder: Path, host: str, under: Sequence[str] = ()
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Address of a server of the model, and its process."""
    file, log = folder / "address", folder / "server.log"
    words = [*under, sys.executable, str(SUPPORT / "serve_model.py"), str(model), host, str(file)]
    with log.open("w") as said, subprocess.Popen(words, stdout=said, stderr=said) as server:
        try:
            deadline = time.monotonic() + 120
            while not file.exists():
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield file.read_text(), server
        finally:
            server.kill()


def weights_apart(one: Path, other: Path, name: str) -> float:
    files = (run / "checkpoints" / name / "model.safetensors" for run in (one, other))
    ours, theirs = map(load_file, files)
    assert ours.keys() == theirs.keys()
    return max((ours[key] - theirs[key]).abs().max().item() for key in ours)


def tokens(run: Path, step: int) -> list[tuple[int, int, list[int]]]:
    """For each row of a step: its group, its sibling and what it sampled, in order."""
    rows = (run / "trajectories" / f"step-{step:06d}.jsonl").read_text().splitlines()[1:]
    made = [json.loads(row)["scored"]["trajectory"] for row in rows]
    return [(row["group_index"], row["sibling_index"], row["completion_ids"]) for row in made]


def assert_same(run: Path, alone: Path) -> None:
    """The rows of a run are those of one process, one by one, and its weights but for rounding."""
    for name in ("eval-000000", "step-000000"):
        found = compared(f"trajectories/{name}.jsonl", run, alone)
        # Of a run in shards the engine has another name.
        assert [one for one in found if ": origin.config " not in one] == []
    for step in (1, 2):
        assert tokens(run, step) == tokens(alone, step)
    for name in ("checkpoint-1", "final"):
        assert weights_apart(run, alone, name) < SUMMED_IN_ANOTHER_ORDER


def test_two_hosts_make_the_run_of_one_process(tiny_model: Path, tmp_path: Path) -> None:
    """Two ranks on each; the server is on the first, and nothing else can be reached."""
    weights = tmp_path / "weights"
    weights.mkdir()
    with (
        two_hosts() as hosts,
        served(tiny_model, tmp_path, hosts[0].address, hosts[0].inside) as (url, _),
    ):
        words = ("train", "--model", str(tiny_model), *settings(url, weights))
        alone = start(hosts[0], [SCRIPT, *words, "--output", "alone"], tmp_path, "alone")
        assert ended(alone) == 0, (tmp_path / "alone.log").read_text()
        port = free_port(hosts[0])
        ranks = []
        for number, host in enumerate(hosts):
            launched = [
                *(*TORCHRUN, "--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", "2"),
                *("--master-addr", hosts[0].address, "--master-port", port, "--no-python"),
                *(SCRIPT, *words, "--output", "both"),
            ]
            ranks.append(start(host, launched, tmp_path, f"host-{number}"))
        codes = [ended(one) for one in ranks]
        said = [(tmp_path / f"host-{number}.log").read_text() for number in range(2)]
        assert codes == [0, 0], said
    assert "run: both, seed 0, 4 processes on 2 hosts" in said[0]
    assert "held-out" not in said[1]
    assert_same(tmp_path / "both", tmp_path / "alone")
    assert list(weights.iterdir()) == []


def start(host: Host, words: Sequence[str], folder: Path, name: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": host.device,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "REPL_RL_CACHE": str(folder / "cache"),
        "TP_SOCKET_IFNAME": host.device,
    }
    with (folder / f"{name}.log").open("w") as said:
        return subprocess.Popen(
            [*host.inside, *words], cwd=folder, env=environment, stdout=said, stderr=said
        )


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(LIMIT_S)
    finally:
        process.kill()


def free_port(host: Host) -> str:
    program = "import socket; print(socket.create_server(('', 0)).getsockname()[1])"
    words = [*host.inside, sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_a_run_of_shards_is_the_run_of_one_process_and_goes_on(
    repl_rl: WatchedCommand, tiny_model: Path, tmp_path: Path
) -> None:
    """By accelerate's FSDP2, of which the device alone is another one here."""
    (tmp_path / "sharded.py").write_text(SHARDED)
    shutil.copy(SUPPORT / "cpu_shards.py", tmp_path)
    repl_rl = replace(repl_rl, timeout_s=LIMIT_S)  # each rank loads the libraries anew
    words = ("train", "--model", str(tiny_model))
    with served(tiny_model, tmp_path, "127.0.0.1") as (url, _):
        alone = repl_rl(*words, "--output", "alone", *settings(url, tmp_path))
        assert alone.code == 0, alone.stderr
        sharded = {"sampling__engine": "sharded:Server", "eval__every": 2}
        short = settings(url, tmp_path, **sharded, grpo__steps=2)
        begun = repl_rl(*words, "--output", "shards", *short, under=FORKED)
        assert (begun.code, begun.left_behind) == (0, []), begun.stderr
        assert (tmp_path / "shards" / "checkpoints" / "best" / "model.safetensors").exists()
        more = ("train", "--resume", "shards", "--set", "grpo.steps=3")
        resumed = repl_rl(*more, under=(FORKED[0], "4"))
        assert (resumed.code, resumed.left_behind) == (0, []), resumed.stderr
    assert "warning: processes: 2 before, 4 here; rows are sampled as they" in resumed.stdout
    assert_same(tmp_path / "shards", tmp_path / "alone")
    assert {"pytorch_model_fsdp_0", "model.safetensors", "tokenizer.json"} <= set(
        os.listdir(tmp_path / "shards" / "checkpoints" / "checkpoint-3")
    )


def test_where_the_server_of_shards_is_gone_all_end_and_say_so(
    repl_rl: WatchedCommand, tiny_model: Path, tmp_path: Path
) -> None:
    """The first rank finds nobody to send to; no other waits for it in a collective."""
    (tmp_path / "sharded.py").write_text(SHARDED)
    shutil.copy(SUPPORT / "cpu_shards.py", tmp_path)
    repl_rl = replace(repl_rl, timeout_s=LIMIT_S)
    whole = tmp_path / "run" / "checkpoints" / "checkpoint-1" / "COMPLETE"
    with served(tiny_model, tmp_path, "127.0.0.1") as (url, server):

        def end_server() -> bool:
            if whole.exists():
                server.kill()
            return False

        sharded = settings(url, tmp_path, sampling__engine="sharded:Server", eval__problems=0)
        words = ("train", "--model", str(tiny_model), "--output", "run", *sharded)
        ended = repl_rl(*words, under=FORKED, interrupt_when=end_server)
    assert (ended.code, ended.left_behind) == (1, []), ended.stderr
    said = sorted(row for row in ended.stderr.splitlines() if row.startswith("repl-rl: "))
    assert len(said) == 2, ended.stderr
    assert said[0].startswith(f"repl-rl: {url} does not ")
    assert "checkpoints/checkpoint-" in said[0]
    assert said[1].startswith("repl-rl: rank 1: another process of this run has ended, or hangs")
