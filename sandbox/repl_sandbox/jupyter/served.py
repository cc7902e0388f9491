"""Base of all kernels for a person's client: sockets, a key, one thread that answers.

    folder -> listening files -> zmq sockets -> messages through ipykernel's own dispatch

A forked child sets its kernel up by hand: no application, no configuration, no event loop. Knows
messages. Does not know what runs a cell, nor who forked it.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from traceback import format_exception
from typing import Any

import zmq
from ipykernel.kernelbase import kernel_protocol_version
from jupyter_client.session import Session

from repl_sandbox.guest.fork_server import Endpoint
from repl_sandbox.guest.repl import Repl
from repl_sandbox.types import CONTROL, HEARTBEAT, IOPUB, SHELL, socket_path

# A client takes a kernel without a heartbeat for dead.
CHANNELS = {SHELL: zmq.ROUTER, IOPUB: zmq.PUB, CONTROL: zmq.ROUTER, HEARTBEAT: zmq.ROUTER}
NEVER = 1 << 62
MAX_UNSENT = 1 << 16
"""Messages that wait for a client which is slower than a cell. More are lost, and memory is not."""


class Served(Endpoint):
    """Mixed into a `Kernel` of ipykernel, whose `shell_stream` and `control_stream` take raw
    sockets."""

    # Any: the base classes are untyped.
    session: Any = None
    # ipykernel has streams here. Raw sockets need no event loop.
    shell_stream: Any = None
    control_stream: Any = None
    iopub_socket: Any = None
    # By default ipykernel pauses before each reply, for the output of other threads.
    _execute_sleep = 0
    dispatch_shell: Any
    process_control: Any
    shell_handlers: dict[str, Any]
    control_handlers: dict[str, Any]
    execution_count: Any
    _publish_status: Any
    listeners: dict[int, socket.socket]
    early: deque[list[zmq.Frame]]
    """Messages of the shell channel that were taken in and are not served yet."""
    is_stopped = False
    has_zmq = True

    def listen(self, folder: Path) -> None:
        """Make the sockets' files in `folder`: the last step that needs the right to make files."""
        self.early = deque()
        self.listeners = {}
        for channel in CHANNELS:
            self.listeners[channel] = listener = socket.socket(socket.AF_UNIX)
            listener.setblocking(False)
            listener.bind(str(socket_path(folder, channel)))
            listener.listen()

    @property
    def kernel_info(self) -> dict[str, object]:
        """Answer to a client's first question; ipykernel's imports a debugger to describe it."""
        names = ("implementation", "implementation_version", "language_info", "banner")
        info = {name: getattr(self, name) for name in (*names, "help_links")}
        absent = {"supported_features": [], "debugger": False}
        return {"protocol_version": kernel_protocol_version, **info, **absent}

    def open(self, repl: Repl, *, key: bytes, is_sealed: bool, spilt: Callable[[], str]) -> None:
        """Hand the listening sockets to zmq, which starts threads: nothing may fork afterwards."""
        self.repl = repl
        # Always copy: pyzmq frees uncopied messages from a thread, and no thread can start here.
        self.session = Session(key=key, check_pid=False, copy_threshold=NEVER)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        opened = {channel: context.socket(CHANNELS[channel]) for channel in self.listeners}
        for channel, made in opened.items():
            listener = self.listeners.pop(channel)
            address = f"ipc://{listener.getsockname()}"
            made.linger = 0
            made.sndhwm = MAX_UNSENT
            made.use_fd = listener.detach()
            made.bind(address)
        self.shell_stream, self.control_stream = opened[SHELL], opened[CONTROL]
        self.iopub_socket = opened[IOPUB]
        for handlers in (self.shell_handlers, self.control_handlers):
            for name, handler in handlers.items():
                handlers[name] = self._replying(name, handler)
        echo = opened[HEARTBEAT]
        # The heart beats while a line runs, because zmq.proxy releases the interpreter lock.
        threading.Thread(target=zmq.proxy, args=(echo, echo), daemon=True).start()

    def serve(self, answers: Iterator[socket.socket]) -> None:
        """Answer clients, and the owner by steps of `answers`, until one of them ends it."""
        poller = select.poll()
        owner = next(answers)
        stock = {channel.fileno(): channel for channel in (self.shell_stream, self.control_stream)}
        for fd in (owner, *stock):
            poller.register(fd, select.POLLIN)
        while not self.is_stopped:
            for fd, _event in poller.poll():
                if fd in stock:
                    self._serve_stock(stock[fd])
                    continue
                poller.unregister(owner)
                try:
                    owner = next(answers)
                except StopIteration:
                    return
                poller.register(owner, select.POLLIN)

    def _serve_stock(self, channel: zmq.Socket[bytes]) -> None:
        handle = self.dispatch_shell if channel is self.shell_stream else self.process_control
        while not self.is_stopped and (parts := _receive(channel)) is not None:
            self._dispatch(handle, parts)
            self.serve_early()

    def _dispatch(self, handle: Any, parts: list[zmq.Frame]) -> None:
        """Serve one message. What goes wrong ends in `idle`, so that nobody waits for more."""
        try:
            _finish(handle(parts))
        # Beside its handler, a message meets what a client sent and what a cell left behind.
        # It is not logged: a log goes to whatever a cell has put in the place of stderr.
        except Exception:  # noqa: BLE001
            self._publish_status("idle", "control" if handle == self.process_control else "shell")

    def _replying(self, name: str, handler: Any) -> Any:
        """The handler of a request, with a reply that is an error where it raises."""

        async def handle(stream: Any, ident: Any, parent: Any) -> None:
            try:
                handled = handler(stream, ident, parent)
                if handled is not None:
                    _finish(handled)
            # A cell may make it raise anything. The kernel goes on.
            except BaseException as error:  # noqa: BLE001
                content = _as_error(error) | {"execution_count": self.execution_count}
                reply = name.removesuffix("_request") + "_reply"
                self.session.send(stream, reply, content, parent, ident=ident)

        return handle if name.endswith("_request") else handler

    def read_early(self) -> None:
        """Take in what waits on the shell channel, to be served as what came before a reply."""
        while (parts := _receive(self.shell_stream)) is not None:
            self.early.append(parts)

    def serve_early(self) -> None:
        """Serve what was taken in."""
        while self.early:
            self._dispatch(self.dispatch_shell, self.early.popleft())

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Reply, then leave `serve`."""
        restart = bool(parent["content"].get("restart"))
        content = {"status": "ok", "restart": restart}
        self.session.send(stream, "shutdown_reply", content, parent, ident=ident)
        self.is_stopped = True

    async def usage_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Reply with what a sealed kernel knows of itself: of its machine it sees nothing."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        content = {"hostname": socket.gethostname(), "pid": os.getpid()}
        content["kernel_memory"] = used.ru_maxrss << 10
        self.session.send(stream, "usage_reply", content, parent, ident=ident)

    def _send_interrupt_children(self) -> None:
        """Do nothing: a sealed kernel has none. An interrupt comes as a signal, in the midst of a
        cell; a request for one is read when the cell has ended."""


def _receive(channel: zmq.Socket[bytes]) -> list[zmq.Frame] | None:
    """A message if there is one. A channel's descriptor signals arrivals only once: ask again."""
    return [zmq.Frame(frame) for frame in channel.recv_multipart()] if channel.poll(0) else None


def _finish(handler: Coroutine[Any, Any, None]) -> None:
    """Run an `async` handler of ipykernel that waits for nothing, without an event loop."""
    try:
        handler.send(None)
    except StopIteration:
        return
    raise RuntimeError("a handler waits")


def _as_error(error: BaseException) -> dict[str, object]:
    """The content of a reply. Messages are UTF-8, which has no lone surrogates."""
    try:
        text = str(error)
        lines = format_exception(error)
    # The error may be of a cell's own class.
    except BaseException:  # noqa: BLE001
        text, lines = "", []
    texts = [each.encode("utf-8", "backslashreplace").decode() for each in (text, *lines)]
    name = type(error).__name__
    return {"status": "error", "ename": name, "evalue": texts[0], "traceback": texts[1:]}
