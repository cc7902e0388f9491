"""Kernels as a config asks for them.

    SandboxConfig, setup sources -> KernelPool

Knows settings. Does not know what runs in a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from repl_rl.config import SandboxConfig
from repl_sandbox.pool import KernelPool
from repl_sandbox.types import Limits


def kernel_pool(config: SandboxConfig, *, setup: Sequence[str] = ()) -> KernelPool:
    """Kernels as configured, each of which has run the sources of `setup`."""
    limits = Limits(
        line_cpu_s=config.line_cpu_s,
        line_wall_s=config.line_wall_s,
        grace_s=config.grace_s,
        kernel_cpu_s=config.kernel_cpu_s,
        memory_mib=config.memory_mib,
        max_output_chars=config.max_output_chars,
    )
    return KernelPool(
        limits,
        preload=config.preload,
        warmup=config.warmup,
        setup=setup,
        standby=config.standby,
        isolation=config.isolation,
    )
