"""The text of a transcript -> token ids, each piece encoded alone.

    Prompt, a line by hand, an observation -> ids

Knows formats and codecs. What was sampled has its ids already, and is never encoded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from repl_rl.errors import ConfigError
from repl_rl.records import Trajectory
from repl_rl.transcript.format import Part, Prompt, TranscriptFormat, line_of, strip_line
from repl_rl.transcript.tokens import Codec


def prompt_ids(prompt: Prompt, codec: Codec) -> list[int]:
    """Ids [P] of a prompt, which begins a document."""
    return _encode(prompt.parts, codec, is_first=True)


def _encode(parts: Sequence[Part], codec: Codec, *, is_first: bool) -> list[int]:
    """A template's text and the messages in it are one text to their tokenizer.

    They are encoded as one unless a message looks like a control token, and so as pieces else.
    """
    apart = _encode_apart(parts, codec, is_first=is_first)
    if not codec.control_ids or not any(part.is_template for part in parts):
        return apart
    text = "".join(part.text for part in parts)
    joint = codec.encode_template(text, is_first=is_first)
    return joint if _controls(joint, codec) == _controls(apart, codec) else apart


def _controls(ids: Iterable[int], codec: Codec) -> list[int]:
    return [token for token in ids if token in codec.control_ids]


def _encode_apart(parts: Iterable[Part], codec: Codec, *, is_first: bool) -> list[int]:
    ids: list[int] = []
    for part in parts:
        begins = is_first and not ids
        if part.is_template:
            ids += codec.encode_template(part.text, is_first=begins)
        else:
            ids += codec.encode(part.text, is_trusted=part.is_ours, is_first=begins)
    return ids


def message_source(text: str, *, is_ended: bool) -> str:
    r"""A message, without the token that ended it, as a line of a REPL.

    A source reads and runs alike whatever ended its line: `1 + 1<|im_end|>` is ` 1 + 1\n`.
    """
    return f" {text}\n" if is_ended else f" {text}"


@dataclass(frozen=True, slots=True)
class Encoding:
    """A transcript format in the tokens of one model.

        encoding = Encoding(fmt, codec)
        encoding.source_of(codec.encode(" 1+1\\n"))

    Raises ConfigError for turns at whose end the model does not stop: its lines would run on.
    """

    format: TranscriptFormat
    codec: Codec
    turn_end: int | None = field(init=False)
    """The token that ends a line's turn; None where all lines share one turn."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "turn_end", _turn_end(self.format, self.codec))

    @property
    def line_ends(self) -> frozenset[int]:
        """Tokens at which a line is whole."""
        ends = self.codec.newline_ids
        return ends if self.turn_end is None else ends | {self.turn_end}

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens at which sampling stops: those that end a line, or the whole sequence."""
        return self.codec.newline_ids | self.codec.eos_ids

    def source_of(self, ids: Sequence[int]) -> str:
        """The source of a sampled line: its text, or that of a message as a line of the REPL."""
        if self.turn_end is None:
            return self.codec.decode(ids)
        is_ended = self._ends_turn(ids)
        return message_source(self.codec.decode(ids[:-1] if is_ended else ids), is_ended=is_ended)

    def line_ids(self, source: str) -> list[int]:
        """Ids of a whole line that nobody sampled, given as `format.line_of` makes it."""
        if self.turn_end is None:
            return self.codec.encode(source, is_trusted=False)
        return [*self.codec.encode(strip_line(source), is_trusted=False), self.turn_end]

    def typed_ids(self, text: str) -> list[int]:
        """Ids of a line that somebody writes, without its newline. ConfigError if it is not one
        line."""
        if "\n" in text:
            raise ConfigError(f"{text[:60]!r} holds a newline; expected one line")
        try:
            return self.line_ids(line_of(text))
        except UnicodeEncodeError:
            raise ConfigError(
                f"{text[:60]!r} holds a surrogate without its other half; expected text"
            ) from None

    def injected_ids(self, observation: str, *, after: Sequence[int]) -> list[int]:
        """Ids of what stands after the tokens `after`, which end in a line.

        `observation` is as `render_observation` made it. A turn that the line has ended is not
        ended again.
        """
        ids = _encode(self.format.injected(observation), self.codec, is_first=False)
        return ids[1:] if self._ends_turn(after) else ids

    def thought_end(self, after: Sequence[Part]) -> str:
        """The text at which a thought is over: the first control token of what follows it."""
        closing = after[0].text
        controls = _controls(self.codec.encode_template(closing), self.codec)
        return self.codec.decode(controls[:1]) or closing.strip()

    def after_thought(self, after: Sequence[Part], source: str) -> tuple[list[int], str]:
        """(ids, text) of what stands between a thought and the first line.

        A thought that the policy has ended is not ended again.
        """
        marker, closing = self.thought_end(after), after[0].text
        if marker in source:
            beyond = source.partition(marker)[2]
            closing = closing.partition(marker)[2].removeprefix(beyond)
        parts = [Part(closing, is_template=True), *after[1:]]
        return _encode(parts, self.codec, is_first=False), "".join(part.text for part in parts)

    def ids_before_lines(self, prompt: Prompt, trajectory: Trajectory) -> list[int]:
        """Ids of what is injected before the first line; none where the prompt asks for it."""
        thought = trajectory.thought
        return [] if thought is None else self.after_thought(prompt.after, thought.source)[0]

    def _ends_turn(self, ids: Sequence[int]) -> bool:
        return list(ids[-1:]) == [self.turn_end]


def _turn_end(fmt: TranscriptFormat, codec: Codec) -> int | None:
    if not fmt.closing:
        return None
    token = codec.encode_template(fmt.closing)[0]
    if token not in codec.eos_ids:
        raise ConfigError(
            f"the chat template ends a turn with {codec.decode([token])!r}, which ends no sequence "
            f"of this model; name it in eos_token_id of its generation config, or give transcript "
            f"= 'chat'"
        )
    return token
