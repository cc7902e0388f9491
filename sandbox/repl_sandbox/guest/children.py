"""The children of the fork server: the kernels it forked, and the orphans that kernels leave it.

fork -> add -> [SIGCHLD -> reap the dead, kill the group of a dead kernel, kill the orphans]*

A child subreaper inherits the orphans of its descendants, also those that forked twice or have a
session of their own. Each kernel is a subreaper as well, so only orphans of dead kernels come here.
Each kill leads to a death, and each death calls `reap` again: the killing goes down a tree of any
depth, and nothing waits for it. A kill may miss, so `reap` is called again while there are orphans.
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
        """Whether the last `reap` found any. It killed them, and should be called again."""

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
