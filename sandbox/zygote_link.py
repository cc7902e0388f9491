"""The trainer's end of the fork server: starts it, orders kernels, receives the newborn.

order() -> [socket] -> zygote forks -> [socket, pidfd] -> Newborn

Orders are queued to the fork server at once and filled while nobody reads, also while the
trainer's event loop stands still. Knows packets and pidfds. Does not know what runs in a kernel.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox.folder import make_runtime_folder, remove_folder
from sandbox.types import Limits, SandboxError

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0
MAX_PACKET_BYTES = 1 << 17
# Not `-I`: it would ignore PYTHONHASHSEED; the environment is made by hand and holds nothing else.
FLAGS = ("-s", "-P")
# Not `-m`: it would need the package on a path that only the trainer may have.
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.zygote import main;"
    "del sys.path[0]; main(int(sys.argv[2]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newborn:
    """A kernel that answers on its sockets and has run nothing but our setup."""

    folder: Path
    key: bytes
    pidfd: int
    """Owned by whoever holds this."""


@dataclass(slots=True)
class _Birth:
    """A kernel between its order and its first breath."""

    folder: Path
    key: bytes
    pidfd: int | None = None
    is_born: bool = False
    error: str | None = None

    def outcome(self) -> Newborn | SandboxError:
        if self.error is None and self.pidfd is not None:
            return Newborn(folder=self.folder, key=self.key, pidfd=self.pidfd)
        if self.pidfd is not None:
            os.close(self.pidfd)
        return SandboxError(f"a kernel could not start: {self.error}")


class ZygoteLink:
    """Owner of the fork server and of the folder in which its kernels live."""

    def __init__(self, limits: Limits, *, setup: Sequence[str]) -> None:
        self._limits = limits
        self._setup = tuple(setup)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._runtime = Path()
        self._num_orders = 0
        self._backlog: deque[bytes] = deque()
        self._births: dict[str, _Birth] = {}
        self._newborns: asyncio.Queue[Newborn | SandboxError] = asyncio.Queue()

    async def start(self, *, preload: Sequence[str], warmup: Sequence[str]) -> None:
        """Start the fork server and wait until it is warm. Raises SandboxError if it fails.

        The server dies with the thread that calls this.
        """
        self._runtime = make_runtime_folder()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            self._process = _spawn(theirs.fileno(), home=self._runtime)
        config = {
            "trainer_pid": os.getpid(),
            "runtime": str(self._runtime),
            "preload": list(preload),
            "warmup": list(warmup),
            "setup": list(self._setup),
            "limits": asdict(self._limits),
        }
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._control, json.dumps(config).encode())
        try:
            answer = await asyncio.wait_for(
                loop.sock_recv(self._control, MAX_PACKET_BYTES), START_TIMEOUT_S
            )
        except (TimeoutError, OSError) as error:
            raise SandboxError(f"the fork server did not start: {error!r}") from error
        if not answer or "error" in (told := json.loads(answer)):
            raise SandboxError(f"the fork server did not start: {told['error'] if answer else ''}")
        loop.add_reader(self._control, self._receive)

    def order(self) -> None:
        """Ask for one kernel; it comes out of `newborn` some time later."""
        name = f"k{self._num_orders}"
        self._num_orders += 1
        folder = self._runtime / name
        (folder / "home").mkdir(parents=True, mode=0o700)
        folder.chmod(0o700)
        key = secrets.token_hex(16)
        self._births[name] = _Birth(folder, key.encode())
        self._backlog.append(json.dumps({"name": name, "folder": str(folder), "key": key}).encode())
        self._flush()

    async def newborn(self, *, timeout_s: float) -> Newborn:
        """The next kernel that was ordered. Raises SandboxError if there will be none."""
        if self.is_gone():
            raise SandboxError("the fork server is gone")
        try:
            born = await asyncio.wait_for(self._newborns.get(), timeout_s)
        except TimeoutError:
            raise SandboxError(f"no kernel came within {timeout_s} s") from None
        if isinstance(born, SandboxError):
            raise born
        return born

    @property
    def num_stocked(self) -> int:
        """Kernels ordered and not yet taken."""
        return len(self._births) + self._newborns.qsize()

    def is_gone(self) -> bool:
        """True once the fork server has ended: kernels that end with it are not to blame."""
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
            if self._control is not None:
                self._drop_control(self._control)
            if self._process is not None:
                await _wait_or_kill(self._process)
        finally:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._close_unclaimed()
            if self._runtime != Path():
                remove_folder(self._runtime)

    def _drop_control(self, control: socket.socket) -> None:
        if control.fileno() >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(control)
            loop.remove_writer(control)
            control.close()

    def _close_unclaimed(self) -> None:
        for birth in self._births.values():
            if birth.pidfd is not None:
                os.close(birth.pidfd)
        self._births.clear()
        while not self._newborns.empty():
            born = self._newborns.get_nowait()
            if isinstance(born, Newborn):
                os.close(born.pidfd)

    def _flush(self) -> None:
        assert self._control is not None
        loop = asyncio.get_running_loop()
        try:
            while self._backlog:
                self._control.send(self._backlog[0])
                self._backlog.popleft()
        except BlockingIOError:
            loop.add_writer(self._control, self._flush)
            return
        except OSError:
            # Gone: `_receive` sees the end of the stream and tells those who wait.
            self._backlog.clear()
        loop.remove_writer(self._control)

    def _receive(self) -> None:
        """Read every packet there is; at the end of the stream, fail whoever still waits."""
        assert self._control is not None
        try:
            while True:
                packet, fds, _flags, _address = socket.recv_fds(self._control, MAX_PACKET_BYTES, 1)
                if not packet:
                    break
                self._sort(json.loads(packet), fds)
        except BlockingIOError:
            return
        except OSError:
            pass
        asyncio.get_running_loop().remove_reader(self._control)
        for birth in self._births.values():
            birth.error = "the fork server is gone"
            self._newborns.put_nowait(birth.outcome())
        self._births.clear()

    def _sort(self, told: dict[str, str], fds: list[int]) -> None:
        """A birth is told twice, in either order: the zygote sends a pidfd, the child a word."""
        name = told["name"]
        birth = self._births.get(name)
        if birth is None:
            # Its failure was told before; what comes later of it is of no use.
            for fd in fds:
                os.close(fd)
            return
        if fds:
            birth.pidfd = fds[0]
        birth.is_born |= bool(told.get("is_born"))
        birth.error = birth.error or told.get("error")
        is_unborn = birth.error is not None and not birth.is_born
        if is_unborn or (birth.is_born and birth.pidfd is not None):
            del self._births[name]
            self._newborns.put_nowait(birth.outcome())


def _spawn(control_fd: int, *, home: Path) -> subprocess.Popen[bytes]:
    """Exec the zygote with an environment made by hand: nothing of the trainer's is in it."""
    root = Path(__file__).resolve().parent.parent
    return subprocess.Popen(
        [sys.executable, *FLAGS, "-c", BOOT, str(root), str(control_fd)],
        env=make_environment(home),
        pass_fds=(control_fd,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=home,
        start_new_session=True,
    )


def make_environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


async def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + END_TIMEOUT_S
    # An exit sets no Event.
    while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
