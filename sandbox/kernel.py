"""A thin Jupyter kernel around the REPL: one request in, one reply out.

execute_request (silent) -> Repl -> execute_reply whose payload carries the text

Wired by hand in a forked child: no application, no configuration, no event loop on the fast path.
Every other message goes through ipykernel's own dispatch, so that stock clients work. Knows
messages. Does not know deadlines, limits or who forked it.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Coroutine
from dataclasses import fields
from pathlib import Path
from typing import Any

import traitlets
import zmq
from ipykernel.kernelbase import Kernel
from jupyter_client.session import Session

from sandbox.direct import DirectSocket
from sandbox.repl import Repl, Said
from sandbox.sockets import CONTROL, DIRECT, HEARTBEAT, IOPUB, PAYLOAD_SOURCE, SHELL, socket_path
from sandbox.wire import Message, WireError, make_header, pack, unpack

CHANNELS = {SHELL: zmq.ROUTER, IOPUB: zmq.PUB, CONTROL: zmq.ROUTER}
CONSOLE_CHANNELS = CHANNELS | {HEARTBEAT: zmq.ROUTER}
"""A console takes a kernel without a heartbeat for dead."""
NEVER = 1 << 62
# Not `asdict`: it copies deeply.
SAID = tuple(field.name for field in fields(Said))


class ReplKernel(Kernel):  # type: ignore[misc]  # ipykernel ships no types
    """Built once in the fork server; each child calls `open` and then `serve`."""

    implementation = "repl-rl"
    implementation_version = "1"
    language_info = {  # noqa: RUF012  # the base class wants a plain attribute
        "name": "python",
        "mimetype": "text/x-python",
        "file_extension": ".py",
    }
    banner = "repl-rl: the classic Python REPL"
    # ipykernel would pause before each reply, for output of other threads.
    _execute_sleep = 0
    # ipykernel wants streams here; raw sockets need no event loop.
    shell_stream = traitlets.Any()
    control_stream = traitlets.Any()

    repl: Repl
    key: bytes
    listeners: dict[int, socket.socket]
    door: socket.socket
    """Where the owner knocks, once."""
    owner: DirectSocket | None = None
    is_stopped = False

    def listen(self, folder: Path, *, is_console: bool) -> None:
        """Make the sockets' files in `folder`: the last thing that needs the right to make any."""
        self.listeners = {}
        for channel in (DIRECT, *(CONSOLE_CHANNELS if is_console else CHANNELS)):
            self.listeners[channel] = listener = socket.socket(socket.AF_UNIX)
            listener.setblocking(False)
            listener.bind(str(socket_path(folder, channel)))
            listener.listen()

    def open(self, repl: Repl, *, key: bytes) -> None:
        """Hand all listening sockets but the owner's to zmq.

        It starts threads: nothing may fork after it.
        """
        self.repl, self.key = repl, key
        # Always a copy: pyzmq frees what it did not copy from a thread, and no thread starts here.
        self.session = Session(key=key, check_pid=False, copy_threshold=NEVER)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.door = self.listeners.pop(DIRECT)
        opened = {channel: context.socket(CONSOLE_CHANNELS[channel]) for channel in self.listeners}
        for channel, made in opened.items():
            listener = self.listeners.pop(channel)
            address = f"ipc://{listener.getsockname()}"
            made.linger = 0
            made.use_fd = listener.detach()
            made.bind(address)
        self.shell_stream, self.control_stream = opened[SHELL], opened[CONTROL]
        self.iopub_socket = opened[IOPUB]
        if HEARTBEAT in opened:
            echo = opened[HEARTBEAT]
            # It beats while a line runs; zmq.proxy lets the interpreter go.
            threading.Thread(target=zmq.proxy, args=(echo, echo), daemon=True).start()

    def serve(self) -> None:
        """Answer messages until a shutdown request. A message that is none of ours is dropped."""
        poller = select.poll()
        stock = {channel.fileno(): channel for channel in (self.shell_stream, self.control_stream)}
        for fd in (self.door.fileno(), *stock):
            poller.register(fd, select.POLLIN)
        while not self.is_stopped:
            for fd, _event in poller.poll():
                if fd in stock:
                    self._serve_stock(stock[fd])
                elif self.owner is None:
                    self.owner = DirectSocket(self.door)
                    poller.unregister(self.door)
                    self.door.close()
                    poller.register(self.owner, select.POLLIN)
                else:
                    self._answer(self.owner, self.owner.recv_multipart())

    def _serve_stock(self, channel: zmq.Socket[bytes]) -> None:
        # Its descriptor tells that something came, once; what else is there is to be asked for.
        while not self.is_stopped and channel.poll(0):
            frames = channel.recv_multipart()
            if channel is self.control_stream or not self._answer(channel, frames):
                self._dispatch(channel, frames)

    def _answer(self, channel: Any, frames: list[bytes]) -> bool:  # Any: pyzmq's own generics
        """The fast path; False if this message is not for it."""
        try:
            request = unpack(frames, key=self.key)
        except WireError:
            return True
        if request.header.get("msg_type") != "execute_request":
            return False
        if request.content.get("silent") is not True:
            return False
        said = self._said(request)
        reply = Message(
            header=make_header(
                "execute_reply",
                msg_id=f"{request.header.get('msg_id')}_reply",
                session=str(request.header.get("session")),
            ),
            parent=request.header,
            content=_reply_content(said),
            identities=request.identities,
        )
        channel.send_multipart(pack(reply, key=self.key))
        return True

    def _said(self, request: Message) -> Said:
        code = str(request.content.get("code", ""))
        match request.metadata.get("repl", "run"):
            case "evaluate":
                return self.repl.evaluate(code)
            case "seed":
                self.repl.seed(int(code))
                return Said()
            case _:
                return self.repl.run(code)

    def _dispatch(self, channel: Any, frames: list[bytes]) -> None:  # Any: pyzmq's own generics
        parts = [zmq.Frame(frame) for frame in frames]
        is_shell = channel is self.shell_stream
        _finish(self.dispatch_shell(parts) if is_shell else self.process_control(parts))

    def pre_handler_hook(self) -> None:
        """Nothing: the REPL arms and disarms the interrupt itself."""

    def post_handler_hook(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Nothing: after an error a REPL goes on with what was typed ahead."""

    async def do_execute(self, code: str, silent: bool, **_options: object) -> dict[str, object]:
        """What a notebook or console asks for: the cell runs, its text goes out on iopub."""
        # The newline closes an open block: a cell is never continued by the next one.
        said = self.repl.run(code + "\n")
        if said.status == "incomplete":
            said = Said(status="error", error_type="SyntaxError", head="incomplete input\n")
        text = _shown(said)
        if text and not silent:
            stream = {"name": "stdout", "text": text}
            self.send_response(self.iopub_socket, "stream", stream)
        content = _reply_content(said)
        content |= {"payload": [], "execution_count": self.execution_count}
        if said.error_type and not silent:
            error = {key: content[key] for key in ("ename", "evalue", "traceback")}
            self.send_response(self.iopub_socket, "error", error)
        return content

    async def do_is_complete(self, code: str) -> dict[str, object]:
        """As the REPL sees it: a block is open until a blank line."""
        return {"status": "complete" if self.repl.is_complete(code) else "incomplete", "indent": ""}

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Reply, then leave `serve`. Any: the base class is untyped."""
        restart = bool(parent["content"].get("restart"))
        content = {"status": "ok", "restart": restart}
        self.session.send(stream, "shutdown_reply", content, parent, ident=ident)
        self.is_stopped = True


def _finish(handler: Coroutine[Any, Any, None]) -> None:
    """Run what ipykernel calls `async` and has nothing to wait for, without an event loop."""
    try:
        handler.send(None)
    except StopIteration:
        return
    raise RuntimeError("a handler waits")


def _shown(said: Said) -> str:
    """What a person sees of an output; of one that was cut, how much is missing."""
    if not said.num_omitted:
        return said.head + said.tail
    return f"{said.head}\n... [{said.num_omitted} characters omitted] ...\n{said.tail}"


def _reply_content(said: Said) -> dict[str, object]:
    """What `execute_reply` says: Jupyter's fields, and all of `said` as the only payload."""
    content: dict[str, object] = {
        "status": "error" if said.error_type else "ok",
        "execution_count": 0,
        "user_expressions": {},
        "payload": [{"source": PAYLOAD_SOURCE} | {name: getattr(said, name) for name in SAID}],
    }
    if said.error_type:
        content |= {"ename": said.error_type, "evalue": "", "traceback": []}
    return content
