"""Sealed kernels for any client that uses jupyter_client: consoles, notebooks, nbclient, papermill.

KernelManager -> ReplProvisioner -> Origin -> one kernel with a console's sockets
Origin: the resident server, if it has such kernels, or a fork server that is started for it

The kernelspecs `repl-rl` and `repl-rl-lines` choose it. Lines and cells have no deadline: a person
interrupts them. Knows jupyter_client's protocol of provisioners. Does not know who asks.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import traitlets
from jupyter_client.provisioning import KernelProvisionerBase

from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.front_ends import address
from repl_sandbox.jupyter.resident_client import BIRTH_TIMEOUT_S, ResidentClient
from repl_sandbox.types import Isolation

if TYPE_CHECKING:
    from repl_sandbox.host.fork_server_client import ForkServerClient

POLL_S = 0.01
USUAL = Configuration()


class KernelMaker(Protocol):
    """One kernel at a time comes from it."""

    async def kernel(self, *, key: bytes, folder: Path | None = None) -> StartedKernel:
        """A kernel whose messages `key` signs. SandboxError if there is none.

        folder: that of the last one, which has ended: the new one's sockets have the same names.
        """
        ...

    async def aclose(self) -> None:
        """End what came from it. Safe to call twice."""
        ...


async def find_origin(configuration: Configuration) -> KernelMaker:
    """The resident server if there is one with such kernels, else one that is started."""
    client = await asyncio.to_thread(ResidentClient.find, configuration)
    return FromOwnServer(configuration) if client is None else FromResident(client)


class FromOwnServer:
    """A fork server for this kernel alone, which ends with it."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.link: ForkServerClient | None = None

    async def kernel(self, *, key: bytes, folder: Path | None = None) -> StartedKernel:
        if self.link is None:
            self.link = await self._configuration.start_server()
        return await self.link.console(key=key, folder=folder, timeout_s=BIRTH_TIMEOUT_S)

    async def aclose(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            await link.aclose()


class FromResident:
    """A resident server's, asked in a thread."""

    def __init__(self, client: ResidentClient) -> None:
        self._client = client

    async def kernel(self, *, key: bytes, folder: Path | None = None) -> StartedKernel:
        """Implement `KernelMaker`; the server ends the last kernel and takes its folder itself."""
        return await asyncio.to_thread(self._client.kernel, key)

    async def aclose(self) -> None:
        self._client.close()


class ReplProvisioner(KernelProvisionerBase):  # type: ignore[misc]  # jupyter_client is untyped here
    """Owner of one kernel. Its traits are the kernelspec's `config`: see `Configuration`."""

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

    _origin: KernelMaker | None = None
    _started: StartedKernel | None = None

    @property
    def has_process(self) -> bool:
        return self._started is not None

    @property
    def is_resident(self) -> bool:
        """Return whether the kernel comes from a fork server that stays."""
        return isinstance(self._origin, FromResident)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Order the kernel here, because the connection file must name its sockets."""
        manager = self.parent
        assert manager is not None, "a provisioner belongs to a KernelManager"
        if self._origin is None:
            self._origin = await find_origin(self._configuration())
        # A restart binds the same files again: clients stay connected to their names.
        folder = None if self._started is None else self._started.folder
        self._forget()
        try:
            self._started = await self._origin.kernel(key=manager.session.key, folder=folder)
        except BaseException:
            # Nobody calls `cleanup` after a start that failed.
            await self.cleanup()
            raise
        for name, value in address(self._started.folder).items():
            setattr(manager, name, value)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return dict(await super().pre_launch(cmd=[], **kwargs))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """The kernel runs already. Return how to reach it."""
        return self.connection_info

    async def poll(self) -> int | None:
        """None while it lives, then 0: its exit code cannot be known."""
        if self._started is None:
            return 0
        watch = select.poll()
        watch.register(self._started.pidfd, select.POLLIN)
        return 0 if watch.poll(0) else None

    async def wait(self) -> int | None:
        # Not an Event: the loop that could watch the pidfd may not be this one.
        while await self.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return 0

    async def send_signal(self, signum: int) -> None:
        if self._started is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._started.pidfd, signum)

    async def kill(self, restart: bool = False) -> None:
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        # The first process of a namespace ignores SIGTERM.
        await self.kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        if restart:
            return
        self._forget()
        origin, self._origin = self._origin, None
        if origin is not None:
            await origin.aclose()

    def _forget(self) -> None:
        started, self._started = self._started, None
        if started is not None:
            os.close(started.pidfd)

    def _configuration(self) -> Configuration:
        names = [field.name for field in fields(Configuration)]
        return Configuration.from_json({name: getattr(self, name) for name in names})
