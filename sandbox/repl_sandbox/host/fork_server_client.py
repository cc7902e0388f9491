"""The trainer's end of the fork server: starts it, orders kernels, receives started ones.

start() -> the best walls that come up; order() -> a fork -> [socket, pidfd] -> StartedKernel

Orders are queued to the fork server at once. It fills them while nobody reads, also while the
trainer's event loop stands still. Knows packets and pidfds. Does not know what runs in a kernel.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from repl_sandbox.host.started_kernel import (
    FrontEnd,
    OrderedKernel,
    Provision,
    StartedKernel,
    remove_folder,
)
from repl_sandbox.types import MAX_PACKET_BYTES, Isolation, Limits, SandboxError, SettingError
from repl_sandbox.walls import bubblewrap
from repl_sandbox.walls.confine import UidSlot
from repl_sandbox.walls.isolation import ESCAPE, WHAT_GIVES_THEM, Level, Walls, find_options
from repl_sandbox.walls.view import as_mounts, package_folders

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0
MAX_PATH_CHARS = 107
MEMORY_BASE = "/dev/shm"
LONGEST_SOCKET_PATH = "/repl-12345678/k1234567/s-1"
# Not `-I`: it would ignore PYTHONHASHSEED; the environment is made by hand and holds nothing else.
FLAGS = ("-s", "-P")
# Not `-m`: `sys.path` would have to hold this package, which only the trainer may read.
BOOT = (
    "import sys; control, base, package = sys.argv[1:]; sys.path.insert(0, package);"
    "from repl_sandbox.guest.boot import boot; del sys.path[0]; boot(int(control), int(base))"
)


class ForkServerClient:
    """Owner of the fork server and of the folder in which its kernels live."""

    def __init__(self, limits: Limits, *, setup: Sequence[str]) -> None:
        self._limits = limits
        self._setup = tuple(setup)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._uid_slot = UidSlot()
        self._provision = Provision()
        self.runtime = Path()
        """The folder of its kernels, once started."""
        self.walls: Walls | None = None
        """Walls in force, once started."""
        self._num_orders = 0
        self._backlog: deque[bytes] = deque()
        self._ordered: dict[str, OrderedKernel] = {}
        self._started: asyncio.Queue[StartedKernel | SandboxError] = asyncio.Queue()
        self._consoles: asyncio.Queue[StartedKernel | SandboxError] = asyncio.Queue()

    async def start(
        self,
        *,
        preload: Sequence[str],
        packages: Sequence[str] = (),
        warmup: Sequence[str],
        isolation: Isolation,
        front_end: FrontEnd | None = None,
    ) -> Walls:
        """Start the fork server behind the best walls there are; return them, once it is warm.

        packages:  modules that kernels may import, beside those that are preloaded.
        front_end: for kernels that clients reach. Without one no console can be ordered.

        The server dies with the thread that calls this. Raises SandboxError if it fails.
        """
        needs = () if front_end is None else front_end.distributions
        candidates, shortfall, readable = find_options(isolation, [*preload, *packages], needs)
        self.runtime = make_runtime_folder()
        if front_end is not None:
            environment = make_environment(self.runtime)
            self._provision = await asyncio.to_thread(front_end.provide, self.runtime, environment)
            readable = [*readable, *self._provision.readable]
        config: dict[str, object] = {
            "runtime": str(self.runtime),
            "preload": list(preload),
            "warmup": list(warmup),
            "endpoint": None if front_end is None else front_end.endpoint,
            "setup": list(self._setup),
            "limits": asdict(self._limits),
        }
        for level in candidates:
            missing = await self._try(level, config, readable)
            if missing is None:
                asyncio.get_running_loop().add_reader(self._socket(), self._receive)
                self.walls = Walls(level=level, shortfall=shortfall)
                return self.walls
            shortfall = f"namespaces are not available ({missing}); {WHAT_GIVES_THEM}"
        raise SettingError(f"kernels cannot be sealed: {shortfall}; {ESCAPE}")

    async def _try(
        self, level: Level, config: dict[str, object], readable: Sequence[Path]
    ) -> str | None:
        """Start a fork server of this level; what the level lacks here, in a few words, or None.

        Raises SandboxError if the start fails for any other reason.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs, tempfile.TemporaryFile() as stderr:
            self._process = self._spawn(theirs.fileno(), level, readable, stderr)
            theirs.close()
            reply = await self._configure(config | self._plan(level, readable))
            if reply.get("ready"):
                return None
            await self._stop()
            stderr.seek(0)
            errors = stderr.read().decode(errors="replace").strip()
        if "missing" in reply or (level is Level.STRICT and not reply):
            return str(reply.get("missing") or errors.rpartition("\n")[2] or "bwrap said nothing")
        raise SandboxError(f"the fork server did not start: {reply.get('error', errors)}")

    def _spawn(
        self, control_fd: int, level: Level, readable: Sequence[Path], stderr: BinaryIO
    ) -> subprocess.Popen[bytes]:
        """Exec the fork server with an environment made by hand, without the trainer's."""
        package = Path(__file__).resolve().parents[1]
        base_fd = os.open(self.runtime.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        fds = (control_fd, base_fd)
        program = [sys.executable, *FLAGS, "-c", BOOT, *map(str, (*fds, package.parent))]
        if level is Level.STRICT:
            bwrap = bubblewrap.find()
            assert bwrap is not None, "the level `strict` was not to be tried"
            visible, covered = as_mounts([*readable, package])
            program = bubblewrap.wrap(
                program, bwrap=bwrap, visible=visible, covered=covered, writable=self.runtime
            )
        try:
            return subprocess.Popen(
                program,
                env=make_environment(self.runtime) | dict(self._provision.environment),
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=self.runtime,
                start_new_session=True,
            )
        finally:
            os.close(base_fd)

    async def _configure(self, config: dict[str, object]) -> dict[str, object]:
        """Send the fork server its configuration; its reply, empty if it ended without one."""
        loop = asyncio.get_running_loop()
        control = self._socket()
        try:
            await loop.sock_sendall(control, json.dumps(config).encode())
            async with asyncio.timeout(START_TIMEOUT_S):
                answer = await loop.sock_recv(control, MAX_PACKET_BYTES)
        except TimeoutError:
            return {"error": f"no reply from it within {START_TIMEOUT_S} s"}
        except OSError:
            return {}
        return dict(json.loads(answer)) if answer else {}

    def _plan(self, level: Level, readable: Sequence[Path]) -> dict[str, object]:
        """Return the part of the fork server's configuration that differs between levels."""
        if level is Level.NONE:
            folders = list(map(str, package_folders()))
            return {"parent_pid": os.getpid(), "confinement": None, "folders": folders}
        slot = self._uid_slot.take() if os.geteuid() == 0 else 0
        confinement = {
            "readable": [str(path) for path in [*readable, *self._provision.own]],
            "uid_slot": slot,
            "has_namespaces": level is Level.STRICT,
        }
        # In a namespace of its own the server sees no number for its parent.
        return {
            "parent_pid": 0 if level is Level.STRICT else os.getpid(),
            "confinement": confinement,
            # A `.pth` file that adds a folder to `sys.path` may be invisible behind the walls.
            "folders": [entry for entry in sys.path if os.path.isabs(entry)],
        }

    def order(self, *, key: bytes | None = None, is_console: bool = False) -> None:
        """Ask for a kernel, which `next_kernel` returns later. SandboxError where none can be made.

        key:        what signs its messages; made here if not given.
        is_console: whether it has the sockets that only a person's client asks for.
        """
        name = f"k{self._num_orders}"
        self._num_orders += 1
        folder = self.runtime / name
        try:
            folder.mkdir(mode=0o700)
        except FileNotFoundError:
            # When the server ends, it removes the folder of all kernels.
            raise SandboxError("the fork server is gone") from None
        except OSError as error:
            raise SandboxError(f"no folder for a kernel: {error.strerror}") from error
        key = secrets.token_hex(16).encode() if key is None else key
        self._ordered[name] = OrderedKernel(folder, key, is_console)
        request = {"name": name, "folder": str(folder), "is_console": is_console}
        self._backlog.append(json.dumps(request | {"key": key.decode()}).encode())
        self._flush()

    async def next_kernel(self, *, timeout_s: float, is_console: bool = False) -> StartedKernel:
        """The next kernel of this kind that was ordered.

        Raises SandboxError if there will be none: NoMemoryError if there may be one later.
        """
        if self.is_gone():
            raise SandboxError("the fork server is gone")
        try:
            # Not `wait_for`: if it is cancelled just as a kernel comes, it may return that kernel
            # and swallow the cancellation.
            async with asyncio.timeout(timeout_s):
                arrival = await self._queue(is_console).get()
        except TimeoutError:
            raise SandboxError(f"no kernel came within {timeout_s} s") from None
        if isinstance(arrival, SandboxError):
            raise arrival
        return arrival

    async def console(self, *, timeout_s: float, key: bytes | None = None) -> StartedKernel:
        """Order one that a client can reach, and wait for the next of these."""
        self.order(key=key, is_console=True)
        return await self.next_kernel(timeout_s=timeout_s, is_console=True)

    def drop_lost(self) -> None:
        """Forget what came of orders and is of no use: failures, kernels that have ended since.

        Where memory runs out Linux ends kernels first, and those that wait are many.
        """
        for _ in range(self._started.qsize()):
            arrival = self._started.get_nowait()
            if isinstance(arrival, SandboxError):
                continue
            if arrival.has_ended():
                arrival.discard()
            else:
                self._started.put_nowait(arrival)

    @property
    def num_stocked(self) -> int:
        """Kernels that were ordered and not yet taken, without consoles."""
        num_due = sum(not ordered.is_console for ordered in self._ordered.values())
        return num_due + self._started.qsize()

    def is_gone(self) -> bool:
        """Return whether the fork server has ended: kernels that end with it are not to blame."""
        if self._process is None or self._control is None or self._process.poll() is not None:
            return True
        try:
            # Its sockets close a moment before its exit can be waited for.
            return self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def aclose(self) -> None:
        """End the fork server and every kernel; remove their folder. Safe to call twice."""
        try:
            await self._stop()
        finally:
            self._close_unclaimed()
            self._uid_slot.close()
            if self.runtime != Path():
                remove_folder(self.runtime)

    async def _stop(self) -> None:
        if self._control is not None:
            self._drop_control(self._control)
        if self._process is not None:
            await _wait_or_kill(self._process)

    def _socket(self) -> socket.socket:
        assert self._control is not None, "start first"
        return self._control

    def _drop_control(self, control: socket.socket) -> None:
        if control.fileno() >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(control)
            loop.remove_writer(control)
            control.close()

    def _close_unclaimed(self) -> None:
        for ordered in self._ordered.values():
            if ordered.pidfd is not None:
                os.close(ordered.pidfd)
        self._ordered.clear()
        for queue in (self._started, self._consoles):
            while not queue.empty():
                arrival = queue.get_nowait()
                if isinstance(arrival, StartedKernel):
                    os.close(arrival.pidfd)

    def _queue(self, is_console: bool) -> asyncio.Queue[StartedKernel | SandboxError]:
        return self._consoles if is_console else self._started

    def _deliver(self, ordered: OrderedKernel) -> None:
        self._queue(ordered.is_console).put_nowait(ordered.outcome())

    def _flush(self) -> None:
        control = self._socket()
        loop = asyncio.get_running_loop()
        try:
            while self._backlog:
                control.send(self._backlog[0])
                self._backlog.popleft()
        except BlockingIOError:
            loop.add_writer(control, self._flush)
            return
        except OSError:
            # Gone: `_receive` sees the end of the stream and fails whoever waits.
            self._backlog.clear()
        loop.remove_writer(control)

    def _receive(self) -> None:
        """Read every packet there is; at the end of the stream, fail whoever still waits."""
        control = self._socket()
        try:
            while True:
                packet, fds, flags, _address = socket.recv_fds(
                    control, MAX_PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
                if not packet:
                    break
                is_cut = bool(flags & socket.MSG_CTRUNC)
                self._sort(json.loads(packet), fds, is_cut=is_cut)
        except BlockingIOError:
            return
        except OSError:
            pass
        asyncio.get_running_loop().remove_reader(control)
        for ordered in self._ordered.values():
            ordered.error = "the fork server is gone"
            self._deliver(ordered)
        self._ordered.clear()

    def _sort(self, message: dict[str, str], fds: list[int], *, is_cut: bool) -> None:
        """Hand a message to the start that it belongs to. Each start has two, in either order.

        The server's brings a pidfd, the child's says whether it is ready.
        """
        name = message["name"]
        ordered = self._ordered.get(name)
        if ordered is None:
            # Its failure was reported before: this message is of no use.
            for fd in fds:
                os.close(fd)
            return
        if ordered.receive(message, fds, is_cut=is_cut):
            del self._ordered[name]
            self._deliver(ordered)


def make_runtime_folder() -> Path:
    """A private folder whose sockets have addresses short enough for the operating system.

    Raises SandboxError where none can be made.
    """
    # In memory if possible: on a disk each removal may wait.
    bases = (MEMORY_BASE, tempfile.gettempdir(), "/tmp")
    fitting = (base for base in bases if len(base) + len(LONGEST_SOCKET_PATH) <= MAX_PATH_CHARS)
    base = next((base for base in fitting if os.access(base, os.W_OK | os.X_OK)), "/tmp")
    try:
        return Path(tempfile.mkdtemp(prefix="repl-", dir=base))
    except OSError as error:
        raise SandboxError(f"no folder for kernels in {base}: {error.strerror}") from error


def make_environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # A line does the same where gmpy2 or flint is installed: their loops in C take no signal,
        # and flint ends the process where memory runs out.
        "SYMPY_GROUND_TYPES": "python",
    }


async def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + END_TIMEOUT_S
    # An exit sets no Event.
    try:
        while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    finally:
        process.kill()
        process.wait()
