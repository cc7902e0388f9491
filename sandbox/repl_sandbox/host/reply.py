"""Bytes from a kernel -> a reply whose every field has the type and size it should.

Stands between the socket and the supervisor. Pure. A reply that passes is well-formed, but need not
be true: code in a kernel owns the kernel and can write any reply.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from repl_sandbox.types import ExecStatus, Limits

STATUSES = {
    "ok": ExecStatus.OK,
    "incomplete": ExecStatus.INCOMPLETE,
    "error": ExecStatus.ERROR,
}
MAX_NAME_CHARS = 100
MAX_COUNT = 1 << 40


class WireError(ValueError):
    """These bytes are not the reply that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: ExecStatus
    head: str
    tail: str
    num_omitted: int
    error_type: str | None
    value: str | None


def read_reply(body: bytes, *, number: int, limits: Limits) -> Reply:
    """The reply to request `number`. Raises WireError for anything else."""
    try:
        answered, status_name, head, tail, num_omitted, error_type, value = json.loads(body)
    # RecursionError: a few kilobytes of `[` are enough. TypeError: not an array.
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"not a reply: {error}") from None
    if type(answered) is not int or answered != number:
        raise WireError("not the reply that was asked for")
    status = STATUSES.get(_text(status_name, "status", max_chars=MAX_NAME_CHARS))
    if status is None:
        raise WireError("an unknown status")
    error_type = _optional_text(error_type, "error type", max_chars=MAX_NAME_CHARS)
    if error_type is not None and not error_type.isidentifier():
        raise WireError("an error type that is no name")
    if (error_type is not None) != (status is ExecStatus.ERROR):
        raise WireError("an error without a name, or a name without an error")
    return Reply(
        status=status,
        head=_text(head, "head", max_chars=limits.max_output_chars),
        tail=_text(tail, "tail", max_chars=limits.max_output_chars),
        num_omitted=_count(num_omitted),
        error_type=error_type,
        value=_optional_text(value, "value", max_chars=limits.max_value_chars),
    )


def _text(text: object, name: str, *, max_chars: int) -> str:
    if not isinstance(text, str) or len(text) > max_chars:
        raise WireError(f"{name} is no text of at most {max_chars} characters")
    return text


def _optional_text(text: object, name: str, *, max_chars: int) -> str | None:
    return None if text is None else _text(text, name, max_chars=max_chars)


def _count(count: object) -> int:
    if type(count) is not int or not 0 <= count <= MAX_COUNT:
        raise WireError("what was left out is no count")
    return count
