"""Boundary of a kernel: one source goes in, one `Execution` comes back.

Types of what crosses it, and the names, numbers and sizes that both ends of a socket agree on.
Standard library only: so the trainer's end needs no ipykernel, and the fork server no asyncio.
Knows nothing of models, tokens, tasks or rewards, nor what messages mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

PERSON_CPU_S = 24 * 3600
"""`Limits.kernel_cpu_s` for a kernel that a person uses."""

MAX_PACKET_BYTES = 1 << 17
"""Most bytes of one message between trainer and fork server."""

DIRECT, SHELL, IOPUB, STDIN, HEARTBEAT, CONTROL = range(6)
"""A kernel's channels: one for its owner, and those of Jupyter, which only a console has."""

PORTS = {
    "shell_port": SHELL,
    "iopub_port": IOPUB,
    "stdin_port": STDIN,
    "hb_port": HEARTBEAT,
    "control_port": CONTROL,
}
"""Jupyter's names for the channels."""

SIZE_BYTES = 4
"""On the owner's channel a message is its size, most significant byte first, and a JSON array.
The owner sends `[number, mode, source]`, the kernel `[number, *Answer]`."""


class SandboxError(RuntimeError):
    """Our side of the sandbox failed (fork server gone, no memory for a kernel).

    Never the fault of the code in a kernel: that becomes an `Execution`.
    """


class Isolation(StrEnum):
    """Isolation that the user asks for."""

    AUTO = "auto"
    """The strongest walls that this machine allows; none at all is an error."""
    STRICT = "strict"
    """Namespaces, Landlock and seccomp, or an error."""
    NONE = "none"
    """No walls: for code that the user trusts."""


class SettingError(SandboxError):
    """Request for something that cannot be had here; the message says what to ask for instead."""


class ExecStatus(StrEnum):
    """Status in which the execution of one source ended."""

    OK = "ok"
    """It ran to its end."""
    INCOMPLETE = "incomplete"
    """Nothing ran: the interpreter would show `...` and wait for more lines."""
    ERROR = "error"
    """It raised, or did not compile. `Execution.error_type` names the exception."""
    TIMEOUT = "timeout"
    """It was interrupted at its deadline. The kernel kept its state. Observed from outside."""
    KILLED = "killed"
    """It ignored the interrupt (or broke the protocol) and was killed. Observed from outside."""
    DIED = "died"
    """The kernel process ended by itself. Observed from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Effects of one source, as far as the trainer can know.

    `status` TIMEOUT, KILLED and DIED and the two clocks are observed from outside. Everything else
    is what the kernel *reports*. Code in a kernel owns the kernel, so a report is data, never
    authority.
    """

    status: ExecStatus
    output: str = ""
    """Text that CPython's REPL would have shown, rendered: ends in a newline unless empty."""
    error_type: str | None = None
    """Class name of the exception (`NameError`, `SyntaxError`, `OutputLimit`), None without one."""
    value: str | None = None
    """`repr` of the value, for `Kernel.evaluate` alone; cleaned as `output` is."""
    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    is_truncated: bool = False
    """True where `output` had to be cut to `Limits.max_output_chars`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one kernel. A line over its limit is a result, not an exception."""

    line_cpu_s: float = 2.0
    """CPU seconds of a line before it is interrupted."""
    line_wall_s: float = 10.0
    """Wall seconds of a line before it is interrupted."""
    grace_s: float = 0.5
    """Wall seconds between the interrupt and the kill."""
    kernel_cpu_s: int = 60
    """CPU seconds of a whole kernel. The operating system ends a kernel that exceeds them."""
    memory_mib: int = 512
    """Address space that a kernel may add to what it started with. Beyond it: `MemoryError`."""
    max_output_chars: int = 6144
    """Output kept of one line: two thirds from its head, one third from its tail."""
    max_value_chars: int = 4096
    """Longest `repr` that `Kernel.evaluate` hands over."""


class Kernel(Protocol):
    """One stateful interpreter in its own process."""

    async def run(self, source: str) -> Execution:
        """Run physical lines as if typed at `>>>`; INCOMPLETE if the last one needs more.

        The kernel keeps nothing of an INCOMPLETE source: the caller sends it again with the next.
        """

    async def evaluate(self, expression: str) -> Execution:
        """Evaluate one expression and hand over the `repr` of its value in `Execution.value`."""

    async def aclose(self) -> None:
        """End the process. Safe to call twice, and after the kernel died."""


class KernelSource(Protocol):
    """Source of kernels: a pool of real ones, or fakes in a test."""

    async def acquire(self, *, seed: int) -> Kernel:
        """A fresh kernel whose `random` starts from `seed`. SandboxError if there is none."""


def socket_path(folder: Path, channel: int) -> Path:
    """Return a channel's socket. A Jupyter client finds it by transport `ipc`, ip `folder/s`."""
    return folder / f"s-{channel}"
