"""Kernels between order and first line, a client's way to them, and the end of their folders.

messages of the fork server and of its child -> OrderedKernel -> StartedKernel, or why there is none
StartedKernel -> FrontEnd -> the file by which a person's client finds it

Whoever starts the fork server chooses a front end, before there is a kernel. A command that only
relays waits for this import: it takes no event loop. Knows what fork server and child say, names
and paths. Does not know how a message arrives, nor any client.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from repl_sandbox.types import SandboxError


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedKernel:
    """A kernel that answers on its sockets and has run nothing but our setup."""

    folder: Path
    key: bytes
    pidfd: int
    """Owned by whoever holds this."""
    is_console: bool
    """True where it has the sockets that only a person's client asks for."""

    def has_ended(self, *, within_ms: float = 0) -> bool:
        """Return whether the kernel has died since, for any reason, or dies within this time."""
        poller = select.poll()  # `select` takes no descriptor above 1023
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(within_ms))

    def send_signal(self, number: signal.Signals) -> None:
        """Send signal `number`. If the kernel is dead, do nothing."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def discard(self) -> None:
        """Let go of one that has ended."""
        os.close(self.pidfd)
        remove_folder(self.folder)


class NoMemoryError(SandboxError):
    """The fork server was refused a fork, for lack of memory or of process numbers."""


@dataclass(slots=True)
class OrderedKernel:
    """A kernel that was ordered and does not answer yet."""

    folder: Path
    key: bytes
    is_console: bool
    pidfd: int | None = None
    has_started: bool = False
    error: str | None = None
    is_short: bool = False
    """True where the error is a lack of memory, which may pass."""
    is_lost: bool = False
    """True where this process had no room for its pidfd: it ends with the fork server."""

    def outcome(self) -> StartedKernel | SandboxError:
        if self.error is None and self.pidfd is not None:
            return StartedKernel(
                folder=self.folder, key=self.key, pidfd=self.pidfd, is_console=self.is_console
            )
        if self.pidfd is not None:
            os.close(self.pidfd)
        error = self.error or "too many open files in this process; raise `ulimit -n`"
        text = f"a kernel could not start: {error}"
        if not self.is_short:
            return SandboxError(text)
        remove_folder(self.folder)  # another one is ordered, and there may be many
        return NoMemoryError(text)

    def receive(self, message: dict[str, str], fds: Sequence[int], *, is_cut: bool = False) -> bool:
        """Take in one of the messages of this start; whether it was the last one.

        `is_cut` says that a descriptor was sent with it and dropped on the way.
        """
        if fds:
            self.pidfd = fds[0]
        self.is_lost |= is_cut
        self.has_started |= bool(message.get("has_started"))
        self.error = self.error or message.get("error")
        self.is_short |= bool(message.get("is_short"))
        has_failed = self.error is not None and not self.has_started
        has_come = self.pidfd is not None or self.is_lost
        return has_failed or (self.has_started and has_come)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """Files and variables for a fork server beside those that every fork server has."""

    readable: Sequence[Path] = ()
    """Folders of the machine that kernels may read."""
    own: Sequence[Path] = ()
    """Folders made in the runtime folder that kernels may read."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """Way in for clients, as the trusted side knows it."""

    endpoint: str
    """`module:attribute` that the fork server calls once, with its runtime folder.

    It returns a `guest.fork_server.Endpoint`. The module lies in this package or in one of
    `distributions`.
    """
    distributions: Sequence[str]
    """Installed packages that it imports there."""
    write_connection: Callable[[StartedKernel], Path]
    """Write the file by which a client finds this kernel. OSError where it cannot be."""
    provide: Callable[[Path, Mapping[str, str]], Provision] = lambda *_: Provision()
    """Make what its kernels need in the runtime folder, given the fork server's environment."""


def remove_folder(folder: Path) -> None:
    """Remove a folder that a kernel may have filled with anything. What cannot be removed stays."""
    with suppress(OSError):
        while _thin_out(folder):
            pass
        folder.rmdir()


def _thin_out(folder: Path) -> bool:
    """Remove the files of the two top levels and move up what lies below. False if it was empty.

    Not shutil.rmtree: it recurses, and a kernel can put thousands of folders into each other.
    """
    entries = list(os.scandir(folder))
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry)
            continue
        os.chmod(entry, 0o700)
        for inner in os.scandir(entry):
            if inner.is_dir(follow_symlinks=False):
                os.chmod(inner, 0o700)
                os.rename(inner, folder / os.urandom(8).hex())
            else:
                os.unlink(inner)
        os.rmdir(entry)
    return bool(entries)
