"""Our frames are Jupyter's frames, and nothing else passes for them."""

import pytest
from jupyter_client.session import Session

from sandbox.reply import read_reply
from sandbox.types import ExecStatus, Limits
from sandbox.wire import DELIMITER, Message, WireError, make_header, pack, unpack
from sandbox.zmtp import GREETING, DealerProtocol, encode

KEY = b"secret"
SAID = {
    "source": "repl",
    "status": "ok",
    "head": "h",
    "tail": "",
    "num_omitted": 0,
    "error_type": None,
    "value": None,
}


def request() -> Message:
    header = make_header("execute_request", msg_id="1", session="s")
    return Message(header=header, content={"code": "x = '\ud800'"}, identities=(b"id",))


def test_jupyter_reads_what_we_write():
    session = Session(key=KEY)
    identities, frames = session.feed_identities(pack(request(), key=KEY))
    message = session.deserialize(frames)
    assert identities == [b"id"]
    assert message["msg_type"] == "execute_request"
    assert message["content"] == {"code": "x = '\ud800'"}


def test_we_read_what_jupyter_writes():
    session = Session(key=KEY)
    frames = session.serialize(session.msg("execute_request", {"code": "1"}), ident=b"id")
    message = unpack(frames, key=KEY)
    assert message.header["msg_type"] == "execute_request"
    assert (message.content, message.identities) == ({"code": "1"}, (b"id",))


@pytest.mark.parametrize("broken", [0, 1, 2, 3, 4, 5])
def test_a_changed_frame_is_refused(broken):
    frames = pack(Message(header={"a": 1}), key=KEY)
    frames[broken] += b" "
    with pytest.raises(WireError):
        unpack(frames, key=KEY)


@pytest.mark.parametrize("frames", [[], [DELIMITER], [DELIMITER, b"", b"{}"]])
def test_too_few_frames_are_refused(frames):
    with pytest.raises(WireError):
        unpack(frames, key=KEY)


def reply(**changes: object) -> list[bytes]:
    header = make_header("execute_reply", msg_id="r", session="s")
    content = {"payload": [SAID | changes]}
    return pack(Message(header=header, parent={"msg_id": "1"}, content=content), key=KEY)


def test_a_reply_is_read_field_by_field():
    read = read_reply(reply(value="5"), key=KEY, msg_id="1", limits=Limits())
    assert (read.status, read.head, read.value) == (ExecStatus.OK, "h", "5")


@pytest.mark.parametrize(
    "changes",
    [
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
        {"source": "page"},
    ],
)
def test_a_field_of_another_kind_is_refused(changes):
    with pytest.raises(WireError):
        read_reply(reply(**changes), key=KEY, msg_id="1", limits=Limits())


def received(*chunks: bytes) -> tuple[list[list[bytes]], bool]:
    """(messages that came through, whether the connection was refused)."""
    messages: list[list[bytes]] = []
    refused: list[bool] = []

    class Probe(DealerProtocol):
        def close(self) -> None:
            refused.append(True)

    protocol = Probe(on_message=messages.append, on_lost=lambda: None, max_message_bytes=1000)
    for chunk in chunks:
        protocol.data_received(chunk)
    return messages, bool(refused)


def test_frames_survive_any_chunking():
    stream = GREETING + b"\x04\x06\x05READY" + encode([b"a", b"b" * 300]) + encode([b"c"])
    bytewise = [stream[i : i + 1] for i in range(len(stream))]
    expected = ([[b"a", b"b" * 300], [b"c"]], False)
    assert received(stream) == received(*bytewise) == expected


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 200 OK" + bytes(60),
        GREETING + encode([b"x" * 1001]),
        GREETING + encode([b"x" * 400] * 3),
        GREETING + encode([b""] * 17),
        GREETING + b"\x02" + (1 << 62).to_bytes(8, "big"),
        GREETING + b"\xff\x00",
        GREETING + b"\x04\x00" * 2,
        GREETING + b"\x05\x00",
    ],
)
def test_a_peer_out_of_bounds_is_refused(stream):
    assert received(stream) == ([], True)
