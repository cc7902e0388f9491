"""The walls around one kernel: what a child of the fork server gives up before it runs a line.

fork into a PID namespace -> uid, capabilities, Landlock -> [threads start] -> limits, seccomp

The order matters. Credentials, `no_new_privs` and Landlock belong to a thread and pass on to those
that it starts, so they come while there is only one thread. Resource limits and seccomp cover every
thread and take away what the start needs, so they come last. Knows the operating system. Does not
know what a kernel is for.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from repl_sandbox.types import SandboxError
from repl_sandbox.walls import landlock, seccomp

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522
NUM_CAPABILITIES = 64
CAPABILITIES_TO_CHANGE = 1 << 6 | 1 << 7
"""CAP_SETGID and CAP_SETUID."""
CLONE_NEWPID = 0x20000000

MAX_UIDS = 1 << 16
"""User ids of all pools together."""
NUM_SLOTS = 64
"""Pools that may be open on this machine."""
LAST_UID = 1 << 31
"""Some programs take a user id above this for a negative number."""

_LIBC = ctypes.CDLL(None, use_errno=True)


class Confinement:
    """Confinement of all children, made once in the fork server, before its first fork.

    readable: files, and folders with all below them, that a kernel may read.
    has_namespaces: whether each child becomes process 1 of a PID namespace of its own; it takes
                    CAP_SYS_ADMIN.
    uid_slot: the number, from 0, of their share of the user ids for kernels.

    Raises OSError where the kernel of this machine refuses.
    """

    def __init__(self, readable: Sequence[str], *, has_namespaces: bool, uid_slot: int) -> None:
        paths = list(map(Path, readable))
        self.ruleset = landlock.make_ruleset(paths)
        """The one descriptor that a child needs for `enter`, which closes it."""
        self.has_namespaces = has_namespaces
        self._namespace = (
            os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if has_namespaces else None
        )
        if self._namespace is not None:
            _check(_LIBC.unshare(CLONE_NEWPID), "unshare")
            self._return_to_own_namespace()
        # Each kernel is process 1 of its namespace, so these fit all.
        self._filters = (
            [make_filter(own_pid=1, has_zmq=has_zmq) for has_zmq in (False, True)]
            if has_namespaces
            else None
        )
        is_open = os.geteuid() == 0 and _all_may_read(paths)
        self._uids = uids(uid_slot) if is_open else range(0)
        self._num_forks = 0

    def fork(self) -> int:
        """`os.fork`, into a PID namespace of the child's own if there are namespaces."""
        self._num_forks += 1
        if self._namespace is None:
            return os.fork()
        _check(_LIBC.unshare(CLONE_NEWPID), "unshare")
        try:
            pid = os.fork()
        except OSError:
            self._return_to_own_namespace()
            raise
        if pid:
            self._return_to_own_namespace()
        return pid

    def enter(self) -> None:
        """Give up, in the child and in its only thread, user, capabilities and files."""
        _drop_bounding_set()
        if self._uids:
            uid = self._uids[self._num_forks % len(self._uids)]
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        _give_up(self.ruleset)
        # Linux forgets this signal when credentials change.
        parent = os.getppid()
        _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)

    def seal(self, *, has_zmq: bool) -> None:
        """Leave, in the child and all its threads, only the calls that a computation needs."""
        seccomp.install(
            self._filters[has_zmq]
            if self._filters
            else make_filter(own_pid=os.getpid(), has_zmq=has_zmq)
        )

    def _return_to_own_namespace(self) -> None:
        """Let the next child that is not a kernel be born in our own namespace."""
        assert self._namespace is not None
        _check(_LIBC.setns(self._namespace, CLONE_NEWPID), "setns")


def confine_here(readable: Sequence[Path]) -> None:
    """Put walls around this process as it stands, for good: for one that runs code of ours.

    It keeps its user, its open files and the limits that it has. It may read what is below
    `readable`, compute, answer, and signal itself. OSError where Linux refuses.
    """
    ruleset = landlock.make_ruleset(readable)
    _drop_bounding_set()
    _give_up(ruleset)
    seccomp.install(make_filter(own_pid=os.getpid()))


def _give_up(ruleset: int) -> None:
    """Capabilities, and all files but those of the ruleset, which is closed."""
    _drop_capabilities()
    _check(_LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    landlock.restrict(ruleset)
    os.close(ruleset)
    # Its memory must reach neither a core file nor a program of the machine that collects them.
    _check(_LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")


def make_filter(*, own_pid: int, has_zmq: bool = False) -> bytes:
    """The seccomp program of a kernel with this number on this machine."""
    return seccomp.make_filter(platform.machine(), own_pid=own_pid, has_zmq=has_zmq)


def missing() -> str | None:
    """Name what this machine lacks for any wall at all, in a few words; None if nothing."""
    if not seccomp.is_available():
        return "seccomp filters (Linux 4.14 or later, x86_64 or aarch64)"
    if landlock.abi() == 0:
        return "Landlock (Linux 5.13 or later, with `landlock` in /sys/kernel/security/lsm)"
    return None


def _drop_bounding_set() -> None:
    for capability in range(NUM_CAPABILITIES):
        # A process that lacks the capability for this has no others to lose.
        _LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _check(_LIBC.capset(header, nothing), "capset")


def uids(slot: int) -> range:
    """User ids for the kernels of one pool, which are unlikely to belong to anyone here.

    Empty without the capabilities to change users, which root in a container may lack.
    """
    status = Path("/proc/self/status").read_text()
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    if effective & CAPABILITIES_TO_CHANGE != CAPABILITIES_TO_CHANGE:
        return range(0)
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    starts = [(int(line.split()[0]), int(line.split()[2])) for line in lines]
    start, length = max(starts, key=lambda mapped: mapped[1])
    count = min(MAX_UIDS, length // 2) // NUM_SLOTS
    last = min(start + length, LAST_UID) - slot * count
    return range(last - count, last)


def _all_may_read(paths: Sequence[Path]) -> bool:
    """Return whether any user may read all of `paths`: a folder of root may be closed to others."""
    with suppress(OSError):
        return all(
            path.stat().st_mode & 0o004
            and all(parent.stat().st_mode & 0o001 for parent in path.parents)
            for path in map(Path.resolve, paths)
        )
    return False


def _check(result: int, call: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")


class UidSlot:
    """Share of the user ids for kernels, which no two living pools have in common.

    Without namespaces, kernels of two pools could signal each other if they were one user. It is
    one of NUM_SLOTS at most, held from `take` to `close` or to the end of this process.
    """

    def __init__(self) -> None:
        self._lock: socket.socket | None = None
        self._number = 0

    def take(self) -> int:
        """The number of the slot, the same each time. SandboxError if all are taken."""
        if self._lock is None:
            self._lock, self._number = _first_free()
        return self._number

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _first_free() -> tuple[socket.socket, int]:
    lock = socket.socket(socket.AF_UNIX)
    for number in range(NUM_SLOTS):
        try:
            # A name in the abstract namespace leaves no file behind.
            lock.bind(f"\0repl-rl-uids-{number}")
        except OSError:
            continue
        return lock, number
    lock.close()
    raise SandboxError(f"{NUM_SLOTS} pools of kernels run on this machine; end one of them")
