"""A thin Jupyter kernel around the REPL, for consoles: it serves a person's client.

execute_request -> Repl -> stream and error on iopub, execute_reply

A forked child sets it up by hand: no application, no configuration, no event loop. Messages go
through ipykernel's own dispatch, so that stock clients work. The kernel's owner is answered in the
same thread. Knows messages. Does not know deadlines, limits or who forked it.
"""

from __future__ import annotations

import platform
import select
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import traitlets
import zmq
from ipykernel.kernelbase import Kernel, kernel_protocol_version
from jupyter_client.session import Session

from repl_sandbox.repl import Answer, Repl
from repl_sandbox.sockets import CONTROL, HEARTBEAT, IOPUB, SHELL, socket_path

# A client takes a kernel without a heartbeat for dead.
CHANNELS = {SHELL: zmq.ROUTER, IOPUB: zmq.PUB, CONTROL: zmq.ROUTER, HEARTBEAT: zmq.ROUTER}
NEVER = 1 << 62


class ReplKernel(Kernel):  # type: ignore[misc]  # ipykernel ships no types
    """Built once in the fork server. A child that is a console calls `open` and then `serve`."""

    implementation = "repl-rl"
    implementation_version = "1"
    language_info = {  # noqa: RUF012  # the base class wants a plain attribute
        "name": "python",
        "version": platform.python_version(),
        "mimetype": "text/x-python",
        "file_extension": ".py",
    }
    banner = "repl-rl: the classic Python REPL"
    # By default ipykernel pauses before each reply, for the output of other threads.
    _execute_sleep = 0
    # ipykernel expects streams here. Raw sockets need no event loop.
    shell_stream = traitlets.Any()
    control_stream = traitlets.Any()

    repl: Repl
    listeners: dict[int, socket.socket]
    is_stopped = False

    @property
    def kernel_info(self) -> dict[str, object]:
        """What a client asks for first. That of ipykernel imports a debugger to describe it."""
        return {
            "protocol_version": kernel_protocol_version,
            "implementation": self.implementation,
            "implementation_version": self.implementation_version,
            "language_info": self.language_info,
            "banner": self.banner,
            "help_links": [],
            "supported_features": [],
        }

    def listen(self, folder: Path) -> None:
        """Make the sockets' files in `folder`: the last step that needs the right to make files."""
        self.listeners = {}
        for channel in CHANNELS:
            self.listeners[channel] = listener = socket.socket(socket.AF_UNIX)
            listener.setblocking(False)
            listener.bind(str(socket_path(folder, channel)))
            listener.listen()

    def open(self, repl: Repl, *, key: bytes) -> None:
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
            made.use_fd = listener.detach()
            made.bind(address)
        self.shell_stream, self.control_stream = opened[SHELL], opened[CONTROL]
        self.iopub_socket = opened[IOPUB]
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
        # Its descriptor signals arrivals only once: `poll` finds whatever else is there.
        while not self.is_stopped and channel.poll(0):
            parts = [zmq.Frame(frame) for frame in channel.recv_multipart()]
            is_shell = channel is self.shell_stream
            _finish(self.dispatch_shell(parts) if is_shell else self.process_control(parts))

    def pre_handler_hook(self) -> None:
        """Do nothing: the REPL arms and disarms the interrupt itself."""

    def post_handler_hook(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Do nothing: after an error a REPL goes on with what was typed ahead."""

    async def do_execute(self, code: str, silent: bool, **_options: object) -> dict[str, object]:
        """Run a cell for a notebook or console. Its text goes out on iopub."""
        # The newline closes an open block: the next cell never continues this one.
        answer = self.repl.run(code + "\n")
        if answer.status == "incomplete":
            answer = Answer(status="error", error_type="SyntaxError", head="incomplete input\n")
        text = _shown(answer)
        if text and not silent:
            stream = {"name": "stdout", "text": text}
            self.send_response(self.iopub_socket, "stream", stream)
        content = _reply_content(answer) | {"execution_count": self.execution_count}
        if answer.error_type and not silent:
            error = {key: content[key] for key in ("ename", "evalue", "traceback")}
            self.send_response(self.iopub_socket, "error", error)
        return content

    async def do_is_complete(self, code: str) -> dict[str, object]:
        """As in the REPL, a block is open until a blank line."""
        return {"status": "complete" if self.repl.is_complete(code) else "incomplete", "indent": ""}

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Reply, then leave `serve`. Any: the base class is untyped."""
        restart = bool(parent["content"].get("restart"))
        content = {"status": "ok", "restart": restart}
        self.session.send(stream, "shutdown_reply", content, parent, ident=ident)
        self.is_stopped = True


def _finish(handler: Coroutine[Any, Any, None]) -> None:
    """Run an `async` handler of ipykernel that waits for nothing, without an event loop."""
    try:
        handler.send(None)
    except StopIteration:
        return
    raise RuntimeError("a handler waits")


def _shown(answer: Answer) -> str:
    """The output as a person sees it. Where it was cut, it says how much is missing."""
    if not answer.num_omitted:
        return answer.head + answer.tail
    return f"{answer.head}\n... [{answer.num_omitted} characters omitted] ...\n{answer.tail}"


def _reply_content(answer: Answer) -> dict[str, object]:
    """The content of `execute_reply`, in Jupyter's fields."""
    content: dict[str, object] = {
        "status": "error" if answer.error_type else "ok",
        "user_expressions": {},
        "payload": [],
    }
    if answer.error_type:
        content |= {"ename": answer.error_type, "evalue": "", "traceback": []}
    return content
