"""Transport of vLLM's weight transfer for machines without GPUs: torch's store in place of NCCL.

    vllm serve MODEL --worker-extension-cls store_transfer.StoreTransfer ...

Importing it changes vLLM's own classes in this process, the trainer's and the worker's alike.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

nccl: Any = importlib.import_module("vllm.distributed.weight_transfer.nccl_engine")
utils: Any = importlib.import_module("vllm.distributed.utils")


class StoreGroup:
    """As much of a communicator of NCCL as moves one tensor after another."""

    def __init__(self, info: Any, rank: int) -> None:
        self._group = utils.StatelessProcessGroup.create(
            host=info.master_address, port=info.master_port, rank=rank, world_size=info.world_size
        )

    def broadcast(self, tensor: torch.Tensor, src: int, stream: None) -> None:
        tensor.copy_(self._group.broadcast(tensor, src))


class StoreTransfer:
    """vLLM adds this to its worker, and has imported the module by then."""


def _join(info: Any, parallel_config: Any) -> StoreGroup:
    return StoreGroup(info, info.rank_offset + parallel_config.rank)


nccl.worker_init_process_group = _join
nccl.open_trainer_endpoint = lambda info: StoreGroup(info, 0)
torch.cuda.current_stream = lambda *_: None  # type: ignore[assignment]
torch.accelerator.synchronize = lambda *_: None
