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
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Any

import httpx

from repl_rl.engines.base import AdaptedWeights, Weights
from repl_rl.errors import EngineError

START_FOR_MEMORY = 'start it with --weight-transfer-config \'{"backend": "nccl"}\''

_PHASES = {
    "init_weight_transfer_engine": "initialise",
    "start_weight_update": "update",
    "update_weights": "update",
    "finish_weight_update": "finish",
}
"""Requests of vLLM's client, and the phases that they begin."""


@dataclass(eq=False)
class Transfer:
    """The way to the server at `url`, which has so many workers. Once it has failed it is gone.

    vLLM walks its weights: names, types and shapes first.
    """

    url: str
    _: KW_ONLY
    num_workers: int
    device: Any  # torch.device
    limit_s: float
    """Seconds that each phase may take."""
    open_sender: Callable[[Transfer], Any] = lambda transfer: open_nccl(transfer)
    """Makes vLLM's sender. Any: a class of vLLM."""
    _weights: Weights = ()
    _sender: Any = None
    _phase: str = "initialise"
    _deadline: float = 0.0
    _error: BaseException | None = None

    async def send(self, weights: Weights) -> None:
        """Have the server load them. It must be paused. Raises EngineError."""
        if self._error is not None:
            raise EngineError(
                f"{self.url} cannot be reached through memory any more; start the run again"
            )
        # vLLM walks them twice: for names and shapes, then for the numbers.
        self._weights = weights if isinstance(weights, AdaptedWeights) else list(weights)
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            try:
                if self._sender is None:
                    self._sender = self.open_sender(self)
                self._sender.send_weights()
            # Whatever it is, it is told where somebody waits.
            except Exception as error:  # noqa: BLE001
                self.fail(error)
            with contextlib.suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(over.set)

        self.enter("initialise" if self._sender is None else "update")
        # Not of a pool: Python would wait for its threads at the end.
        threading.Thread(target=work, name=f"weights to {self.url}", daemon=True).start()
        try:
            await self._wait(over)
        except BaseException as error:
            self.fail(error)
            raise

    def metadata(self) -> list[Any]:
        return [SimpleNamespace(name=name, dtype=one.dtype, shape=one.shape) for name, one in self]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, one.detach()) for name, one in self._weights)

    def enter(self, phase: str) -> None:
        """Begin a phase, with its deadline."""
        self._phase, self._deadline = phase, time.monotonic() + self.limit_s

    def fail(self, error: BaseException) -> None:
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


@dataclass
class Client:
    """vLLM's client of a server, whose phases and failures are noted."""

    transfer: Transfer
    client: Any

    def __getattr__(self, name: str) -> Callable[..., None]:
        phase, request = _PHASES[name], getattr(self.client, name)

        def noted(*given: Any) -> None:
            self.transfer.enter(phase)
            try:
                request(*given)
            except Exception as error:
                self.transfer.fail(error)
                raise

        return noted


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
        info, client=Client(transfer, client), source=transfer
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
