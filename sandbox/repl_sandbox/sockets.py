"""Names, numbers and sizes that both ends of a socket agree on.

Imports no other module of this package: so the trainer's end needs no ipykernel, and the fork
server no asyncio. Knows names. Does not know what messages mean.
"""

from __future__ import annotations

from pathlib import Path

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


def socket_path(folder: Path, channel: int) -> Path:
    """Return a channel's socket. A Jupyter client finds it by transport `ipc`, ip `folder/s`."""
    return folder / f"s-{channel}"
