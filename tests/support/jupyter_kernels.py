"""Kernels as a stock client of Jupyter's sees them."""

from __future__ import annotations

import contextlib
import json
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

TIMEOUT_S = 30.0
Content = dict[str, Any]  # Any: JSON


def reply_to(asked: str, client: BlockingKernelClient) -> Content:
    """The content of the reply to this message; a client that waited has asked more often."""
    while True:
        try:
            message = client.get_shell_msg(timeout=TIMEOUT_S)
        except queue.Empty:
            raise AssertionError("no reply") from None
        if message["parent_header"]["msg_id"] == asked:
            return dict(message["content"])


@dataclass(frozen=True, slots=True)
class Shown:
    """What came of a cell."""

    reply: Content
    outputs: list[tuple[str, Content]]
    """(type of message, its content), in order, without status and echo."""

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.outputs]

    def text(self, stream: str = "stdout") -> str:
        """All that was printed on one of the streams."""
        return "".join(
            content["text"]
            for kind, content in self.outputs
            if kind == "stream" and content["name"] == stream
        )

    def data(self) -> dict[str, str]:
        """The one rich output, by MIME type."""
        (found,) = (content["data"] for _, content in self.outputs if "data" in content)
        return dict(found)


@dataclass(frozen=True, slots=True)
class Session:
    """A kernel and a client of it."""

    manager: KernelManager
    client: BlockingKernelClient

    def cell(self, code: str, **options: Any) -> Shown:
        """Run one cell to its end."""
        outputs: list[tuple[str, Content]] = []

        def keep(message: Content) -> None:
            if message["msg_type"] not in ("status", "execute_input"):
                outputs.append((message["msg_type"], message["content"]))

        reply = self.client.execute_interactive(
            code, timeout=TIMEOUT_S, allow_stdin=False, output_hook=keep, **options
        )
        return Shown(reply["content"], outputs)

    def reply(self, asked: str) -> Content:
        return reply_to(asked, self.client)

    def until(self, kind: str) -> Content:
        """The content of the next message of this kind on iopub."""
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=TIMEOUT_S)
            except queue.Empty:
                raise AssertionError(f"no {kind}") from None
            if message["msg_type"] == kind:
                return dict(message["content"])


@contextlib.contextmanager
def session(name: str, **options: Any) -> Iterator[Session]:
    """A kernel of a kernelspec, and its end."""
    manager = KernelManager(kernel_name=name)
    manager.start_kernel(**options)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=TIMEOUT_S)
        yield Session(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def use_plain_specs(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Add this package's kernelspecs for a client without provisioners: `repl-rl-plain` and
    `repl-rl-lines-plain` start by their command.
    """
    for name in ("repl-rl", "repl-rl-lines"):
        spec = KernelSpecManager().get_kernel_spec(name).to_dict()
        del spec["metadata"]["kernel_provisioner"]
        place = folder / "data" / "kernels" / f"{name}-plain"
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec))
    patch.setenv("JUPYTER_PATH", str(folder / "data"))
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_RUNTIME_DIR"):
        patch.setenv(name, str(folder / name))
