"""The kernel's end of its owner's connection: a question in, an answer out, in its one thread.

size, JSON -> [Repl] -> size, JSON

It shares an interpreter with the code that it reports on. So C code alone carries an answer, and
the Python code that makes one is compared with what it was before any line ran. Knows bytes. Does
not know Jupyter, nor what a line is worth.
"""

from __future__ import annotations

import json.encoder
import os
import socket
from collections.abc import Iterator
from operator import is_
from pathlib import Path
from typing import Any

from repl_sandbox.guest.integrity import Fixed, Integrity
from repl_sandbox.guest.repl import Answer, Repl, seed_generators
from repl_sandbox.types import DIRECT, SIZE_BYTES, socket_path

# C functions, made before any line runs. Those of `json` are Python, which a line can change.
SCAN = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out
ENCODE = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # typeshed leaves it out
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)  # fmt: skip


def listen(folder: Path) -> socket.socket:
    """The socket on which the owner connects, once. Makes a file in `folder`."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path(folder, DIRECT)))
    listener.listen(1)
    return listener


def answers(repl: Repl, listener: socket.socket, integrity: Integrity) -> Iterator[socket.socket]:
    """Answer a question at each step, until the owner hangs up; yield the socket of the next one.

    A kernel whose own code has changed ends without an answer.
    """
    loop: Iterator[socket.socket] = LOOP.function(
        listener=listener,
        receive=listener.recv,
        send=listener.sendall,
        answer_to=_answer,
        repl=repl,
        checks=integrity.checks,
    )()
    return loop


# Any: names that `Fixed` makes constants.
def _loop(
    listener: Any, receive: Any, send: Any, answer_to: Any, repl: Any, checks: Any
) -> Iterator[socket.socket]:
    yield listener
    connection, _ = listener.accept()
    # From here on the same object is the connection: its methods are constants.
    dup2(connection.fileno(), listener.fileno(), False)
    connection.close()
    yield listener
    while len(size := receive(SIZE_BYTES, WHOLE)) == SIZE_BYTES:
        asked = receive(size_of(size, "big"), WHOLE)
        (number, mode, source), _end = SCAN(asked.decode("ascii"), 0)
        answer = answer_to(repl, mode, source)
        for fetch, holders, names, values in checks:
            if not all(map(is_, map(fetch, holders, names), values)):
                die(1)
        (body,) = ENCODE((number, *answer), 0)
        body = body.encode("ascii")
        send(len(body).to_bytes(SIZE_BYTES, "big") + body)
        yield listener


size_of, dup2, die, WHOLE = int.from_bytes, os.dup2, os._exit, socket.MSG_WAITALL
LOOP = Fixed.of(_loop)
"""Runs as long as the kernel. A line reaches the frame of whatever runs, and could give its local
names to something else: this one has none that outlives an answer."""


def _answer(repl: Repl, mode: str, source: str) -> Answer:
    match mode:
        case "evaluate":
            return repl.evaluate(source)
        case "seed":
            seed_generators(int(source))
            return Answer()
        case _:
            return repl.run(source)
