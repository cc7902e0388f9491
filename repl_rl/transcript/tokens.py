r"""Text to token ids and back, and the sets of ids at which a line can end or runs on.

Knows a tokenizer; does not know models, kernels or the loop. What was sampled is never
encoded again: `encode` is for prompts and observations, `decode` for the kernel and for people.
Both read a text as the continuation of another, unless `is_first` is set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from repl_rl.config.sections import RunOn
from repl_rl.errors import ConfigError
from repl_rl.records import runs_on

Encode = Callable[[str], list[int]]
Decode = Callable[[Sequence[int]], str]

LEADS = ("\n", ")", "0")
"""Leads to encode a text behind; the first one that shares no token with the text is used."""


class Codec(Protocol):
    """Tokenizer as the loop needs it.

    >>> codec: Codec = ByteCodec()
    >>> ids = codec.encode("1 + 1", is_trusted=False)
    >>> codec.decode(ids), codec.newline_ids
    ('1 + 1', frozenset({10}))
    """

    newline_ids: frozenset[int]
    """Ids whose text contains a newline and ends with it: where sampling stops."""
    eos_ids: frozenset[int]
    """Ids that end the whole sequence."""
    run_on_ids: frozenset[int]
    """Ids with text after their first newline, even another newline; none ends the sequence."""
    control_ids: frozenset[int]
    """Ids of control tokens: those added to a vocabulary's words, special or not."""

    def encode(self, text: str, *, is_trusted: bool = False, is_first: bool = False) -> list[int]:
        """Ids of a text: nothing added, look-alikes of control tokens kept as plain text.

        Trusted text, such as our prompt, may use the ordinary added tokens of a vocabulary. In any
        other text, such as an observation, `<think>` and its like stay plain text, too. With
        `is_first` the text begins as the vocabulary begins a document.
        """
        ...

    def encode_template(self, text: str, *, is_first: bool = False) -> list[int]:
        """Ids of text that a chat template wrote: control tokens in it count as such."""
        ...

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        """The text of ids, special tokens included; bytes that are no UTF-8 become U+FFFD."""
        ...


class ByteCodec:
    r"""UTF-8 bytes as ids 0-255 and an end-of-sequence id 256: for tests and for scripts.

    >>> ByteCodec().encode("1+1\n")
    [49, 43, 49, 10]
    """

    newline_ids = frozenset({10})
    eos_ids = frozenset({256})
    run_on_ids = frozenset[int]()
    control_ids: frozenset[int] = frozenset()  # no text spells id 256

    def encode(self, text: str, *, is_trusted: bool = False, is_first: bool = False) -> list[int]:
        return list(text.encode())

    def encode_template(self, text: str, *, is_first: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class TokenizerCodec:
    """A `transformers` tokenizer seen through `Codec`.

        tokenizer = AutoTokenizer.from_pretrained("MODEL")
        codec = TokenizerCodec(tokenizer, eos_ids=[tokenizer.eos_token_id])

    Raises ConfigError if no id of its vocabulary ends in a newline: sampling could never stop.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerLike, *, eos_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_ids = frozenset(eos_ids)
        # Each id alone: 2 us, so 0.3 s for the largest vocabularies. A byte 0x0A never lies inside
        # a longer UTF-8 character, so the text of a lone id tells the truth about newlines.
        ids = list(tokenizer.get_vocab().values())  # there may be holes among them
        texts = dict(zip(ids, tokenizer.batch_decode([[i] for i in ids]), strict=True))
        ends = frozenset(i for i, text in texts.items() if text.endswith("\n"))
        self.newline_ids = ends - self.eos_ids
        self.run_on_ids = frozenset(i for i, text in texts.items() if runs_on(text)) - self.eos_ids
        if not self.newline_ids:
            raise ConfigError("this tokenizer has no token that ends in a newline, so no line ends")
        controls = control_tokens(tokenizer)
        self.control_ids = self.eos_ids | controls.keys()
        ordinary = [str(token) for token in controls.values() if not token.special]
        self._added = re.compile("|".join(map(re.escape, ordinary)) or r"(?!)")
        """Matches the ordinary added tokens, which no untrusted text may produce by spelling them.
        The tokenizer itself splits special ones."""
        self._context = Context(self._encode, self._decode)
        self._template_context = Context(self._encode_template, self._decode)

    def encode(self, text: str, *, is_trusted: bool = False, is_first: bool = False) -> list[int]:
        ids: list[int] = []
        for piece in [text] if is_trusted else self._pieces(text):
            is_begun = bool(ids) or not is_first
            ids += self._context.encode(piece) if is_begun else self._encode(piece)
        return ids

    def _pieces(self, text: str) -> Iterator[str]:
        start = 0
        while match := self._added.search(text, start):
            # Cut the look-alike after its first character: neither part spells it.
            yield text[start : match.start() + 1]
            start = match.start() + 1
        yield text[start:]

    def encode_template(self, text: str, *, is_first: bool = False) -> list[int]:
        return self._encode_template(text) if is_first else self._template_context.encode(text)

    def decode(self, ids: Sequence[int], *, is_first: bool = False) -> str:
        return self._decode(ids) if is_first else self._context.decode(ids)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def _encode_template(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False)

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)


def forbidden_ids(codec: Codec, run_on: RunOn) -> frozenset[int]:
    """Ids that a policy of this vocabulary never samples, with `sampling.run_on` as it is.

    Raises ConfigError where every id that ends a line is one of them.
    """
    if run_on == "allow":
        return frozenset()
    if codec.newline_ids <= codec.run_on_ids:
        raise ConfigError(
            "sampling.run_on = 'forbid', but each token of this vocabulary that ends in a newline "
            "holds another one, so no line could end; expected 'allow'"
        )
    return codec.run_on_ids


class Context:
    r"""Encodes and decodes texts that go on after others, for which a tokenizer has no call.

    Most tokenizers read a text alike wherever it stands and need no help. Those like SentencePiece
    put a space before whatever they encode and take one off whatever they decode: Llama 2 has `>>>`
    as ` >>>`, and ` x` as `x`. They get each text behind a lead, such as a newline, whose ids and
    text are then cut off.
    """

    def __init__(self, encode: Encode, decode: Decode) -> None:
        self._encode = encode
        self._decode = decode
        newline = encode(LEADS[0])
        is_same = decode([*newline, *encode("x")]) == "\nx" and decode(encode(" x")) == " x"
        self._leads = {} if is_same else {lead: encode(lead) for lead in LEADS}
        self._before = [] if is_same else newline
        self._num_before = len(decode(self._before))

    def encode(self, text: str) -> list[int]:
        for lead, before in self._leads.items():
            ids = self._encode(lead + text)
            if ids[: len(before)] == before:  # else the lead shares a token with the text
                return ids[len(before) :]
        return self._encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._decode([*self._before, *ids])[self._num_before :]


def control_tokens(tokenizer: PreTrainedTokenizerLike) -> dict[int, AddedTokenLike]:
    """The added tokens by id, but for ordinary ones of white space or of a single character.

    Runs of white space are no control tokens, and one character cannot be taken apart.
    """
    return {
        i: token
        for i, token in tokenizer.added_tokens_decoder.items()
        if token.special or len(str(token).strip()) > 1
    }


class AddedTokenLike(Protocol):
    """An entry of a vocabulary beside the model's own; `str` of it is its text."""

    special: bool


class PreTrainedTokenizerLike(Protocol):
    """Part of a `transformers` tokenizer that is used here."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedTokenLike]: ...

    def get_vocab(self) -> Mapping[str, int]: ...

    def encode(
        self, text: str, *, add_special_tokens: bool, split_special_tokens: bool
    ) -> list[int]: ...

    def decode(self, token_ids: list[int], *, clean_up_tokenization_spaces: bool) -> str: ...

    def batch_decode(self, sequences: list[list[int]]) -> list[str]: ...
