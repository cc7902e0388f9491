"""The fork server: imports everything once, then forks kernels in milliseconds.

trainer --(exec, hand-built environment)--> zygote --(fork)--> kernel

It is single-threaded and runs no policy code: the child becomes the kernel, the zygote never does.
It dies with the trainer, and every kernel dies with it. Packets on the control socket are JSON;
the answer to a fork carries a pidfd. Knows processes. Does not know deadlines, pools or why anyone
wants a kernel.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from sandbox.kernel import ReplKernel
from sandbox.repl import Repl, seed_generators

MAX_PACKET_BYTES = 1 << 17
PR_SET_PDEATHSIG = 1
MAX_OPEN_FILES = 64
MAX_FILE_BYTES = 1 << 20
HELD_DURING_FORK = (signal.SIGCHLD, signal.SIGTERM)


def main(control_fd: int) -> None:
    """Serve until the control socket closes. What goes wrong before is told on that socket."""
    control = socket.socket(fileno=control_fd)
    config = json.loads(control.recv(MAX_PACKET_BYTES))
    _die_with_parent(signal.SIGTERM, parent=config["trainer_pid"])
    try:
        kernel = _warm_up(config["preload"], config["warmup"])
        assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive the fork"
    # Whatever a preloaded module raises belongs into the trainer's error message.
    except Exception:  # noqa: BLE001
        control.send(json.dumps({"error": traceback.format_exc()}).encode()[:MAX_PACKET_BYTES])
        return
    control.send(json.dumps({"ready": True}).encode())
    _Zygote(control, kernel, config).serve()


def _warm_up(preload: list[str], sources: list[str]) -> ReplKernel:
    for name in preload:
        importlib.import_module(name)
    # Before the warm-up: what it caches must not depend on a random start.
    seed_generators(0)
    for source in sources:
        exec(source, {"__name__": "warmup"})
    kernel = ReplKernel(log=logging.getLogger(__name__))
    gc.collect()
    gc.freeze()
    return kernel


class _Zygote:
    """The loop of the fork server, and the set of children it has to bury."""

    def __init__(
        self, control: socket.socket, kernel: ReplKernel, config: dict[str, object]
    ) -> None:
        self._control = control
        self._kernel = kernel
        self._config = config
        self._children: set[int] = set()

    def serve(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        # An exception here could cut the clean-up short; the end of the stream cannot.
        signal.signal(signal.SIGTERM, lambda *_: self._control.shutdown(socket.SHUT_RDWR))
        try:
            while packet := self._control.recv(MAX_PACKET_BYTES):
                self._fork(json.loads(packet))
        except ConnectionError:
            pass
        finally:
            self._end()

    def _fork(self, request: dict[str, str]) -> None:
        name = request["name"]
        zygote_pid = os.getpid()
        # A child that dies before it is noted here must not be buried meanwhile.
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_DURING_FORK)
        try:
            pid = os.fork()
            if pid == 0:
                _become_kernel(self._control, self._kernel, self._config, request, zygote_pid)
            self._children.add(pid)
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self._control.send(json.dumps({"name": name, "error": str(error)}).encode())
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_DURING_FORK)
        socket.send_fds(self._control, [json.dumps({"name": name}).encode()], [pidfd])
        os.close(pidfd)

    def _reap(self) -> None:
        while self._children:
            pid, _status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)

    def _end(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)
        shutil.rmtree(str(self._config["runtime"]), ignore_errors=True)


def _become_kernel(
    control: socket.socket,
    kernel: ReplKernel,
    config: dict[str, object],
    request: dict[str, str],
    zygote_pid: int,
) -> NoReturn:
    """The rest of the child's life. The control socket is closed before anything untrusted runs."""
    try:
        error = _be_born(control, kernel, config, request, zygote_pid)
        told = {"name": request["name"], "is_born": True, "error": error}
        control.send(json.dumps(told).encode()[:MAX_PACKET_BYTES])
        control.close()
        if error is None:
            kernel.serve()
    finally:
        # No clean-up of the zygote's objects, no `atexit` of user code.
        os._exit(0)


def _be_born(
    control: socket.socket,
    kernel: ReplKernel,
    config: dict[str, object],
    request: dict[str, str],
    zygote_pid: int,
) -> str | None:
    """All that a kernel does before it may be used; the reason why not, if there is one."""
    limits, folder = config["limits"], Path(request["folder"])
    assert isinstance(limits, dict)
    repl_limits = {key: limits[key] for key in ("max_output_chars", "max_value_chars")}
    try:
        _settle(control, folder / "home", zygote_pid)
        repl = Repl(**repl_limits)
        # The walls that must stand before the first thread go here.
        kernel.open(repl, folder=folder, key=request["key"].encode())
        error = _set_up(repl, config["setup"])
        _limit(memory_mib=limits["memory_mib"], cpu_s=limits["kernel_cpu_s"])
        # The walls that may stand only after zmq's threads go here.
        return error
    # Nobody else would hear of it: the streams lead nowhere.
    except Exception:  # noqa: BLE001
        return traceback.format_exc()


def _settle(control: socket.socket, home: Path, zygote_pid: int) -> None:
    """Leave the zygote behind: its session, signals, streams, folder."""
    os.setsid()
    _die_with_parent(signal.SIGKILL, parent=zygote_pid)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    kept = control.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 16)
    os.umask(0o077)
    os.chdir(home)
    os.environ["HOME"] = str(home)
    sys.argv = [""]
    sys.path[:0] = [""]


def _set_up(repl: Repl, sources: object) -> str | None:
    """Run the sources that every kernel begins with; the text of the first failure."""
    assert isinstance(sources, list)
    for source in sources:
        said = repl.run(source + "\n")
        if said.status != "ok":
            return f"setup line {source!r}: {said.error_type or said.status}\n{said.head}"
    return None


def _limit(*, memory_mib: int, cpu_s: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    born_bytes = pages * resource.getpagesize()
    ceilings = {
        resource.RLIMIT_AS: born_bytes + (memory_mib << 20),
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for which, ceiling in ceilings.items():
        resource.setrlimit(which, (ceiling, ceiling))


def _die_with_parent(number: int, *, parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))
    # It may have died before the call.
    if os.getppid() != parent:
        os._exit(1)
