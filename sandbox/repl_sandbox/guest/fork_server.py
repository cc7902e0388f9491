"""The fork server: it imports everything once, then forks kernels in milliseconds.

trainer --(exec, hand-built environment)--> fork server --(fork, walls)--> kernel

It is single-threaded and runs no policy code: the child becomes the kernel, the server never does.
It dies with the trainer. Every kernel, and all that a kernel started, dies with it. Packets on the
control socket are JSON. The answer to a fork carries a pidfd. Knows processes. Does not know
deadlines, pools or why anyone wants a kernel, nor what the walls are made of.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import linecache
import os
import pkgutil
import resource
import select
import shutil
import signal
import site
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from repl_sandbox.guest.direct import answers, listen
from repl_sandbox.guest.integrity import Integrity
from repl_sandbox.guest.repl import Answer, Repl, Spill, refuse_hook, seed_generators
from repl_sandbox.types import MAX_PACKET_BYTES
from repl_sandbox.walls.confine import PR_SET_PDEATHSIG, Confinement

MAX_VALUE_CHARS = 8000
"""Most characters of one value in a packet. JSON writes a character as twelve bytes at most."""
M_ARENA_MAX = -8
PR_SET_CHILD_SUBREAPER = 36
END_TIMEOUT_S = 3.0
"""Less than the trainer waits before it kills the fork server."""
LOOK_AGAIN_S = 0.1
RLIMIT_SIGPENDING = 11
ANSWERING = ("guest.direct", "guest.repl", "statements")
"""Modules of ours that run between a line and its answer."""
MAX_OPEN_FILES = 64
MAX_FILE_BYTES = 1 << 20
"""Bytes that an unsealed kernel may write into one file. A sealed one can open none for writing."""


def main(control: socket.socket, base_fd: int, config: dict[str, Any]) -> None:
    """Serve until the control socket closes. Errors before that are reported on that socket.

    base_fd: the folder that holds the runtime folder. From inside the namespaces there is no other
             way to it.
    """
    # A politer signal has no effect before `serve`.
    _die_with_parent(signal.SIGKILL, parent=config["parent_pid"])
    # An arena for each thread of a console would be 64 MiB of address space at a moment of its
    # choosing, before or after a kernel's memory is limited.
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    # Python 3.13 keeps the text of `-c` there, as the source of all code from "<string>".
    linecache.clearcache()
    # Of a folder with another name in every run.
    site.USER_BASE = site.USER_SITE = None
    # Set by bubblewrap, and different in every run.
    os.environ.pop("PWD", None)
    try:
        endpoints, integrity = _warm_up(config)
        assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive the fork"
        assert not _shared_memory(), f"kernels would share what is written to {_shared_memory()}"
        children = Children()
    # Whatever a preloaded module raises belongs in the trainer's error message.
    except Exception:  # noqa: BLE001
        _report(control, error=traceback.format_exc())
        return
    plan = config["confinement"]
    try:
        confinement = None if plan is None else Confinement(**plan)
    except OSError as error:
        _report(control, missing=str(error))
        return
    _report(control, ready=True)
    _ForkServer(control, base_fd, endpoints, integrity, children, confinement, config).serve()


def _report(control: socket.socket, **message: object) -> None:
    cut = {key: value[:MAX_VALUE_CHARS] if isinstance(value, str) else value
           for key, value in message.items()}  # fmt: skip
    control.send(json.dumps(cut).encode())


def _shared_memory() -> list[str]:
    """Writable mappings that this process would share with every fork."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if line.split()[1].startswith("rw") and "s" in line.split()[1]]


class Endpoint:
    """Kernel's end of the connections to whoever gives it lines. Made once, for all children.

    A child calls the methods in this order. Only `listen` may make files. To this one only the
    owner of the kernel connects; a front end brings one for clients.
    """

    has_zmq = False
    """True where threads of zmq run beside the one that answers."""
    repl: Repl

    def listen(self, folder: Path) -> None:
        """Make its sockets, if any, in the kernel's folder; the owner has one of its own."""

    def open(self, repl: Repl, *, key: bytes, is_sealed: bool, spilt: Callable[[], str]) -> None:
        """Start its threads, if any: the last step before limits and seccomp."""
        self.repl = repl
        vars(sys)["addaudithook"] = refuse_hook

    def set_up(self, source: str) -> Answer:
        """Run a source of ours, as `Repl.set_up` does."""
        return self.repl.set_up(source)

    def serve(self, answers: Iterator[socket.socket]) -> None:
        """Answer until the kernel's end: the owner by steps of `answers`."""
        for _ in answers:
            pass


def _warm_up(config: dict[str, Any]) -> tuple[dict[bool, Endpoint], Integrity]:
    """Make what all children share: endpoints by whether a client may connect, and checks.

    A server that was started for no client has no endpoint for one.
    """
    # Nothing that is imported is garbage, and it would be searched again and again.
    gc.disable()
    for name in config["preload"]:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    # Before the warm-up, because its caches must not depend on a random start.
    seed_generators(0)
    names = {"__name__": "warmup"}
    for source in config["warmup"]:
        exec(source, names)
    endpoints = {False: Endpoint()}
    if config["endpoint"] is not None:
        # No later packet names code: what an order says cannot decide what is imported.
        endpoints[True] = pkgutil.resolve_name(config["endpoint"])(Path(config["runtime"]))
    integrity = Integrity.of([sys.modules[f"repl_sandbox.{name}"] for name in ANSWERING])
    # Code in a kernel finds plain Python: it cannot import this package by name.
    for name in [name for name in sys.modules if name.partition(".")[0] == "repl_sandbox"]:
        del sys.modules[name]
    if metadata := sys.modules.get("importlib.metadata"):
        # It keeps what it has listed before there were walls.
        metadata.MetadataPathFinder().invalidate_caches()
    gc.collect()
    gc.freeze()
    return endpoints, integrity


@dataclass
class _ForkServer:
    """The loop of the fork server."""

    control: socket.socket
    _base_fd: int
    _endpoints: dict[bool, Endpoint]
    integrity: Integrity
    _children: Children
    confinement: Confinement | None
    config: dict[str, Any]
    _names: dict[int, str] = field(default_factory=dict)
    """Process number -> name of the order, of the living kernels."""

    def serve(self) -> None:
        """Fork and reap until the control socket closes or SIGTERM comes."""
        signals = _signal_pipe()
        _die_with_parent(signal.SIGTERM, parent=self.config["parent_pid"])
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(signals, select.POLLIN)
        try:
            while True:
                timeout_ms = LOOK_AGAIN_S * 1000 if self._children.has_orphans else None
                ready = {fd for fd, _event in poller.poll(timeout_ms)}
                if signals in ready and signal.SIGTERM in os.read(signals, select.PIPE_BUF):
                    return
                if signals in ready or self._children.has_orphans:
                    for pid in self._children.reap():
                        # The trainer ignores this for a kernel that was ready.
                        _report(
                            self.control, name=self._names.pop(pid), error="it died at its start"
                        )
                if self.control.fileno() in ready:
                    packet = self.control.recv(MAX_PACKET_BYTES)
                    if not packet:
                        return
                    self._fork(json.loads(packet))
        except ConnectionError:
            pass
        finally:
            self._children.end()
            runtime = Path(str(self.config["runtime"]))
            shutil.rmtree(runtime.name, ignore_errors=True, dir_fd=self._base_fd)

    def _fork(self, request: dict[str, Any]) -> None:
        name = request["name"]
        # Before the fork: a child that raises would clean up as if it were the server.
        child = _Child(self, request, self._endpoints[request["is_console"]])
        try:
            pid = os.fork() if self.confinement is None else self.confinement.fork()
            if pid == 0:
                child.become()
        except OSError as error:
            is_short = error.errno in (errno.EAGAIN, errno.ENOMEM)
            _report(self.control, name=name, error=str(error), is_short=is_short)
            return
        self._children.add(pid)
        self._names[pid] = name
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            _report(self.control, name=name, error=str(error))
            return
        socket.send_fds(self.control, [json.dumps({"name": name}).encode()], [pidfd])
        os.close(pidfd)


def _signal_pipe() -> int:
    """The end of a pipe on which signals arrive as bytes: their numbers.

    A handler could run between any two steps of a fork or a `reap`, and inside itself.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        # Python writes the byte only for a signal that it handles.
        signal.signal(number, lambda *_: None)
    return reader


@dataclass
class _Child:
    """A kernel between the fork and its first line."""

    _server: _ForkServer
    _request: dict[str, Any]
    _endpoint: Endpoint

    def __post_init__(self) -> None:
        self._folder = Path(self._request["folder"])
        self._control = self._server.control
        self._confinement = confinement = self._server.confinement
        # In a namespace of its own, a kernel sees no number for the server.
        is_alone = confinement is not None and confinement.has_namespaces
        self._parent_pid = 0 if is_alone else os.getpid()

    def become(self) -> NoReturn:
        """Become the kernel until its end. The control socket closes before untrusted code runs."""
        try:
            error = self._start()
            _report(self._control, name=self._request["name"], has_started=True, error=error)
            self._control.close()
            if error is None:
                self._endpoint.serve(self._answers)
        finally:
            # This skips the clean-up of the server's objects and `atexit` handlers of user code.
            os._exit(0)

    def _start(self) -> str | None:
        """Do all that comes before its first line. Returns the reason if it cannot be used."""
        limits = self._server.config["limits"]
        repl_limits = {key: limits[key] for key in ("max_output_chars", "max_value_chars")}
        try:
            spill = self._leave_server()
            repl = Repl(**repl_limits, spilt=spill.take)
            with open("/proc/self/statm", "rb") as statm:
                listener = listen(self._folder)
                self._endpoint.listen(self._folder)
                if self._confinement is not None:
                    self._confinement.enter()
                self._endpoint.open(
                    repl,
                    key=self._request["key"].encode(),
                    is_sealed=self._confinement is not None,
                    spilt=spill.take,
                )
                error = _set_up(self._endpoint.set_up, self._server.config["setup"])
                start_pages = int(statm.read().split()[0])
            self._answers = answers(repl, listener, self._server.integrity.with_objects(repl))
            self._limit(start_pages, memory_mib=limits["memory_mib"], cpu_s=limits["kernel_cpu_s"])
            if self._confinement is not None:
                self._confinement.seal(has_zmq=self._endpoint.has_zmq)
            return error
        # Nothing else would report it: the streams lead nowhere.
        except Exception:  # noqa: BLE001
            return traceback.format_exc()

    def _leave_server(self) -> Spill:
        """Leave the fork server behind: its session, signals, streams, folder."""
        os.setsid()
        # While it lives, what it started must not be killed because another kernel ends.
        become_subreaper()
        # Its descriptor is closed below, and another file will get the number.
        signal.set_wakeup_fd(-1)
        _die_with_parent(signal.SIGKILL, parent=self._parent_pid)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # If memory runs out, Linux must end a kernel and not the trainer.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        spill = Spill()
        rules = [] if self._confinement is None else [self._confinement.ruleset]
        _close_other_fds(spill.fd, self._control.fileno(), *rules)
        os.umask(0o077)
        home = self._home()
        os.chdir(home)
        os.environ["HOME"] = str(home)
        sys.argv = [""]
        del sys.orig_argv[1:]
        sys.path[:0] = [""]
        return spill

    def _home(self) -> Path:
        """The kernel's current folder: the same for all that can neither read nor write it."""
        if self._confinement is not None:
            return Path("/")
        home = self._folder / "home"
        home.mkdir(mode=0o700)
        return home

    def _limit(self, start_pages: int, *, memory_mib: int, cpu_s: int) -> None:
        ceilings = {
            resource.RLIMIT_AS: start_pages * resource.getpagesize() + (memory_mib << 20),
            resource.RLIMIT_CPU: cpu_s,
            resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
            resource.RLIMIT_FSIZE: MAX_FILE_BYTES if self._confinement is None else 0,
            resource.RLIMIT_CORE: 0,
            # Counted per user: without it one kernel could use up the queue of all.
            RLIMIT_SIGPENDING: 64,
        }
        for which, ceiling in ceilings.items():
            resource.setrlimit(which, (ceiling, ceiling))


def _close_other_fds(*open_fds: int) -> None:
    start = 3
    for fd in sorted(open_fds):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, 1 << 16)


def _set_up(run: Callable[[str], Answer], sources: Sequence[str]) -> str | None:
    """Run the sources that every kernel begins with. Returns the text of the first failure."""
    for source in sources:
        answer = run(source + "\n")
        if answer.status != "ok":
            return f"setup line {source!r}: {answer.error_type or answer.status}\n{answer.head}"
    return None


def _die_with_parent(number: int, *, parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))
    # The parent may have died before the call.
    if os.getppid() != parent:
        os._exit(1)


class Children:
    """Owner of every child of this process: the kernels it forked, and the orphans they leave it.

    Make it before the first fork, in the only thread.

    fork -> add -> [SIGCHLD -> reap the dead, kill the group of a dead kernel, kill the orphans]*

    A child subreaper inherits the orphans of its descendants, also those that forked twice or have
    a session of their own. Each kernel is a subreaper as well, so only orphans of dead kernels come
    here. Each kill leads to a death, and each death calls `reap` again: the killing goes down a
    tree of any depth, and nothing waits for it. A kill may miss, so `reap` is called again while
    there are orphans.
    """

    def __init__(self) -> None:
        become_subreaper()
        assert not _living_or_dead(), "a child from elsewhere would be killed as an orphan"
        self._kernels: set[int] = set()
        self.has_orphans = False
        """True where the last `reap` found orphans. It killed them, and should be called again."""

    def add(self, pid: int) -> None:
        """Note a kernel. Call this before the next `reap`, which kills every other child."""
        self._kernels.add(pid)

    def reap(self) -> list[int]:
        """Wait for the dead and kill all orphans.

        Call it after each SIGCHLD, and LOOK_AGAIN_S after it has found orphans: a thread that execs
        hides its process from a kill for a moment, and then no death follows.

        Returns the numbers of the kernels among the dead.
        """
        dead = []
        while (pid := _next_dead()) is not None:
            if pid in self._kernels:
                # After `waitpid` its number may name another group.
                _kill_group(pid)
                dead.append(pid)
            os.waitpid(pid, 0)
            self._kernels.discard(pid)
        orphans = _living_or_dead() - self._kernels
        for pid in orphans:
            _kill_orphan(pid)
        self.has_orphans = bool(orphans)
        return dead

    def end(self) -> None:
        """Kill every child and all that it started. Return when none is left or the time is up."""
        deadline = time.monotonic() + END_TIMEOUT_S
        # A blocked signal stays pending for `sigtimedwait`: no death is missed.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
        # From here on every kernel counts as an orphan.
        self._kernels.clear()
        self.reap()
        while _living_or_dead() and (left_s := deadline - time.monotonic()) > 0:
            signal.sigtimedwait((signal.SIGCHLD,), min(left_s, LOOK_AGAIN_S))
            self.reap()


def become_subreaper() -> None:
    """Become the parent of every orphan below. A fork does not inherit it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _next_dead() -> int | None:
    """A dead child. This call does not reap it."""
    try:
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if dead is None else dead.si_pid


def _living_or_dead() -> set[int]:
    """Every child that was not reaped. Only this thread reaps, so the list is complete."""
    return set(map(int, Path("/proc/thread-self/children").read_text().split()))


def _kill_orphan(pid: int) -> None:
    # A program of root may be out of reach. `reap` says why a process may be hidden.
    with suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        # A kernel that has just been forked is still in our group.
        if group != os.getpgrp():
            # A group dies as a whole. A process that forks endlessly could outrun single kills.
            _kill_group(group)
        # The process may have left that group since.
        os.kill(pid, signal.SIGKILL)


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
