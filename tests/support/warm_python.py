"""Scripts in processes of their own that need not import torch and trl again: `fork_server.py`.

A script started here is what `python SCRIPT ...` makes, short of the start of Python itself: a
process with a session, streams, an environment and an exit code of its own.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

SCRIPT = str(Path(sys.executable).with_name("repl-rl"))
"""What a user calls."""
SERVER = Path(__file__).with_name("fork_server.py")
START_S = 100.0
LIBRARIES = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
"""What is said to the libraries of every script."""
ONLY_ITS_OWN = {
    # Arrow's allocator starts a thread, and a fork takes along the one that forks alone.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # What the command sets itself before it imports anything heavy.
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "0",
}
READ_LATE = {
    *("PYTEST_ADDOPTS", "REPL_RL_CACHE", "REPL_RL_TEST_MARKER", "TERM"),
    *("GLOO_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE"),
}
"""What may differ between the server and a script: no import reads it."""


class Process(Protocol):
    """As much of `subprocess.Popen` as is common to both."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Forked:
    """A script's process; its parent is a fork of the server's."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self.returncode: int | None = None
        self.pid = self._hear()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever of its group still runs is killed."""
        self._told.close()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the signal; TimeoutError when it takes longer."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            self.returncode = self._hear()
            self._told.close()
        return self.returncode

    def _hear(self) -> int:
        heard = self._told.recv(64)
        assert heard, "the fork server has died"
        return int(heard)


class WarmPython:
    """The server, with all that it starts, for as long as the process that made this lives."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = {**environment, **LIBRARIES}
        """What the imports read, and each script unless it changes what no import reads."""
        self._control: socket.socket | None = None

    def __enter__(self) -> WarmPython:
        return self

    def __exit__(self, *_: object) -> None:
        if self._control is not None:
            self._control.close()
            self._server.wait(START_S)

    @property
    def pid(self) -> int:
        """The server's; it runs from the first script on."""
        return self._server.pid

    def start(
        self,
        *words: str,
        cwd: Path,
        env: Mapping[str, str],
        streams: Sequence[IO[str] | int],
        ignores_sigint: bool = False,
    ) -> Forked:
        """Run a script, the first word, with the others as its arguments, in a new session.

        `streams` are stdin, stdout and stderr: files, or numbers of open ones.
        """
        own = {**self.environment, **ONLY_ITS_OWN}
        given = {**ONLY_ITS_OWN, **env}
        differing = {name for name in {*own, *given} if own.get(name) != given.get(name)}
        assert differing <= READ_LATE, (
            f"{sorted(differing - READ_LATE)} differ from what the server has imported under; "
            "start a Python of its own for this script"
        )
        control = self._control or self._open()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = {
            "words": words,
            "cwd": str(cwd),
            "environment": dict(env),
            "ignores_sigint": ignores_sigint,
        }
        numbers = [one if isinstance(one, int) else one.fileno() for one in streams]
        with theirs:
            socket.send_fds(control, [json.dumps(order).encode()], [*numbers, theirs.fileno()])
        return Forked(ours)

    def _open(self) -> socket.socket:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile("w+") as errors:
            self._server = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                env={**self.environment, **ONLY_ITS_OWN},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the tests
            )
            theirs.close()
            self._control.settimeout(START_S)
            is_ready = self._control.recv(64) == b"ready"
            errors.seek(0)
            said = errors.read()
        # A command would say it too.
        assert (is_ready, said) == (True, ""), f"the fork server did not start: {said[-2000:]}"
        return self._control


def start_cold(
    *words: str,
    cwd: Path,
    env: Mapping[str, str],
    streams: Sequence[IO[str] | int],
    ignores_sigint: bool = False,
) -> subprocess.Popen[bytes]:
    """As `WarmPython.start`, in a Python that starts for this script."""
    stdin, stdout, stderr = streams
    # What it inherits may be of a shell's background job, this very test run.
    inherited = signal.SIG_IGN if ignores_sigint else signal.default_int_handler
    before = signal.signal(signal.SIGINT, inherited)
    try:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
