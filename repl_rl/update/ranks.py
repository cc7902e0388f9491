"""The processes that train as one: which of them this is, and what they tell each other.

    the launcher's environment -> Ranks -> shares of rows, gathered rows

Knows torch.distributed, which is imported where several processes meet. Does not know what is in a
row.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from repl_rl.base.concurrency import Apart, launcher_number, num_processes
from repl_rl.config.sections import Settings
from repl_rl.engines.base import EngineKind
from repl_rl.errors import ConfigError, RankError

T = TypeVar("T")

_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_FSDP, _DEEPSPEED = "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"
_MEET_S = 1800.0
"""Seconds in which all ranks must have come: a launcher starts them at once."""
_SHARDED_ON = {"cuda"}
"""Devices on which accelerate shards. Elsewhere it says nothing and does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One of `world` processes. All of them call `gather` and its like in the same order.

    Each of these raises RankError where another process has ended.

    >>> [Ranks(rank=rank, world=2).share("abcde") for rank in (0, 1)]
    [['a', 'b'], ['c', 'd', 'e']]
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    """Among those on this machine."""
    local_world: int = 1

    def __str__(self) -> str:
        hosts = f" on {self.num_hosts} hosts" if self.num_hosts > 1 else ""
        return f"{self.world} processes{hosts}"

    @property
    def num_hosts(self) -> int:
        """Machines, with as many processes on each."""
        return -(-self.world // self.local_world)

    @property
    def is_first(self) -> bool:
        """True for the rank that alone writes files and talks to a person."""
        return self.rank == 0

    @property
    def are_several(self) -> bool:
        return self.world > 1

    def share(self, rows: Sequence[T]) -> list[T]:
        """Return the slice of this rank. The slices of all, in order, are all rows."""
        size = len(rows)
        return list(rows[self.rank * size // self.world : (self.rank + 1) * size // self.world])

    def gather(self, rows: Sequence[T]) -> list[T]:
        """The rows of all ranks, in the order of ranks."""
        if not self.are_several:
            return list(rows)
        import torch.distributed as group

        parts: list[list[T]] = [[] for _ in range(self.world)]
        with peers_named():
            group.all_gather_object(parts, list(rows))
        return [row for part in parts for row in part]

    def gather_first(self, rows: Sequence[T]) -> list[T]:
        """Gather for the first rank alone; the others get nothing."""
        if not self.are_several:
            return list(rows)
        import torch.distributed as group

        parts: list[list[T]] = [[] for _ in range(self.world)]
        with peers_named():
            group.gather_object(list(rows), parts if self.is_first else None, dst=0)
        return [row for part in parts for row in part]

    def from_first(self, value: T) -> T:
        """Give the first rank's value to all."""
        return self.gather([value])[0]

    def any(self, is_so: bool) -> bool:
        """Return whether it is so for one of them."""
        return any(self.gather([is_so]))

    def barrier(self) -> None:
        """Wait until all are here."""
        self.gather([None])

    @contextlib.contextmanager
    def joined(self, *, device: str, timeout_s: float) -> Iterator[None]:
        """Within the block all ranks hear each other, and each has a GPU and cores of its own.

        A rank waits `timeout_s` for the others.
        """
        if not self.are_several:
            yield
            return
        import torch

        if device == "cpu":
            # It would number the CPU by rank, and torch loads no optimiser onto `cpu:1`.
            os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        else:
            torch.cuda.set_device(self.local_rank % torch.cuda.device_count())
        if "OMP_NUM_THREADS" not in os.environ:
            num_threads = max(1, len(os.sched_getaffinity(0)) // self.local_world)
            torch.set_num_threads(num_threads)
            os.environ["OMP_NUM_THREADS"] = str(num_threads)  # accelerate counts cores of its own
        # Objects go over the CPU, also where gradients go over GPUs.
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        store, limit = _meet(self), timedelta(seconds=timeout_s)
        store.set_timeout(limit)
        with peers_named():
            torch.distributed.init_process_group(
                backend, store=store, rank=self.rank, world_size=self.world, timeout=limit
            )
        if device != "cpu":
            own = torch.cuda.get_device_properties(torch.cuda.current_device())
            refuse_shared(self.gather([f"{own.name} {own.uuid}"]))
        yield
        torch.distributed.destroy_process_group()


ALONE = Ranks()


def _meet(ranks: Ranks) -> Any:
    """Return the store by which ranks find each other. ConfigError or RankError without one."""
    from torch.distributed.rendezvous import rendezvous

    host, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    place = f"{host}:{port}"
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(
            f"ranks cannot meet at MASTER_ADDR:MASTER_PORT = {place!r}; expected a host and the "
            f"number of a port: start them with torchrun, or set both"
        )
    limit = timedelta(seconds=_MEET_S)
    try:
        # Apart: torch waits for ever where something else answers at that address.
        store, _, _ = Apart(lambda: next(rendezvous("env://", timeout=limit))).result(_MEET_S)
    except (RuntimeError, TimeoutError) as error:
        if "EADDRINUSE" in str(error):
            raise ConfigError(
                f"rank {ranks.rank} cannot listen at {place}, where ranks are to meet: the port is "
                f"taken; set MASTER_PORT to a free one (torchrun --master-port)"
            ) from None
        raise RankError(
            f"rank {ranks.rank} has not met the others at {place} within {_MEET_S:g} s; check that "
            f"all {ranks.world} run, with this MASTER_ADDR, and a MASTER_PORT that no other run "
            f"has"
        ) from error
    return store


def launched(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Return the ranks as torchrun or accelerate set them; without them this is the only one."""
    world = num_processes(environment)
    rank = launcher_number("RANK", 0, environment)
    if rank >= world:
        raise ConfigError(
            f"RANK = {rank} in the environment, of WORLD_SIZE = {world} processes; a launcher sets "
            f"both, and counts ranks from 0: unset them, or start it with torchrun"
        )
    return Ranks(
        rank=rank,
        world=world,
        local_rank=launcher_number("LOCAL_RANK", rank, environment),
        local_world=max(1, launcher_number("LOCAL_WORLD_SIZE", world, environment)),
    )


def is_launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a launcher says which GPU is whose."""
    return "LOCAL_RANK" in environment


def refuse_several(command: str, environment: Mapping[str, str] = os.environ) -> None:
    """ConfigError where a launcher has started more processes than the one that `command` is."""
    if (world := launched(environment).world) > 1:
        raise ConfigError(
            f"`{command}` is one process, and a launcher has started {world} (WORLD_SIZE); start "
            f"it without torchrun or accelerate, which are for `repl-rl train`"
        )


def check_seen(path: Path, ranks: Ranks) -> None:
    """ConfigError unless all ranks see the place of `path`, into which they write together.

    Else a checkpoint would lack what those on another host have written, and say nothing.
    """
    if not ranks.are_several:
        return
    home = next(folder for folder in (*path.parents, Path()) if folder.is_dir())
    with contextlib.ExitStack() as stack:
        if ranks.is_first:
            made = stack.enter_context(tempfile.TemporaryDirectory(dir=home, prefix=".repl-rl-"))
            home /= Path(made).name
        home = ranks.from_first(home)
        sees = ranks.gather([home.is_dir()])  # before the first one removes it
    if unseen := [rank for rank, is_seen in enumerate(sees) if not is_seen]:
        raise ConfigError(
            f"rank {unseen[0]} does not see {str(home.parent)!r}, where the run's folder is to be; "
            f"give --output a folder that all hosts share, and start all ranks in one folder"
        )


def refuse_shared(gpus: Sequence[str]) -> None:
    """ConfigError where two ranks have one GPU; `gpus` are those of all, in their order."""
    for rank, gpu in enumerate(gpus):
        if (first := gpus.index(gpu)) < rank:
            raise ConfigError(
                f"ranks {first} and {rank} would train on one GPU, {gpu}; start as many processes "
                f"on a machine as it has GPUs (--nproc-per-node), or set CUDA_VISIBLE_DEVICES"
            )


def is_sharding(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the launcher's settings say that accelerate shards the weights by FSDP."""
    return _is_on(environment, _FSDP)


def refuse_shards(environment: Mapping[str, str] = os.environ) -> None:
    """ConfigError where accelerate is to shard the weights."""
    for name, what in ((_FSDP, "FSDP"), (_DEEPSPEED, "DeepSpeed")):
        if _is_on(environment, name):
            raise ConfigError(
                f"{what} shards the weights, but sampling needs them whole in each process; launch "
                f"without it: each process then holds the whole model"
            )


def check_shards(
    settings: Settings,
    engine: EngineKind,
    *,
    device: str,
    trains_adapter: bool,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """ConfigError where accelerate is to shard the weights, and the run cannot be sharded."""
    if _is_on(environment, _DEEPSPEED):
        refuse_shards(environment)
    if not is_sharding(environment):
        return
    kind = environment.get("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT")
    expected = {
        f"the engine 'vllm-server' instead of {engine.name!r}, which samples here": (
            engine.samples_elsewhere
        ),
        "fsdp_version: 2": environment.get("FSDP_VERSION", "1") == "2",
        "fsdp_state_dict_type: SHARDED_STATE_DICT": kind == "SHARDED_STATE_DICT",
        f"a GPU, as accelerate shards nothing on a {device}": device in _SHARDED_ON,
        "fsdp_activation_checkpointing: false, as grpo.gradient_checkpointing does it": not _is_on(
            environment, "FSDP_ACTIVATION_CHECKPOINTING"
        ),
        "sampling.run_on = 'allow'": settings.sampling.run_on == "allow",
        "trl.sync_ref_model = false": not settings.trl.get("sync_ref_model"),
        "fsdp_cpu_ram_efficient_loading: false, as each rank reads its reference": (
            not _is_on(environment, "FSDP_CPU_RAM_EFFICIENT_LOADING")
            or settings.grpo.kl_beta == 0
            or trains_adapter
        ),
        "grpo.dtype = 'mixed', as it holds float32": (
            settings.grpo.dtype != "bfloat16" or trains_adapter
        ),
    }
    if missing := [text for text, is_met in expected.items() if not is_met]:
        raise ConfigError(
            f"FSDP shards the weights, which needs {missing[0]}; or launch without it: each "
            f"process then holds the whole model"
        )


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in ("1", "true", "yes", "on")


@contextlib.contextmanager
def without_launcher() -> Iterator[None]:
    """Within the block libraries see one process: for work that the first rank does alone."""
    hidden = {name: os.environ.pop(name) for name in _LAUNCHER if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextlib.contextmanager
def peers_named() -> Iterator[None]:
    """Turn what torch says when another rank has ended into a RankError of one line."""
    try:
        yield
    except RuntimeError as error:
        import torch.distributed as group

        # gloo's errors have no type of their own.
        if not isinstance(error, group.DistError) and "gloo" not in str(error):
            raise
        raise RankError("another process of this run has ended, or hangs") from error
