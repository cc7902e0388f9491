"""A thin Jupyter kernel around the REPL, for consoles: it serves a person's client.

execute_request -> Repl -> stream and error on iopub, execute_reply

Messages go through ipykernel's own dispatch, so that stock clients work. Knows cells and their
answers. Does not know sockets, deadlines, limits or who forked it.
"""

from __future__ import annotations

import logging
import platform
import signal
from pathlib import Path

from ipykernel.kernelbase import Kernel

from repl_sandbox.guest.repl import Answer
from repl_sandbox.jupyter.served import Served


class ReplKernel(Served, Kernel):  # type: ignore[misc]  # ipykernel ships no types
    """Built once in the fork server. A child that is a console calls `open` and then `serve`."""

    implementation = "repl-rl-lines"
    implementation_version = "1"
    language_info = {  # noqa: RUF012  # the base class wants a plain attribute
        "name": "python",
        "version": platform.python_version(),
        "mimetype": "text/x-python",
        "file_extension": ".py",
    }
    banner = "repl-rl: the classic Python REPL"

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
        text = _rendered(answer)
        if text and not silent:
            stream = {"name": "stdout", "text": text}
            self.send_response(self.iopub_socket, "stream", stream)
        error: dict[str, object] = {}
        if answer.error_type:
            error = {"ename": answer.error_type, "evalue": "", "traceback": []}
        if error and not silent:
            self.send_response(self.iopub_socket, "error", error)
        content = {"execution_count": self.execution_count, "user_expressions": {}, "payload": []}
        return {"status": "error" if error else "ok", **content, **error}

    async def do_is_complete(self, code: str) -> dict[str, object]:
        """Report a block as open until a blank line, as in the REPL."""
        return {"status": "complete" if self.repl.is_complete(code) else "incomplete", "indent": ""}


def make_lines_kernel(_folder: Path) -> ReplKernel:
    """Make the kernel in the fork server, once."""
    return ReplKernel(log=logging.getLogger(__name__))


def _rendered(answer: Answer) -> str:
    """The output as a person sees it. Where it was cut, it says how much is missing."""
    if not answer.num_omitted:
        return answer.head + answer.tail
    return f"{answer.head}\n... [{answer.num_omitted} characters omitted] ...\n{answer.tail}"
