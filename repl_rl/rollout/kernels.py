"""Kernels as a config asks for them.

    SandboxConfig, setup sources -> KernelPool

Knows settings. Does not know what runs in a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import sandbox
from repl_rl import __version__
from repl_rl.config import SandboxConfig
from repl_rl.errors import ConfigError
from sandbox.pool import KernelPool
from sandbox.types import Limits


def kernel_pool(config: SandboxConfig, *, setup: Sequence[str] = ()) -> KernelPool:
    """Kernels as configured, each of which has run the sources of `setup`."""
    if sandbox.__repl_rl__ != __version__:
        raise ConfigError(
            f"the package `sandbox` in this environment is not repl-rl's ({sandbox.__file__}); "
            f"install repl-rl in an environment of its own"
        )
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
