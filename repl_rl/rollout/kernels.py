"""Kernels as a config asks for them.

    SandboxConfig, setup sources -> KernelPool

Knows settings. Does not know what runs in a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from repl_rl.config.sections import SandboxConfig
from repl_rl.records import Problem
from repl_sandbox.host.front_end import FrontEnd
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Kernel, KernelSource, Limits, SandboxError


class SetupError(SandboxError):
    """A source of a problem's setup fails in a kernel."""


def kernel_pool(
    config: SandboxConfig, *, setup: Sequence[str] = (), front_end: FrontEnd | None = None
) -> KernelPool:
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
        front_end=front_end,
    )


async def kernel_for(problem: Problem, kernels: KernelSource, *, seed: int) -> Kernel:
    """A fresh kernel that has run the problem's own sources.

    Raises SandboxError where there is no kernel, and SetupError where a source fails in it.
    """
    kernel = await kernels.acquire(seed=seed)
    try:
        for source in problem.setup:
            execution = await kernel.run(source)
            if execution.status is not ExecStatus.OK:
                fault = execution.output.strip().rpartition("\n")[2]
                raise SetupError(f"setup of problem {problem.id} fails at {source!r}: {fault}")
    except BaseException:
        await kernel.aclose()
        raise
    return kernel
