"""A full IPython kernel behind the same walls, for notebooks: cells, rich output, completion.

execute_request -> IPython's own shell -> stream, execute_result, display_data, error on iopub

It is ipykernel's `IPythonKernel`, built once in the fork server, without its threads: no history
file, no event loop, no debugger. One thread, started before the kernel is sealed, sends what a cell
has printed while it computes.

Knows messages. Does not know deadlines, limits or who forked it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import traitlets
import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.profiledir import ProfileDir
from jupyter_client.session import extract_header
from traitlets.config import Config

from repl_sandbox.guest.repl import Answer, Repl, seed_generators
from repl_sandbox.jupyter.served import Served

NO_INPUT = "a sealed kernel has nobody to ask: input() is not available"
NO_FOLDER = "a sealed kernel can write no files: there is no temporary folder"
STREAMS = ("stdout", "stderr")
FLUSH_S = 0.2
"""Delay before a cell's printed text goes out, as with ipykernel."""


class NoFolderError(PermissionError, RuntimeError):
    """No file can be written.

    A RuntimeError for sympy's sake: its `init_printing` takes one to mean that there is no TeX, and
    draws by matplotlib.
    """


def refuse_folder(*_given: object, **_named: object) -> str:
    """`tempfile.mkdtemp` of a sealed kernel."""
    raise NoFolderError(NO_FOLDER)


class SealedShell(ZMQInteractiveShell):  # type: ignore[misc]  # ipykernel ships no types
    """Without windows: behind the walls there is no display to open one on."""

    def enable_gui(self, gui: str | None = None) -> None:
        if gui not in (None, "inline"):
            raise ValueError(f"a sealed kernel opens no window: %matplotlib {gui}; use inline")


class OwnLoop:
    """The event loop of the thread that runs cells, of which ipykernel asks whether it runs.

    `asyncio.run` leaves none, and a cell can leave anything, also a policy of its own.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def put_right(self) -> None:
        """Let the thread have a loop that is open and at rest."""
        asyncio.events._set_running_loop(None)
        # Of a policy of the cell's. With Python 3.12 a warning may be among them.
        with suppress(Exception):
            if _rests(asyncio.get_event_loop()):
                return
        # One for all cells: each holds three descriptors.
        if self._loop is None or not _rests(self._loop):
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop_policy(None)
        asyncio.set_event_loop(self._loop)


def _rests(loop: asyncio.AbstractEventLoop) -> bool:
    return not loop.is_closed() and not loop.is_running()


class NotebookKernel(Served, IPythonKernel):  # type: ignore[misc]  # ipykernel ships no types
    """Built once in the fork server. A child that serves a client calls `open` and then `serve`."""

    implementation = "repl-rl"
    implementation_version = "1"
    banner = f"repl-rl: a sealed IPython kernel, Python {platform.python_version()}"
    shell_class = traitlets.Type(SealedShell)
    turn: threading.RLock
    """Lock of whoever sends on iopub: an interrupt may find the main thread within it."""
    spilt: Callable[[], str]
    """Text that was written past the streams: see `repl.Spill`."""
    out: Printed
    printed: SimpleQueue[Printed]
    """Streams with something to send. Its methods are C, which no interrupt divides."""

    def open(self, repl: Repl, *, key: bytes, is_sealed: bool, spilt: Callable[[], str]) -> None:
        """Call `Served.open`; output goes to iopub from here on."""
        super().open(repl, key=key, is_sealed=is_sealed, spilt=spilt)
        self.turn, self.printed, self.loop = threading.RLock(), SimpleQueue(), OwnLoop()
        self.iopub_socket = Shared(self.iopub_socket, self.turn)
        shell = self.shell
        sys.modules["__main__"] = shell.user_module
        # The fork server has drawn numbers, and each of its kernels would go on with the same ones.
        seed_generators(int.from_bytes(os.urandom(4)))
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        for publisher in (shell.displayhook, shell.display_pub):
            publisher.session, publisher.pub_socket = self.session, self.iopub_socket
        shell.displayhook.topic = self._topic("execute_result")
        if is_sealed:
            # IPython names cells as files there, and makes none.
            tempfile.tempdir = "/tmp"
            vars(tempfile)["mkdtemp"] = refuse_folder
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
        self.spilt = spilt
        self.out, sys.stderr = (Printed(self, name) for name in STREAMS)
        sys.stdout = self.out
        threading.Thread(target=self._flush_late, daemon=True, name="IOPub").start()

    def _flush_late(self) -> None:
        """Flush in a thread of its own: what a cell has printed is seen while it computes."""
        while True:
            stream = self.printed.get()
            time.sleep(FLUSH_S)
            stream.flush()

    def set_up(self, source: str) -> Answer:
        """Run a source of ours as a cell that leaves no trace."""
        done = self.shell.run_cell(source, silent=True)
        if done.success:
            return Answer()
        error = done.error_before_exec or done.error_in_exec
        return Answer(status="error", head=str(error), error_type=type(error).__name__)

    def pre_handler_hook(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.loop.put_right()

    def post_handler_hook(self) -> None:
        if spilt := self.spilt():
            self.out.write(spilt)
            self.out.flush()
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def raw_input(self, prompt: str = "") -> str:
        from IPython.core.error import StdinNotImplementedError

        raise StdinNotImplementedError(NO_INPUT)

    def getpass(self, prompt: str = "", stream: object = None) -> str:
        return self.raw_input(prompt)

    async def do_execute(self, *given: object, **named: object) -> dict[str, object]:
        """Run a cell. One that waits after an error waited before that error was known."""
        content: dict[str, object] = await super().do_execute(*given, **named)
        if content["status"] == "error":
            self.read_early()
        return content

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """After an error, cells that were waiting are not run."""
        self._aborting = True
        try:
            self.serve_early()
        finally:
            self._aborting = False

    def do_history(self, *given: object, **named: object) -> dict[str, object]:
        """Answer with the past, which is kept here: IPython's thread for it is missing."""
        self.shell.history_manager.writeout_cache()
        content: dict[str, object] = super().do_history(*given, **named)
        return content


class Printed(io.TextIOBase):
    """A stream of a cell, which goes out as messages: what is printed within a moment is one."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, kernel: NotebookKernel, name: str) -> None:
        self._kernel = kernel
        self.name = name
        self._pending: deque[str] = deque()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not self._pending:
            self._kernel.printed.put(self)
        self._pending.append(self._kernel.spilt() + text)
        return len(text)

    def flush(self) -> None:
        kernel = self._kernel
        with kernel.turn:
            text = "".join(self._pending.popleft() for _ in range(len(self._pending)))
            if text:
                # A message is UTF-8, which has no lone surrogates.
                text = text.encode(self.encoding, self.errors).decode()
                kernel.session.send(
                    kernel.iopub_socket,
                    "stream",
                    {"name": self.name, "text": text},
                    parent=extract_header(kernel.get_parent("shell")),
                    ident=kernel._topic(f"stream.{self.name}"),
                )


class Shared:
    """A socket on which two threads send, each in its turn."""

    def __init__(self, socket: zmq.Socket[bytes], turn: threading.RLock) -> None:
        self._socket = socket
        self._turn = turn

    def send_multipart(self, parts: Sequence[bytes], **options: Any) -> object:
        with self._turn:
            return self._socket.send_multipart(parts, **options)


def make_notebook_kernel(folder: Path) -> NotebookKernel:
    """Make IPython's shell in the fork server, with no file of a person's.

    folder: where it may make its profile, which stays empty.
    """
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.IPCompleter.use_jedi = False
    profile = ProfileDir(location=str(folder / "ipython"), config=config)
    # The instance: ipykernel's comms look for it.
    kernel: NotebookKernel = NotebookKernel.instance(
        log=logging.getLogger(__name__), config=config, profile_dir=profile
    )
    return kernel
