"""Sealed kernels for any client that uses jupyter_client: consoles, notebooks, nbclient, papermill.

KernelManager -> ReplProvisioner -> the resident server or a fork server of its own -> one kernel

The kernelspecs `repl-rl` and `repl-rl-lines` choose it. It orders the kernel from this process: the
command (`repl_sandbox.jupyter.launch`) is a Python to start, and copies every message. Lines and
cells have no deadline: a person interrupts them. Knows jupyter_client's protocol of provisioners.
Does not know who asks.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import traitlets
from jupyter_client.provisioning import KernelProvisionerBase

from repl_sandbox.host.started_kernel import StartedKernel
from repl_sandbox.jupyter.configuration import KERNEL_TIMEOUT_S, Configuration, resident_kernel
from repl_sandbox.jupyter.front_ends import address
from repl_sandbox.types import Isolation, SandboxError

if TYPE_CHECKING:
    from repl_sandbox.host.fork_server_client import ForkServerClient

USUAL = Configuration()
POLL_S = 0.01
END_TIMEOUT_S = 5.0


class ReplProvisioner(KernelProvisionerBase):  # type: ignore[misc]  # jupyter_client is untyped here
    """Owner of one kernel. Its traits are the fields of `Configuration`."""

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

    _started: StartedKernel | None = None
    _resident: ExitStack | None = None
    """The connection to the resident server that holds the kernel."""
    _link: ForkServerClient | None = None
    """The fork server of its own, where there is no resident one with such kernels."""
    _folder: Path | None = None
    """Folder by which clients know the kernel's sockets: the first one's, also after a restart."""

    @property
    def has_process(self) -> bool:
        return self._started is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Make the kernel here, because the connection file must name its sockets."""
        manager = self.parent
        assert manager is not None, "a provisioner belongs to a KernelManager"
        try:
            await self._end()
            self._started = await self._start(manager.session.key)
            if self._folder is None:
                self._folder = self._started.folder
            else:
                _link_names(self._folder, to=self._started.folder)
        except BaseException:
            # Nobody calls `cleanup` after a start that failed.
            await self.cleanup()
            raise
        for name, value in address(self._folder).items():
            setattr(manager, name, value)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return dict(await super().pre_launch(cmd=[], **kwargs))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Return how to reach the kernel, which runs already."""
        return self.connection_info

    async def poll(self) -> int | None:
        """Return None while it lives, then 0: its exit code cannot be known."""
        return 0 if self._started is None or self._started.has_ended() else None

    async def wait(self) -> int | None:
        # Not an Event: the loop that could watch the pidfd may not be this one.
        while await self.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return 0

    async def send_signal(self, signum: int) -> None:
        if self._started is not None:
            self._started.send_signal(signal.Signals(signum))

    async def kill(self, restart: bool = False) -> None:
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        # The first process of a namespace ignores SIGTERM.
        await self.kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        if restart:
            return
        await self._end()
        self._folder = None
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    async def _start(self, key: bytes) -> StartedKernel:
        """Kernel whose messages `key` signs. SandboxError if there is none."""
        settings = {field.name: getattr(self, field.name) for field in fields(Configuration)}
        configuration = msgspec.convert(settings, Configuration)
        if self._link is None:  # its folder holds the names that clients know
            with ExitStack() as stack:
                asked = resident_kernel(configuration, key)
                if started := await asyncio.to_thread(stack.enter_context, asked):
                    self._resident = stack.pop_all()
                    return started
            self._link = await configuration.start_server()
        return await self._link.console(key=key, timeout_s=KERNEL_TIMEOUT_S)

    async def _end(self) -> None:
        """End the kernel, and wait until its folder is gone: the next one takes its names.

        Without a thread: clients clean up when the interpreter has begun to end, too.
        """
        started, resident = self._started, self._resident
        if started is None:
            return
        try:
            await self.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_TIMEOUT_S):
                    await self.wait()
        finally:
            self._started = self._resident = None
            if self._folder is not None and self._folder.is_symlink():
                self._folder.unlink()
            if resident is None:
                started.discard()
            else:
                resident.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                while started.folder.exists():  # noqa: ASYNC110  # the server removes it
                    await asyncio.sleep(POLL_S)


def _link_names(folder: Path, *, to: Path) -> None:
    """Let the names in `folder` lead to the files in the folder `to`."""
    try:
        folder.symlink_to(to)
    except OSError as error:
        raise SandboxError(
            f"a restarted kernel cannot take the place of the last one: {error.strerror}; start a "
            f"new one"
        ) from error
