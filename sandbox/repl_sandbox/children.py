"""The children of the fork server: the kernels it forked, and the orphans that kernels leave it.

fork -> add -> [SIGCHLD -> reap the dead, kill the group of a dead kernel, kill the orphans]*

A child subreaper inherits what its descendants leave behind, double forks and own sessions
included. Each kernel is one too, so that the orphans that come here are those of the dead. Each
kill is a death to come, and each death calls `reap` again: so the killing goes down a tree of any
depth, and nobody waits for it. A kill may miss, so whoever has orphans looks again after a while.
Knows process ids. Does not know requests or what a kernel does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
END_TIMEOUT_S = 3.0
"""Less than the trainer waits before it kills the fork server."""
LOOK_AGAIN_S = 0.1


class Children:
    """Owner of every child of this process; make it before the first fork, in the only thread."""

    def __init__(self) -> None:
        become_subreaper()
        assert not _living_or_dead(), "a child from elsewhere would be killed as an orphan"
        self._kernels: set[int] = set()
        self.has_orphans = False
        """At the last look. They were killed, and are to be looked for again: see `reap`."""

    def add(self, pid: int) -> None:
        """Note a kernel. Call it before the next `reap`, which would kill a stranger."""
        self._kernels.add(pid)

    def reap(self) -> list[int]:
        """Bury the dead and kill the orphans that there are.

        Call it after each SIGCHLD, and LOOK_AGAIN_S after it has seen orphans: a thread that execs
        hides its process from a kill for a moment, and no death would follow.

        Returns the numbers of the kernels among the dead.
        """
        dead = []
        while (pid := _next_dead()) is not None:
            if pid in self._kernels:
                # Once reaped, its number may name the group of somebody else.
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
        """Kill every child and what it started; return when none is left or the time is up."""
        deadline = time.monotonic() + END_TIMEOUT_S
        # Blocked, it stays pending for `sigtimedwait`: no death is missed.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
        # No kernel has a claim any more: all are orphans.
        self._kernels.clear()
        self.reap()
        while _living_or_dead() and (left_s := deadline - time.monotonic()) > 0:
            signal.sigtimedwait((signal.SIGCHLD,), min(left_s, LOOK_AGAIN_S))
            self.reap()


def become_subreaper() -> None:
    """Become the parent of every orphan below. A fork does not inherit it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _next_dead() -> int | None:
    """A child that can be reaped, and is not reaped by this call."""
    try:
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if dead is None else dead.si_pid


def _living_or_dead() -> set[int]:
    """Every child that is not reaped. Only this thread takes from the list, so it is complete."""
    return set(map(int, Path("/proc/thread-self/children").read_text().split()))


def _kill_orphan(pid: int) -> None:
    # Root's programs may be out of reach; of one that is hidden, see `reap`.
    with suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        # A kernel that has just been forked is still in our group.
        if group != os.getpgrp():
            # A group dies as a whole, while one that forks without end may get ahead of us.
            _kill_group(group)
        # It may have left that group meanwhile.
        os.kill(pid, signal.SIGKILL)


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
