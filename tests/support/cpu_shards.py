"""Let accelerate shard on a CPU: it reads the settings of FSDP2 where there are GPUs alone."""

from __future__ import annotations

import os
from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from repl_rl.update import ranks

AS_AN_ACCELERATE_CONFIG = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}
"""The environment that `accelerate launch` makes of a config for FSDP2."""


def shard_on_cpu() -> None:
    """Have this process shard as it would on GPUs, from here on."""
    os.environ |= AS_AN_ACCELERATE_CONFIG
    ranks._SHARDED_ON.add("cpu")
    make: Any = AcceleratorState.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        if (plugin := options.get("fsdp_plugin")) is not None:
            self.distributed_type = DistributedType.FSDP
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = plugin

    AcceleratorState.__init__ = init
