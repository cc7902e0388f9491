"""The fork server: imports everything once, then forks kernels in milliseconds.

trainer --(exec, hand-built environment)--> zygote --(fork)--> kernel

It is single-threaded and runs no policy code: the child becomes the kernel, the zygote never does.
It dies with the trainer, and every kernel dies with it, and whatever a kernel started. Packets on
the control socket are JSON; the answer to a fork carries a pidfd. Knows processes. Does not know
deadlines, pools or why anyone wants a kernel.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import logging
import os
import resource
import select
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from sandbox.children import Children, become_subreaper
from sandbox.kernel import ReplKernel
from sandbox.repl import Repl, seed_generators

MAX_PACKET_BYTES = 1 << 17
PR_SET_PDEATHSIG = 1
MAX_OPEN_FILES = 64
MAX_FILE_BYTES = 1 << 20


def main(control_fd: int) -> None:
    """Serve until the control socket closes. What goes wrong before is told on that socket."""
    control = socket.socket(fileno=control_fd)
    config = json.loads(control.recv(MAX_PACKET_BYTES))
    _die_with_parent(signal.SIGTERM, parent=config["trainer_pid"])
    try:
        kernel = _warm_up(config["preload"], config["warmup"])
        assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive the fork"
        children = Children()
    # Whatever a preloaded module raises belongs into the trainer's error message.
    except Exception:  # noqa: BLE001
        control.send(json.dumps({"error": traceback.format_exc()}).encode()[:MAX_PACKET_BYTES])
        return
    control.send(json.dumps({"ready": True}).encode())
    _Zygote(control, kernel, children, config).serve()


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
    """The loop of the fork server."""

    def __init__(
        self,
        control: socket.socket,
        kernel: ReplKernel,
        children: Children,
        config: dict[str, object],
    ) -> None:
        self._control = control
        self._kernel = kernel
        self._config = config
        self._children = children

    def serve(self) -> None:
        """Fork and reap until the control socket closes or SIGTERM comes."""
        signals = _hear_signals()
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(signals, select.POLLIN)
        try:
            while True:
                ready = {fd for fd, _event in poller.poll()}
                if signals in ready:
                    if signal.SIGTERM in os.read(signals, select.PIPE_BUF):
                        return
                    self._children.reap()
                if self._control.fileno() in ready:
                    packet = self._control.recv(MAX_PACKET_BYTES)
                    if not packet:
                        return
                    self._fork(json.loads(packet))
        except ConnectionError:
            pass
        finally:
            self._children.end()
            shutil.rmtree(str(self._config["runtime"]), ignore_errors=True)

    def _fork(self, request: dict[str, str]) -> None:
        name = request["name"]
        zygote_pid = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _become_kernel(self._control, self._kernel, self._config, request, zygote_pid)
            self._children.add(pid)
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self._control.send(json.dumps({"name": name, "error": str(error)}).encode())
            return
        socket.send_fds(self._control, [json.dumps({"name": name}).encode()], [pidfd])
        os.close(pidfd)


def _hear_signals() -> int:
    """The end of a pipe on which signals arrive as bytes, their numbers.

    A handler would run between any two steps of a fork or a burial, and inside itself.
    """
    heard, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        # Python writes the byte only for a signal that it handles.
        signal.signal(number, lambda *_: None)
    return heard


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
    # While it lives, the end of another kernel must not take what it started.
    become_subreaper()
    # Its descriptor is closed below, and the number will be another's.
    signal.set_wakeup_fd(-1)
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
