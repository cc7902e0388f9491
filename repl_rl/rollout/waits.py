"""How long trajectories wait, and for whom: a kernel, the grader, or else the engine.

    KernelSource -> TimedKernels -> Waits

Knows clocks. Does not know what lines do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from repl_sandbox.types import Execution, Kernel, KernelSource


@dataclass(slots=True)
class Waits:
    """Of the trajectories of one phase, one after another: several of them wait at once."""

    total_s: float = 0.0
    """Sum of the times of all trajectories, from the kernel's start to the verdict."""
    kernel_s: float = 0.0
    """How much of it was spent on kernels: their starts and their lines."""
    grading_s: float = 0.0
    """How much of it was spent on verdicts, the wait for a free grader included."""
    starts_ms: list[float] = field(default_factory=list)
    """Of each kernel that was asked for."""
    verdicts_ms: list[float] = field(default_factory=list)
    """Of each submission."""

    def shares(self) -> tuple[float, float]:
        """(of kernels, of the grader) in all that trajectories waited for."""
        total = self.total_s or 1.0
        return self.kernel_s / total, self.grading_s / total

    def clear(self) -> None:
        """Begin a phase."""
        self.total_s = self.kernel_s = self.grading_s = 0.0
        self.starts_ms, self.verdicts_ms = [], []

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        """Time of one trajectory."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.total_s += time.monotonic() - began

    @contextlib.contextmanager
    def kernel(self) -> Iterator[None]:
        """Time of a kernel's work for one trajectory."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.kernel_s += time.monotonic() - began

    @contextlib.contextmanager
    def start(self) -> Iterator[None]:
        """Time of a kernel's start."""
        began = time.monotonic()
        with self.kernel():
            yield
        self.starts_ms.append((time.monotonic() - began) * 1e3)

    @contextlib.contextmanager
    def grading(self, *, is_submitted: bool) -> Iterator[None]:
        """Time of a verdict."""
        began = time.monotonic()
        try:
            yield
        finally:
            spent_s = time.monotonic() - began
            self.grading_s += spent_s
            if is_submitted:
                self.verdicts_ms.append(spent_s * 1e3)


@dataclass(frozen=True, slots=True)
class TimedKernels:
    """Kernels of `source`, whose times go to `waits`."""

    source: KernelSource
    waits: Waits

    async def acquire(self, *, seed: int) -> Kernel:
        """See `KernelSource.acquire`."""
        with self.waits.start():
            kernel = await self.source.acquire(seed=seed)
        return _TimedKernel(kernel, self.waits)


@dataclass(frozen=True, slots=True)
class _TimedKernel:
    _kernel: Kernel
    _waits: Waits

    async def run(self, source: str) -> Execution:
        with self._waits.kernel():
            return await self._kernel.run(source)

    async def evaluate(self, expression: str) -> Execution:
        with self._waits.kernel():
            return await self._kernel.evaluate(expression)

    async def aclose(self) -> None:
        await self._kernel.aclose()
