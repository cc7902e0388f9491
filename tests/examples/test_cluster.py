"""Files of clusters: each is read or run as the program that it is for would."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3Config

from repl_rl.commands.cli import cli
from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.engines.memory import measure
from repl_rl.engines.vllm.server import VLLMServer
from repl_rl.models.loading import read_files
from repl_rl.models.precision import precision
from repl_rl.update.ranks import check_shards
from tiny_model import save_tiny_model

pytestmark = pytest.mark.slow

yaml: Any = importlib.import_module("yaml")  # it has no types
CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
Call = Callable[..., tuple[int, str, str]]


def sharding(environment: Mapping[str, str]) -> dict[str, str]:
    names = ("FSDP_", "ACCELERATE_USE_FSDP")
    return {key: value for key, value in environment.items() if key.startswith(names)}


def checked(environment: Mapping[str, str]) -> None:
    config = Config(model="m", sampling=SamplingConfig(servers=("http://a:1",)))
    check_shards(config, VLLMServer(), device="cuda", trains_adapter=False, environment=environment)


def test_accelerates_config_shards_as_a_run_takes_it() -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    words = ["--config_file", str(CLUSTER / "fsdp2.yaml"), "--no_python", "repl-rl", "train"]
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(words))
    assert (args.num_processes, args.use_fsdp, args.training_script) == (8, True, "repl-rl")
    environment = prepare_multi_gpu_env(args)
    assert environment["ACCELERATE_USE_FSDP"] == "true"
    assert environment["FSDP_STATE_DICT_TYPE"] == "SHARDED_STATE_DICT"
    checked(environment)


PROGRAMS = {
    "scontrol": "printf 'n1\\nn2\\nn3\\n'",
    "curl": "until [[ -e said ]]; do sleep 0.05; done",  # the server answers once it is there
    "vllm": 'echo "vllm on $SLURMD_NODENAME: $VLLM_SERVER_DEV_MODE $*" >> said; exec sleep 60',
    "torchrun": 'echo "torchrun on $SLURM_NODEID: $*" >> said; env > "env-$SLURM_NODEID"',
    # It starts the command on each node of the list, as srun does.
    "srun": """\
for word in "$@"; do
    case $word in
        --nodelist=*) IFS=, read -ra nodes <<< "${word#*=}"; shift;;
        --*) shift;;
        *) break;;
    esac
done
for id in "${!nodes[@]}"; do
    SLURM_NODEID=$id SLURMD_NODENAME=${nodes[id]} "$@" &
    pids+=($!)
done
trap 'kill "${pids[@]}"' TERM
wait
""",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder whose `bin` has the programs of a cluster, which say what they were asked for."""
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    return tmp_path


def submit(folder: Path, **variables: str) -> str:
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-3]",
        **variables,
    }
    words = ["bash", str(CLUSTER / "train.sbatch"), "run.toml", "/models/m"]
    ended = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return (folder / "said").read_text()


def test_slurm_starts_a_server_on_the_last_node_and_trainers_on_the_others(
    cluster: Path,
) -> None:
    said = submit(cluster)
    assert re.search(r"^vllm on n3: 1 serve /models/m .*--port 8000 .*PolicyLoader$", said, re.M)
    trainers = sorted(re.findall(r"^torchrun on (.*)$", said, re.M))
    assert [one.partition(":")[0] for one in trainers] == ["0", "1"]
    for number, words in enumerate(trainers):
        given = words.partition(": ")[2].split()
        launch, run = given[: given.index("repl-rl")], given[given.index("repl-rl") + 1 :]
        from torch.distributed.run import get_args_parser

        args = get_args_parser().parse_args([*launch, "repl-rl", *run])
        assert (args.nnodes, args.node_rank, args.nproc_per_node) == ("2", number, "8")
        assert (args.master_addr, args.training_script_args) == ("n1", run)
        assert run[:3] == ["train", "--output", "runs/7"]
        config = config_of(run)
        assert config.sampling.servers == ("http://n3:8000",)
        assert config.sampling.weights_dir == str(cluster / "weights")
    assert sharding(environment_of(cluster / "env-0")) == {}


def environment_of(file: Path) -> dict[str, str]:
    rows = [row.partition("=") for row in file.read_text().splitlines()]
    return {key: value for key, _, value in rows}


def config_of(words: list[str]) -> Config:
    """Return what `repl-rl train` makes of these words, without its files."""
    group = cli.make_context("repl-rl", [], resilient_parsing=True)
    command: Any = cli.get_command(group, "train")
    context = command.make_context("train", words[1:], parent=group, resilient_parsing=True)
    given = context.params
    flags = {"model": given["model"], "sampling": {"engine": given["engine"]}}
    return resolve(overrides=given["overrides"], flags=flags)


def test_slurm_goes_on_with_a_run_that_has_begun_and_shards_if_asked_to(cluster: Path) -> None:
    (cluster / "runs" / "7").mkdir(parents=True)
    said = submit(cluster, SHARDED="1", GPUS="4")
    assert said.count("--nproc-per-node 4") == 2
    assert said.count("repl-rl train --resume runs/7 ") == 2
    checked(sharding(environment_of(cluster / "env-1")))


def documents() -> list[Any]:
    return list(yaml.safe_load_all((CLUSTER / "train.yaml").read_text()))


def of_kind(kind: str, name: str) -> Any:
    (found,) = [
        one for one in documents() if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    return found


def pod(kind: str, name: str) -> Any:
    return of_kind(kind, name)["spec"]["template"]


def test_kubernetes_trainers_find_the_server_and_each_other() -> None:
    from torch.distributed.run import get_args_parser

    job = of_kind("Job", "trainer")["spec"]
    (container,) = job["template"]["spec"]["containers"]
    words = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in container["command"]]
    args = get_args_parser().parse_args(words[1:])
    assert (words[0], args.training_script, args.node_rank) == ("torchrun", "repl-rl", 1)
    assert int(args.nnodes) == job["completions"] == job["parallelism"]
    assert args.nproc_per_node == str(container["resources"]["limits"]["nvidia.com/gpu"])
    # The first pod of an indexed job has its name by its headless service.
    assert args.master_addr == f"trainer-0.{of_kind('Service', 'trainer')['metadata']['name']}"
    assert job["template"]["spec"]["subdomain"] == "trainer"
    config = config_of(args.training_script_args)
    port = of_kind("Service", "policy")["spec"]["ports"][0]["port"]
    assert config.sampling.servers == (f"http://policy:{port}",)
    (server,) = pod("Deployment", "policy")["spec"]["containers"]
    assert f"--port={port}" in server["command"]


def test_kubernetes_pods_share_a_volume_and_let_nobody_else_in() -> None:
    rule = of_kind("NetworkPolicy", "only-each-other")["spec"]
    expected = {"matchExpressions": [{"key": "app", "operator": "In", "values": [*APPS.values()]}]}
    assert rule["podSelector"] == expected
    assert rule["ingress"] == [{"from": [{"podSelector": expected}]}]
    for kind, name in APPS.items():
        template = pod(kind, name)
        assert template["metadata"]["labels"] == {"app": name}
        claims = [one.get("persistentVolumeClaim") for one in template["spec"]["volumes"]]
        assert {"claimName": "shared"} in claims


APPS = {"Deployment": "policy", "Job": "trainer"}


SHAPES: dict[str, dict[str, Any]] = {
    "8 B": {"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36},
    "32 B": {"hidden_size": 5120, "intermediate_size": 25_600, "num_hidden_layers": 64},
}
HEADS = {"8 B": 32, "32 B": 64}


@pytest.mark.parametrize("name", SHAPES)
def test_the_page_says_what_the_estimate_finds_of_ranks_that_share_a_model(
    name: str, tmp_path: Path
) -> None:
    folder = save_tiny_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()  # nothing reads it
    Qwen3Config(
        vocab_size=151_936,
        num_attention_heads=HEADS[name],
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=False,
        **SHAPES[name],
    ).save_pretrained(folder)
    files, engine = read_files(str(folder)), VLLMServer()
    config = Config(
        model="m",
        sampling=SamplingConfig(max_tokens=2048),
        grpo=GRPOConfig(micro_batch_size=8),
    )
    types = precision(config, engine, device="cuda")
    found = [
        measure(
            config,
            engine,
            files,
            types,
            row_tokens=2304,
            is_training=True,
            recomputes=True,
            device="cuda",
            num_shards=num_shards,
        ).update_peak
        for num_shards in (None, 8, 16)
    ]
    page = (CLUSTER.parents[1] / "docs" / "scale.md").read_text()
    (row,) = re.findall(rf"^\| {name} \| ([\d. |]+) \|$", page, re.M)
    assert [float(one) for one in row.split(" | ")] == [round(one / 2**30, 1) for one in found]
