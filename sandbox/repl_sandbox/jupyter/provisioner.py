"""Sealed kernels for any client that uses jupyter_client: consoles, notebooks, nbclient, papermill.

KernelManager -> ReplProvisioner -> the command `repl_sandbox.jupyter.launch` -> one kernel

The kernelspecs `repl-rl` and `repl-rl-lines` choose it. It is jupyter_client's own provisioner of
processes, and gives the command what the kernelspec's `config` says. Knows jupyter_client's
protocol of provisioners. Does not know how a kernel is made, nor who asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import traitlets
from jupyter_client.provisioning import LocalProvisioner

from repl_sandbox.host.fork_server_client import make_runtime_folder
from repl_sandbox.host.started_kernel import remove_folder
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.types import Isolation, SandboxError

USUAL = Configuration()


class ReplProvisioner(LocalProvisioner):  # type: ignore[misc]  # jupyter_client is untyped here
    """Owner of the process of one kernel. Its traits are the fields of `Configuration`."""

    lines = traitlets.Bool(USUAL.lines).tag(config=True)
    isolation = traitlets.Enum(list(map(str, Isolation)), default_value=str(USUAL.isolation)).tag(
        config=True
    )
    preload = traitlets.List(traitlets.Unicode()).tag(config=True)
    packages = traitlets.List(traitlets.Unicode(), default_value=list(USUAL.packages)).tag(
        config=True
    )
    setup = traitlets.List(traitlets.Unicode()).tag(config=True)
    memory_mib = traitlets.Int(USUAL.memory_mib).tag(config=True)
    kernel_cpu_s = traitlets.Int(USUAL.kernel_cpu_s).tag(config=True)
    max_output_chars = traitlets.Int(USUAL.max_output_chars).tag(config=True)

    _folder: Path | None = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        manager = self.parent
        assert manager is not None, "a provisioner belongs to a KernelManager"
        if self._folder is None:
            # Files of this user: whoever is on the machine can connect to a port.
            self._folder = make_runtime_folder()
            manager.transport, manager.ip = "ipc", str(self._folder / "s")
        launch: dict[str, Any] = await super().pre_launch(**kwargs)
        settings = {field.name: getattr(self, field.name) for field in fields(Configuration)}
        command = [sys.executable, "-m", "repl_sandbox.jupyter.launch"]
        command += ["-f", manager.connection_file, "--configuration", json.dumps(settings)]
        return launch | {"cmd": command}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Return how to reach the kernel once it is there. SandboxError if there is none."""
        reader, writer = os.pipe()
        with os.fdopen(reader) as report:
            try:
                command = [*cmd, "--report", str(writer)]
                connection = await super().launch_kernel(command, **kwargs, pass_fds=[writer])
            finally:
                os.close(writer)
            try:
                if error := await asyncio.to_thread(report.read):
                    raise SandboxError(error.strip())
            except BaseException:
                # Nobody calls `cleanup` after a start that failed.
                await self.kill()
                await self.wait()
                await self.cleanup()
                raise
        return connection

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if self._folder is not None and not restart:
            remove_folder(self._folder)
            self._folder = None
