"""The text of a transcript -> token ids, each piece encoded alone.

    Prompt, a line by hand, an observation -> ids

Knows formats and codecs. What was sampled has its ids already, and is never encoded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from repl_rl.errors import ConfigError
from repl_rl.transcript.format import Part, Prompt, TranscriptFormat
from repl_rl.transcript.tokens import Codec


def prompt_ids(prompt: Prompt, codec: Codec) -> list[int]:
    """Ids [P] of a prompt, which begins a document."""
    return _encode(prompt.parts, codec, is_first=True)


def _encode(parts: Iterable[Part], codec: Codec, *, is_first: bool) -> list[int]:
    ids: list[int] = []
    for part in parts:
        begins = is_first and not ids
        if part.is_template:
            ids += codec.encode_template(part.text, is_first=begins)
        else:
            ids += codec.encode(part.text, is_trusted=part.is_ours, is_first=begins)
    return ids


def turn_end(fmt: TranscriptFormat, codec: Codec) -> int | None:
    """The token that ends a line's turn in `fmt`; None where all lines share one turn.

    Raises ConfigError if the model does not stop at it: its lines would run on.
    """
    if not fmt.closing:
        return None
    token = codec.encode_template(fmt.closing)[0]
    if token not in codec.eos_ids:
        raise ConfigError(
            f"the chat template ends a turn with {codec.decode([token])!r}, which ends no sequence "
            f"of this model; name it in eos_token_id of its generation config, or take transcript "
            f"'chat'"
        )
    return token


def source_of(ids: Sequence[int], codec: Codec, *, turn_end: int | None) -> str:
    """The source of a sampled line: its text, or that of a message as a line of the REPL."""
    if turn_end is None:
        return codec.decode(ids)
    is_ended = list(ids[-1:]) == [turn_end]
    return message_source(codec.decode(ids[:-1] if is_ended else ids), is_ended=is_ended)


def message_source(text: str, *, is_ended: bool) -> str:
    r"""A message, without the token that ended it, as a line of a REPL.

    A source reads and runs alike whatever ended its line: `1 + 1<|im_end|>` is ` 1 + 1\n`.
    """
    return f" {text}\n" if is_ended else f" {text}"


def line_ids(source: str, fmt: TranscriptFormat, codec: Codec) -> list[int]:
    """Ids of a whole line that nobody sampled, given without the space after the prompt."""
    end = turn_end(fmt, codec)
    if end is not None:
        return [*codec.encode(source, is_trusted=False), end]
    # A blank line stays blank; any other begins with the space that follows the prompt.
    return codec.encode(f" {source}\n" if source else "\n", is_trusted=False)


def injected_ids(
    observation: str, fmt: TranscriptFormat, codec: Codec, *, after: Sequence[int]
) -> list[int]:
    """Ids of what stands after the tokens `after`, which end in a line.

    `observation` is as `render_observation` made it. A turn that the line has ended is not ended
    again.
    """
    ids = _encode(fmt.injected(observation), codec, is_first=False)
    is_ended = list(after[-1:]) == [turn_end(fmt, codec)]
    return ids[1:] if is_ended else ids
