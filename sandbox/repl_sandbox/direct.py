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

from repl_sandbox.pristine import Pristine
from repl_sandbox.repl import Answer, Repl
from repl_sandbox.sockets import DIRECT, SIZE_BYTES, socket_path

# C functions, made before any line runs. Those of `json` are Python, which a line can change.
SCAN = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out
ENCODE = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # typeshed leaves it out
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)  # fmt: skip


def listen(folder: Path) -> socket.socket:
    """The socket on which the owner connects, once. Makes a file in `folder`."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(socket_path(folder, DIRECT)))
    door.listen(1)
    return door


def answers(repl: Repl, door: socket.socket, pristine: Pristine) -> Iterator[socket.socket]:
    """Answer a question at each step, until the owner hangs up; yield the socket of the next one.

    A kernel whose own code has changed ends without an answer. The names below are local, because
    a line could give the names of a module to something else.
    """
    yield door
    connection, _ = door.accept()
    door.close()
    receive, send, die = connection.recv, connection.sendall, os._exit
    scan, encode, size_of, whole = SCAN, ENCODE, int.from_bytes, socket.MSG_WAITALL
    every, each, same, checks = all, map, is_, pristine.checks
    yield connection
    while len(size := receive(SIZE_BYTES, whole)) == SIZE_BYTES:
        asked = receive(size_of(size, "big"), whole)
        (number, mode, source), _end = scan(asked.decode("ascii"), 0)
        answer = _answer(repl, mode, source)
        for fetch, holders, names, values in checks:
            if not every(each(same, each(fetch, holders, names), values)):
                die(1)
        (body,) = encode((number, *answer), 0)
        body = body.encode("ascii")
        send(body.__len__().to_bytes(SIZE_BYTES, "big") + body)
        yield connection


def _answer(repl: Repl, mode: str, source: str) -> Answer:
    match mode:
        case "evaluate":
            return repl.evaluate(source)
        case "seed":
            repl.seed(int(source))
            return Answer()
        case _:
            return repl.run(source)
