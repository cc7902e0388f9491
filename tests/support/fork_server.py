"""A Python that has imported what is slow to import, and forks itself for each script it is sent.

    python fork_server.py CONTROL

CONTROL is the number of a SOCK_SEQPACKET socket. The server says `ready` on it; then each message
is an order, as JSON, with four descriptors: stdin, stdout, stderr and a socket that is told the
script's process id and, when it has ended, its exit code. A closed CONTROL ends the server.

Knows no package of ours, so each script imports ours by itself. `warm_python.py` is the other end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import Any, NoReturn

HEAVY = ("torch", "datasets", "transformers", "trl.trainer.grpo_trainer", "trl.trainer.sft_trainer")
"""Six seconds of a processor."""
TELL_STACKS = signal.SIGUSR2
"""What a script writes the stacks of its threads to stderr at."""


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each order, which comes back in its own process; the server's ends with None."""
    gc.disable()  # nothing that is imported is garbage, and it would be searched again and again
    for name in HEAVY:
        __import__(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive the fork"
    gc.collect()
    gc.freeze()
    gc.enable()
    control.send(b"ready")
    keepers = []
    while True:
        message, descriptors, *_ = socket.recv_fds(control, 1 << 20, 4)
        if not message:
            break
        if (pid := os.fork()) == 0:
            control.close()
            order: dict[str, Any] = json.loads(message)
            take(order, descriptors)
            return order
        keepers.append(pid)
        for descriptor in descriptors:
            os.close(descriptor)
    for keeper in keepers:
        os.waitpid(keeper, 0)
    return None


def take(order: dict[str, Any], descriptors: list[int]) -> None:
    """Become the script's process, whose parent stays behind to tell how it ends."""
    *streams, told = descriptors
    with socket.socket(fileno=told) as telling:
        if pid := os.fork():
            for stream in streams:
                os.close(stream)  # who reads what the script writes waits for its end
            keep(pid, telling)
        os.setsid()
        telling.send(str(os.getpid()).encode())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    ignored = order["ignores_sigint"]
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        open_again(name, mode)
    faulthandler.register(TELL_STACKS, file=sys.stderr)
    sys.argv[:] = order["words"]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(sys.argv[0])


def open_again(name: str, mode: str) -> None:
    """A stream of `sys` as Python opens it: what there is knows the descriptor from before."""
    old = getattr(sys, name)
    buffering = 1 if old.line_buffering else -1  # of a terminal it is 1 all the same
    new = os.fdopen(old.fileno(), mode, buffering, old.encoding, old.errors, closefd=False)
    assert isinstance(new, io.TextIOWrapper)
    new.reconfigure(write_through=old.write_through)
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


def keep(pid: int, telling: socket.socket) -> NoReturn:
    """Tell how a process ends, and kill its group if nobody listens any more."""
    select.select([telling.fileno(), os.pidfd_open(pid)], [], [])
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if ended is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    else:
        is_exit = ended.si_code == os.CLD_EXITED
        telling.send(str(ended.si_status if is_exit else -ended.si_status).encode())
        telling.recv(1)  # until the other end hangs up no other process gets this number
    os.waitpid(pid, 0)
    os._exit(0)


if __name__ == "__main__":
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    if order is not None:
        runpy.run_path(order["words"][0], run_name="__main__")
