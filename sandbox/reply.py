"""Frames from a kernel -> a reply whose every field has the type and size it should.

Stands between the socket and the supervisor. Pure. A reply that passes is well-formed, not true:
code in a kernel owns the kernel and can write any reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox.sockets import PAYLOAD_SOURCE
from sandbox.types import ExecStatus, Limits
from sandbox.wire import WireError, unpack

STATUSES = {
    "ok": ExecStatus.OK,
    "incomplete": ExecStatus.INCOMPLETE,
    "error": ExecStatus.ERROR,
}
MAX_NAME_CHARS = 100
MAX_COUNT = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: ExecStatus
    head: str
    tail: str
    num_omitted: int
    error_type: str | None
    value: str | None


def read_reply(frames: Sequence[bytes], *, key: bytes, msg_id: str, limits: Limits) -> Reply:
    """The reply to request `msg_id`. Raises WireError for anything that is not exactly that."""
    message = unpack(frames, key=key)
    if message.header.get("msg_type") != "execute_reply" or message.parent.get("msg_id") != msg_id:
        raise WireError("not the reply that was asked for")
    payload = message.content.get("payload")
    if not isinstance(payload, list) or len(payload) != 1 or not isinstance(payload[0], dict):
        raise WireError("not exactly one payload")
    said: dict[str, object] = payload[0]
    status = STATUSES.get(_text(said, "status", max_chars=MAX_NAME_CHARS))
    if status is None or said.get("source") != PAYLOAD_SOURCE:
        raise WireError("an unknown status or source")
    error_type = _optional_text(said, "error_type", max_chars=MAX_NAME_CHARS)
    if error_type is not None and not error_type.isidentifier():
        raise WireError("an error type that is no name")
    if (error_type is not None) != (status is ExecStatus.ERROR):
        raise WireError("an error without a name, or a name without an error")
    return Reply(
        status=status,
        head=_text(said, "head", max_chars=limits.max_output_chars),
        tail=_text(said, "tail", max_chars=limits.max_output_chars),
        num_omitted=_count(said, "num_omitted"),
        error_type=error_type,
        value=_optional_text(said, "value", max_chars=limits.max_value_chars),
    )


def _text(said: Mapping[str, object], name: str, *, max_chars: int) -> str:
    text = said.get(name)
    if not isinstance(text, str) or len(text) > max_chars:
        raise WireError(f"{name} is no text of at most {max_chars} characters")
    return text


def _optional_text(said: Mapping[str, object], name: str, *, max_chars: int) -> str | None:
    return None if said.get(name) is None else _text(said, name, max_chars=max_chars)


def _count(said: Mapping[str, object], name: str) -> int:
    count = said.get(name)
    if type(count) is not int or not 0 <= count <= MAX_COUNT:
        raise WireError(f"{name} is no count")
    return count
