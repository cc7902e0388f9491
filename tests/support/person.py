"""Somebody at a stock Jupyter client: what tests of kernels that a person attaches to share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient
from jupyter_core.utils import ensure_event_loop

TIMEOUT_S = 60
"""What no answer takes, however busy the machine is."""


class Person:
    """Their client blocks: call it in a thread of its own."""

    def __init__(self, connection_file: Path) -> None:
        self.client = BlockingKernelClient(connection_file=str(connection_file))
        self.client.load_connection_file()

    def __enter__(self) -> Person:
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT_S)
        return self

    def __exit__(self, *_error: object) -> None:
        self.client.stop_channels()
        # A blocking client makes one for its thread, and nobody closes it.
        ensure_event_loop().close()

    def type(self, code: str) -> tuple[dict[str, Any], str]:  # Any: a reply is JSON
        """(reply content, what came as streams)."""
        said: list[str] = []
        reply = self.client.execute_interactive(
            code,
            timeout=TIMEOUT_S,
            allow_stdin=False,
            output_hook=lambda message: said.append(message["content"].get("text", "")),
        )
        return reply["content"], "".join(said)

    def see(self, code: str) -> str:
        """What came as streams."""
        return self.type(code)[1]

    def begin(self, code: str) -> str:
        """Type it, and see that the kernel has taken it up, not that it has ended. Its id."""
        asked: str = self.client.execute(code)
        while self.client.get_iopub_msg(timeout=TIMEOUT_S)["msg_type"] != "execute_input":
            pass
        return asked
