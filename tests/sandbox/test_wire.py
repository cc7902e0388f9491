"""Bytes of a kernel are cut into replies within bounds, and read field by field."""

import json

import pytest

from repl_sandbox.host.wire import READ_BYTES, KernelConnection, WireError, pack, read_reply
from repl_sandbox.types import ExecStatus, Limits

SAID = {
    "status": "ok",
    "head": "h",
    "tail": "",
    "num_omitted": 0,
    "error_type": None,
    "value": None,
}


def reply(number: object = 1, **changes: object) -> bytes:
    return json.dumps([number, *(SAID | changes).values()]).encode()


def test_a_message_is_its_size_and_json_of_ascii() -> None:
    assert pack((7, "run", "'\ud800\u00e9'")) == b"\0\0\0\x1c" + b'[7, "run", "\'\\ud800\\u00e9\'"]'


def test_a_reply_is_read_field_by_field() -> None:
    read = read_reply(reply(value="5"), number=1, limits=Limits())
    assert (read.status, read.head, read.value) == (ExecStatus.OK, "h", "5")


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2},
        {"number": True},
        {"number": "1"},
        {"number": 1.0},
        {"more": 1},
        {"status": "killed"},
        {"status": None},
        {"head": None},
        {"tail": "x" * 7000},
        {"num_omitted": 1.5},
        {"num_omitted": 1 << 41},
        {"error_type": "E"},
        {"status": "error"},
        {"status": "error", "error_type": "E\n"},
        {"value": ["5"]},
    ],
)
def test_a_field_of_another_kind_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(WireError):
        read_reply(reply(**changes), number=1, limits=Limits())


@pytest.mark.parametrize("body", [b"", b"5", b"{}", b"[]", b"[" * 50000, b"\xff\xfe", b"[1"])
def test_what_is_no_reply_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        read_reply(body, number=1, limits=Limits())


def received(*chunks: bytes) -> tuple[list[bytes], bool]:
    """(replies that came through, whether the connection was refused)."""
    replies: list[bytes] = []
    refused: list[bool] = []

    class Probe(KernelConnection):
        def close(self) -> None:
            refused.append(True)

    connection = Probe(on_reply=replies.append, on_lost=lambda: None, max_reply_bytes=1000)
    for chunk in chunks:
        for start in range(0, len(chunk), READ_BYTES):
            piece = chunk[start : start + READ_BYTES]
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
    return replies, bool(refused)


def test_replies_survive_any_chunking() -> None:
    stream = b"\0\0\0\1a" + b"\0\0\1\x2c" + b"b" * 300 + b"\0\0\0\0" + b"\0\0\0\1c"
    bytewise = [stream[i : i + 1] for i in range(len(stream))]
    expected = ([b"a", b"b" * 300, b"", b"c"], False)
    assert received(stream) == received(*bytewise) == expected


@pytest.mark.parametrize("announced", [997, 1 << 20, (1 << 32) - 1])
def test_a_reply_out_of_bounds_is_refused_when_it_is_announced(announced: int) -> None:
    assert received(announced.to_bytes(4, "big")) == ([], True)
