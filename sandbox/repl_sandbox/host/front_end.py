"""Ways for a person's client to reach kernels: what a program brings that wants one.

FrontEnd -> fork server: the endpoint that it makes for its kernels
         -> owner of a kernel: the file by which a client finds it

Whoever starts the fork server chooses one, before there is a kernel. Knows names and paths. Does
not know any client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repl_sandbox.host.started_kernel import StartedKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """Files and variables for a fork server beside those that every fork server has."""

    readable: Sequence[Path] = ()
    """Folders of the machine that kernels may read."""
    own: Sequence[Path] = ()
    """Folders made in the runtime folder that kernels may read."""
    environment: Mapping[str, str] = field(default_factory=dict)


def provide_nothing(_runtime: Path, _environment: Mapping[str, str]) -> Provision:
    """Return what a front end needs that brings no files."""
    return Provision()


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
    provide: Callable[[Path, Mapping[str, str]], Provision] = provide_nothing
    """Make what its kernels need in the runtime folder, given the fork server's environment."""
