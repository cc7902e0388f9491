"""Former path of `repl_sandbox.KernelPool`, for programs that import it from here."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:  # Any: a pool, which this file must not load by itself
    if name != "KernelPool":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    text = "repl_sandbox.pool.KernelPool is repl_sandbox.KernelPool: import it from repl_sandbox"
    # Python shows no `DeprecationWarning` of a module that is imported.
    warnings.warn(text, FutureWarning, stacklevel=2)
    return import_module("repl_sandbox.host.pool").KernelPool
