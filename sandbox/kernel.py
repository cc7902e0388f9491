"""A thin Jupyter kernel around the REPL: one request in, one reply out.

execute_request (silent) -> Repl -> execute_reply whose payload carries the text

Wired by hand in a forked child: no application, no configuration, no event loop on the fast path.
Every other message goes through ipykernel's own dispatch, so that stock clients work. Knows
messages. Does not know deadlines, limits or who forked it.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import traitlets
import zmq
from ipykernel.kernelbase import Kernel
from jupyter_client.session import Session

from sandbox.repl import Repl, Said
from sandbox.wire import Message, WireError, make_header, pack, unpack

SHELL, IOPUB, CONTROL = 1, 2, 5
PAYLOAD_SOURCE = "repl"


def socket_path(folder: Path, channel: int) -> Path:
    """Where a channel listens. A Jupyter client finds it by transport `ipc`, ip `folder/s`."""
    return folder / f"s-{channel}"


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
    # ipykernel wants streams here; raw sockets need no event loop.
    shell_stream = traitlets.Any()
    control_stream = traitlets.Any()

    repl: Repl
    key: bytes
    is_stopped = False

    def open(self, repl: Repl, *, folder: Path, key: bytes) -> None:
        """Bind the sockets of this kernel. Starts zmq's threads: nothing may fork after it."""
        self.repl, self.key = repl, key
        self.session = Session(key=key, check_pid=False)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.shell_stream = context.socket(zmq.ROUTER)
        self.control_stream = context.socket(zmq.ROUTER)
        self.iopub_socket = context.socket(zmq.PUB)
        channels = {SHELL: self.shell_stream, CONTROL: self.control_stream}
        for channel, socket in (channels | {IOPUB: self.iopub_socket}).items():
            socket.linger = 0
            socket.bind(f"ipc://{socket_path(folder, channel)}")

    def serve(self) -> None:
        """Answer messages until a shutdown request. A message that is none of ours is dropped."""
        poller = zmq.Poller()
        poller.register(self.shell_stream, zmq.POLLIN)
        poller.register(self.control_stream, zmq.POLLIN)
        while not self.is_stopped:
            for socket, _event in poller.poll():
                frames = socket.recv_multipart()
                if socket is self.control_stream or not self._answer(frames):
                    self._dispatch(socket, frames)

    def _answer(self, frames: list[bytes]) -> bool:
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
        self.shell_stream.send_multipart(pack(reply, key=self.key))
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

    def _dispatch(self, socket: Any, frames: list[bytes]) -> None:  # Any: pyzmq's own generics
        parts = [zmq.Frame(frame) for frame in frames]
        is_shell = socket is self.shell_stream
        asyncio.run(self.dispatch_shell(parts) if is_shell else self.process_control(parts))

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
        text = said.head + said.tail
        if text and not silent:
            stream = {"name": "stdout", "text": text}
            self.send_response(self.iopub_socket, "stream", stream)
        content = _reply_content(said) | {"payload": []}
        if said.error_type and not silent:
            error = {key: content[key] for key in ("ename", "evalue", "traceback")}
            self.send_response(self.iopub_socket, "error", error)
        return content

    async def do_is_complete(self, code: str) -> dict[str, object]:
        return {"status": "unknown"}

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Reply, then leave `serve`. Any: the base class is untyped."""
        restart = bool(parent["content"].get("restart"))
        content = {"status": "ok", "restart": restart}
        self.session.send(stream, "shutdown_reply", content, parent, ident=ident)
        self.is_stopped = True


def _reply_content(said: Said) -> dict[str, object]:
    """What `execute_reply` says: Jupyter's fields, and all of `said` as the only payload."""
    content: dict[str, object] = {
        "status": "error" if said.error_type else "ok",
        "execution_count": 0,
        "user_expressions": {},
        "payload": [{"source": PAYLOAD_SOURCE} | asdict(said)],
    }
    if said.error_type:
        content |= {"ename": said.error_type, "evalue": "", "traceback": []}
    return content
