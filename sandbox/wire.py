r"""Jupyter messages as lists of byte frames: signed, packed, unpacked.

    [identity..., b"<IDS|MSG>", signature, header, parent header, metadata, content]

Stands between a socket and whoever speaks on it, on both sides of the boundary. Pure. Knows
nothing of sockets or of what a message means. `jupyter_client.session.Session` reads and writes
the same frames; this module exists because Session spends about a millisecond per message and
trusts what it reads.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

# Made once: `json.dumps` with options makes an encoder per call, `json.loads` guesses an encoding.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode
EMPTY = b"{}"
DELIMITER = b"<IDS|MSG>"
PROTOCOL_VERSION = "5.3"
NUM_SIGNED_FRAMES = 4


class WireError(ValueError):
    """These frames are not a Jupyter message signed with our key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    header: Mapping[str, object]
    parent: Mapping[str, object] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)
    content: Mapping[str, object] = field(default_factory=dict)
    identities: tuple[bytes, ...] = ()
    """Routing prefix: set on what a ROUTER socket received, echoed in its reply."""


def make_header(msg_type: str, *, msg_id: str, session: str) -> dict[str, object]:
    return {
        "msg_id": msg_id,
        "session": session,
        "username": "repl",
        "date": datetime.now(UTC).isoformat(),
        "msg_type": msg_type,
        "version": PROTOCOL_VERSION,
    }


def pack(message: Message, *, key: bytes) -> list[bytes]:
    """The frames of `message`. Text may hold lone surrogates: JSON escapes them."""
    sections = (message.header, message.parent, message.metadata, message.content)
    parts = [_encode(section).encode() if section else EMPTY for section in sections]
    return [*message.identities, DELIMITER, _sign(key, parts), *parts]


def unpack(frames: Sequence[bytes], *, key: bytes) -> Message:
    """The message in `frames`; extra buffers are dropped. Raises WireError for anything else."""
    try:
        start = frames.index(DELIMITER)
    except ValueError:
        raise WireError("no delimiter among the frames") from None
    parts = frames[start + 2 : start + 2 + NUM_SIGNED_FRAMES]
    if len(parts) < NUM_SIGNED_FRAMES:
        raise WireError(f"{len(frames)} frames are too few for a message")
    if not hmac.compare_digest(frames[start + 1], _sign(key, parts)):
        raise WireError("wrong signature")
    header, parent, metadata, content = map(_load, parts)
    return Message(
        header=header,
        parent=parent,
        metadata=metadata,
        content=content,
        identities=tuple(frames[:start]),
    )


def _sign(key: bytes, parts: Sequence[bytes]) -> bytes:
    signer = _signer(key).copy()
    signer.update(b"".join(parts))
    return signer.hexdigest().encode()


@lru_cache(maxsize=1024)
def _signer(key: bytes) -> hmac.HMAC:
    """What HMAC computes of a key alone, kept: it is the half of a short message's signature."""
    return hmac.new(key, digestmod="sha256")


def _load(part: bytes) -> dict[str, object]:
    if part == EMPTY:
        return {}
    try:
        text = part.decode()
        section, end = _decode(text)
    # RecursionError: a few kilobytes of `[` are enough.
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from None
    if not isinstance(section, dict) or end != len(text):
        raise WireError("a section is no object")
    return section
