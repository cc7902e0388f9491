"""Runs untrusted Python, one stateful interpreter per process. Knows no models, tokens, rewards."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from repl_sandbox.host.pool import KernelPool
    from repl_sandbox.render import clean
    from repl_sandbox.statements import Compiler
    from repl_sandbox.types import ExecStatus, Execution, Isolation, Kernel, Limits, SandboxError

__all__ = [
    "Compiler",
    "ExecStatus",
    "Execution",
    "Isolation",
    "Kernel",
    "KernelPool",
    "Limits",
    "SandboxError",
    "clean",
]
_ELSEWHERE = {"Compiler": "statements", "KernelPool": "host.pool", "clean": "render"}


def __getattr__(name: str) -> object:
    """The names above, imported when they are asked for: a fork server needs none of a pool's."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'types')}"), name)
