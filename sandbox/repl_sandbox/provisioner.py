"""The same kernels for any Jupyter client: consoles, notebooks, nbclient, papermill.

KernelManager -> ReplProvisioner -> fork server of its own -> one kernel with a console's sockets

The kernelspec `repl-rl` chooses it. Lines have no deadline: a person interrupts them. Knows
jupyter_client's protocol of provisioners. Does not know who asks.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from contextlib import suppress
from typing import Any

import traitlets
from jupyter_client.provisioning import KernelProvisionerBase

from repl_sandbox.console import PERSON_CPU_S, address
from repl_sandbox.newborn import Newborn
from repl_sandbox.pool import SYMPY_WARMUP
from repl_sandbox.types import Isolation, Limits
from repl_sandbox.zygote_link import ZygoteLink

BIRTH_TIMEOUT_S = 20.0
POLL_S = 0.01


class ReplProvisioner(KernelProvisionerBase):  # type: ignore[misc]  # jupyter_client is untyped here
    """Owner of one fork server and one kernel. Its traits are the kernelspec's `config`."""

    isolation = traitlets.Enum(list(map(str, Isolation)), default_value=str(Isolation.AUTO)).tag(
        config=True
    )
    preload = traitlets.List(traitlets.Unicode(), default_value=["sympy"]).tag(config=True)
    setup = traitlets.List(traitlets.Unicode()).tag(config=True)
    memory_mib = traitlets.Int(2048).tag(config=True)
    kernel_cpu_s = traitlets.Int(PERSON_CPU_S).tag(config=True)
    max_output_chars = traitlets.Int(1 << 20).tag(config=True)

    _link: ZygoteLink | None = None
    _newborn: Newborn | None = None

    @property
    def has_process(self) -> bool:
        return self._newborn is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Order the kernel here, because the connection file must name its sockets."""
        manager = self.parent
        assert manager is not None, "a provisioner belongs to a KernelManager"
        if self._link is None:
            self._link = await self._start_server()
        # A restart binds the same files again: clients stay connected to their names.
        folder = None if self._newborn is None else self._newborn.folder
        self._forget()
        try:
            self._link.order(key=manager.session.key, folder=folder, is_console=True)
            self._newborn = await self._link.newborn(timeout_s=BIRTH_TIMEOUT_S, is_console=True)
        except BaseException:
            # Nobody calls `cleanup` after a start that failed.
            await self.cleanup()
            raise
        for name, value in address(self._newborn.folder).items():
            setattr(manager, name, value)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return dict(await super().pre_launch(cmd=[], **kwargs))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """The kernel runs already. Return how to reach it."""
        return self.connection_info

    async def poll(self) -> int | None:
        """None while it lives, then 0: its exit code cannot be known."""
        if self._newborn is None:
            return 0
        watch = select.poll()
        watch.register(self._newborn.pidfd, select.POLLIN)
        return 0 if watch.poll(0) else None

    async def wait(self) -> int | None:
        # Not an Event: the loop that could watch the pidfd may not be this one.
        while await self.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return 0

    async def send_signal(self, signum: int) -> None:
        if self._newborn is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._newborn.pidfd, signum)

    async def kill(self, restart: bool = False) -> None:
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        # The first process of a namespace ignores SIGTERM.
        await self.kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        if restart:
            return
        self._forget()
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    def _forget(self) -> None:
        newborn, self._newborn = self._newborn, None
        if newborn is not None:
            os.close(newborn.pidfd)

    async def _start_server(self) -> ZygoteLink:
        limits = Limits(
            memory_mib=self.memory_mib,
            kernel_cpu_s=self.kernel_cpu_s,
            max_output_chars=self.max_output_chars,
        )
        link = ZygoteLink(limits, setup=self.setup)
        warmup = SYMPY_WARMUP if "sympy" in self.preload else ()
        try:
            walls = await link.start(
                preload=self.preload, warmup=warmup, isolation=Isolation(self.isolation)
            )
        except BaseException:
            await link.aclose()
            raise
        self.log.info("kernel: %s", walls)
        return link
