r"""Text to token ids and back, and the two sets of ids at which a line can end.

Floor 2. Knows a tokenizer; does not know models, kernels or the loop. What was sampled is never
encoded again: `encode` is for prompts and observations, `decode` for the kernel and for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from repl_rl.errors import ConfigError


class Codec(Protocol):
    """What the loop needs of a tokenizer."""

    newline_ids: frozenset[int]
    """Ids whose text contains a newline and ends with it: where sampling stops."""
    eos_ids: frozenset[int]
    """Ids that end the whole sequence."""

    def encode(self, text: str, *, is_trusted: bool = False) -> list[int]:
        """Ids of a text: nothing added, look-alikes of control tokens kept as plain text.

        Trusted text (a prompt: ours) may use the ordinary added tokens of a vocabulary; in any
        other (an observation: the policy's doing) `<think>` and its like stay plain text too.
        """
        ...

    def encode_template(self, text: str) -> list[int]:
        """Ids of what a chat template wrote around a text: its control tokens are meant."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included; bytes that are no UTF-8 become U+FFFD."""
        ...


class ByteCodec:
    """UTF-8 bytes as ids 0-255 and an end-of-sequence id 256: for tests and for scripts."""

    newline_ids = frozenset({10})
    eos_ids = frozenset({256})

    def encode(self, text: str, *, is_trusted: bool = False) -> list[int]:
        return list(text.encode())

    def encode_template(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class TokenizerCodec:
    """A `transformers` tokenizer seen through `Codec`.

    Raises ConfigError if no id of its vocabulary ends in a newline: sampling could never stop.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerLike, *, eos_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_ids = frozenset(eos_ids)
        # Each id alone: 2 us, so 0.3 s for the largest vocabularies. A byte 0x0A never lies inside
        # a longer UTF-8 character, so the text of a lone id tells the truth about newlines.
        ids = list(tokenizer.get_vocab().values())  # there may be holes among them
        texts = tokenizer.batch_decode([[i] for i in ids])
        self.newline_ids = (
            frozenset(i for i, text in zip(ids, texts, strict=True) if text.endswith("\n"))
            - self.eos_ids
        )
        self.num_run_on = sum("\n" in text and not text.endswith("\n") for text in texts)
        """Ids with text after a newline. No line ends there: the source runs on."""
        if not self.newline_ids:
            raise ConfigError("this tokenizer has no token that ends in a newline, so no line ends")
        self._added = _added_tokens(tokenizer)

    def encode(self, text: str, *, is_trusted: bool = False) -> list[int]:
        if is_trusted:
            return self._encode(text)
        ids: list[int] = []
        start = 0
        while match := self._added.search(text, start):
            # Two texts with the look-alike cut after its first character: no part spells it.
            ids += self._encode(text[start : match.start() + 1])
            start = match.start() + 1
        return ids + self._encode(text[start:])

    def encode_template(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)


def _added_tokens(tokenizer: PreTrainedTokenizerLike) -> re.Pattern[str]:
    """Matches the ordinary added tokens that must not come about by their looks.

    Special ones are split by the tokenizer itself. Runs of white space are no control tokens, and
    one character cannot be taken apart.
    """
    texts = [
        str(token)
        for token in tokenizer.added_tokens_decoder.values()
        if not token.special and len(str(token).strip()) > 1
    ]
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


class AddedTokenLike(Protocol):
    """An entry of a vocabulary beside the model's own; `str` of it is its text."""

    special: bool


class PreTrainedTokenizerLike(Protocol):
    """What is used here of a `transformers` tokenizer."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedTokenLike]: ...

    def get_vocab(self) -> Mapping[str, int]: ...

    def encode(
        self, text: str, *, add_special_tokens: bool, split_special_tokens: bool
    ) -> list[int]: ...

    def decode(self, token_ids: list[int], *, clean_up_tokenization_spaces: bool) -> str: ...

    def batch_decode(self, sequences: list[list[int]]) -> list[str]: ...
