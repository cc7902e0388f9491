"""Uses of the fixtures that lend a kernel to a test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.types import Execution

T = TypeVar("T")
Use = Callable[[SupervisedKernel], Awaitable[T]]
ConsoleUse = Callable[[KernelPool, SupervisedKernel, Path], Awaitable[T]]
"""Of a pool, of a kernel with a console's sockets, and of its connection file."""


class WithKernel(Protocol):
    """Result of `use` on a fresh kernel, which is closed then."""

    def __call__(self, use: Use[T]) -> T: ...


class RunAll(Protocol):
    """Result of each source, run one after the other in one fresh kernel."""

    def __call__(self, *sources: str) -> list[Execution]: ...
