"""Whole weights to a vLLM server through the memory of GPUs, by vLLM's own transfer.

    weights -> WeightTransferTrainerFactory -> a group of this process and the server's workers

Tried with another transport in place of NCCL, on a CPU; not on GPUs. vLLM loads weights as they
arrive, so its server is paused from the start. A peer that is dead or silent is an EngineError at
the deadline of its phase: the thread that waits for it is left behind, as NCCL waits for ever.
Knows phases and deadlines. Does not know pauses, labels or lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx

from repl_rl.engines.base import AdaptedWeights, Weights
from repl_rl.engines.vllm.replica import Replica
from repl_rl.errors import ConfigError, EngineError

START_FOR_MEMORY = 'start it with --weight-transfer-config \'{"backend": "nccl"}\''

Open = Callable[["Transfer"], Any]
"""Makes vLLM's sender for a transfer. Any: a class of vLLM."""


class Transfers:
    """The ways from a trainer's model to its servers."""

    def __init__(self, device: Any, *, limit_s: float, open_sender: Open | None = None) -> None:
        if open_sender is None and device.type != "cuda":
            raise ConfigError(
                f"sampling.weights = 'nccl' sends weights from a GPU, and the model is on the "
                f"device {device.type!r}; give sampling.weights = 'file'"
            )
        self._open = partial(
            Transfer, device=device, limit_s=limit_s, open_sender=open_sender or open_nccl
        )
        self._by_url: dict[str, Transfer] = {}

    async def send(self, replica: Replica, weights: Weights) -> None:
        """Have a server load them. It must be paused. Raises EngineError, and Unavailable."""
        if replica.url not in self._by_url:
            num_workers = await replica.num_workers()
            self._by_url[replica.url] = self._open(replica.url, num_workers=num_workers)
        await self._by_url[replica.url].send(weights)


class Transfer:
    """The way to the server at `url`, which has so many workers. Once it has failed it is gone."""

    def __init__(
        self, url: str, *, num_workers: int, device: Any, limit_s: float, open_sender: Open
    ) -> None:
        self.url, self.num_workers, self.device = url, num_workers, device
        self.limit_s = limit_s
        """Seconds that each phase may take."""
        self.weights: Weights = ()
        self._open_sender = open_sender
        self._sender: Any = None
        self._phase = "initialise"
        self._deadline = 0.0
        self._error: BaseException | None = None

    async def send(self, weights: Weights) -> None:
        """Have the server load them. It must be paused. Raises EngineError."""
        if self._error is not None:
            raise EngineError(f"{self.url} is out of reach through memory; begin the run again")
        # vLLM walks them twice: for names and shapes, then for the numbers.
        self.weights = weights if isinstance(weights, AdaptedWeights) else list(weights)
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            try:
                if self._sender is None:
                    self._sender = self._open_sender(self)
                self._sender.send_weights()
            # Whatever it is, it is told where somebody waits.
            except Exception as error:  # noqa: BLE001
                self._error = self._error or error
            with contextlib.suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(over.set)

        self.enter("initialise" if self._sender is None else "update")
        # Not of a pool: Python would wait for its threads at the end.
        threading.Thread(target=work, name=f"weights to {self.url}", daemon=True).start()
        try:
            await self._wait(over)
        except BaseException as error:
            self._error = self._error or error
            raise

    def enter(self, phase: str) -> None:
        """Begin a phase, with its deadline."""
        self._phase, self._deadline = phase, time.monotonic() + self.limit_s

    def fail(self, error: Exception) -> None:
        """Note what a request met with: its other half would be waited for until the deadline."""
        self._error = self._error or error

    async def _wait(self, over: asyncio.Event) -> None:
        while not over.is_set() and self._error is None:
            if time.monotonic() > self._deadline:
                raise EngineError(
                    f"{self.url} did not {self._phase} within {self.limit_s:g} s for weights "
                    f"through memory; see its log, or give sampling.weights = 'file'"
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 0.05)
        if self._error is not None:
            raise EngineError(
                f"{self.url} did not {self._phase} for weights through memory: {self._error}; "
                f"{START_FOR_MEMORY}, or give sampling.weights = 'file'"
            )


class Client:
    """vLLM's client of a server, whose phases and failures are noted."""

    def __init__(self, transfer: Transfer, client: Any) -> None:
        self._transfer, self._client = transfer, client

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._do("initialise", self._client.init_weight_transfer_engine, init_info)

    def start_weight_update(self) -> None:
        self._do("update", self._client.start_weight_update)

    def update_weights(self, update_info: Any) -> None:
        self._do("update", self._client.update_weights, update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._do("finish", self._client.finish_weight_update, weight_version)

    def _do(self, phase: str, request: Callable[..., None], *given: Any) -> None:
        self._transfer.enter(phase)
        try:
            request(*given)
        except Exception as error:
            self._transfer.fail(error)
            raise


class Source:
    """A transfer's weights as vLLM walks them: names, types and shapes first."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    def metadata(self) -> list[Any]:
        return [SimpleNamespace(name=name, dtype=one.dtype, shape=one.shape) for name, one in self]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, one.detach()) for name, one in self._transfer.weights)


def open_nccl(transfer: Transfer) -> Any:
    """vLLM's sender to one server, when the server's workers have joined its group."""
    import torch

    package = "vllm.distributed.weight_transfer"
    clients, factory, nccl = (
        importlib.import_module(f"{package}.{name}")
        for name in ("clients", "factory", "nccl_engine")
    )
    if transfer.device.type == "cuda":
        torch.cuda.set_device(transfer.device)  # each thread has its own
    address, port = meeting_point(transfer.url)
    info = nccl.NCCLTrainerInitInfo(
        master_address=address,
        master_port=port,
        world_size=1 + transfer.num_workers,
        rank=0,
        packed=transfer.device.type == "cuda",
    )
    # Above the deadline, which says more.
    client = clients.HTTPVLLMWeightSyncClient(transfer.url, timeout=transfer.limit_s + 5)
    return factory.WeightTransferTrainerFactory.trainer_init(
        info, client=Client(transfer, client), source=Source(transfer)
    )


def meeting_point(url: str) -> tuple[str, int]:
    """This machine's address as a server sees it, and a port that is free."""
    server = httpx.URL(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((server.host, server.port or 80))  # sends nothing
        address: str = sock.getsockname()[0]
    with socket.socket() as sock:
        sock.bind((address, 0))
        port: int = sock.getsockname()[1]
    return address, port
