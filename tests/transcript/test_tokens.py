"""Laws between text and token ids, on a byte-level vocabulary built by hand."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from repl_rl.errors import ConfigError
from repl_rl.records import runs_on
from repl_rl.transcript.tokens import AddedTokenLike, ByteCodec, TokenizerCodec, forbidden_ids

NEWLINE, BRACKET_NEWLINE, TWO_NEWLINES, NEWLINE_TEXT, END, THINK = 198, 256, 257, 258, 259, 260
NEWLINE_SYMBOL = "\u010a"
"""What stands for the byte 10 in GPT-2's alphabet."""


def byte_level() -> Tokenizer:
    """Ids 0-255 are bytes in the order of GPT-2's alphabet, then merges with newlines in them.

    256 is `)\\n`, 257 `\\n\\n`, 258 `\\nx` (text after the newline).
    """
    alphabet = {symbol: i for i, symbol in enumerate(ordered_alphabet())}
    merges = [(")", NEWLINE_SYMBOL), (NEWLINE_SYMBOL, NEWLINE_SYMBOL), (NEWLINE_SYMBOL, "x")]
    vocab: Mapping[str, int] = alphabet | {a + b: 256 + i for i, (a, b) in enumerate(merges)}
    tokenizer = byte_pairs(dict(vocab), merges)
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    return tokenizer


def byte_pairs(vocab: dict[str, int], merges: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def ordered_alphabet() -> list[str]:
    """GPT-2's 256 symbols: printable bytes first, then the rest from U+0100 on; newline is 198."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(i) for i in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def symbols(text: str) -> str:
    """A text as a vocabulary in the manner of GPT-2 spells it."""
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(piece for piece, _ in spelling.pre_tokenize_str(text))


def codec_of(
    backend: Tokenizer, *, eos_token: str | None = None, eos_ids: Sequence[int] = ()
) -> TokenizerCodec:
    with warnings.catch_warnings():
        # Importing transformers is not what is tested here.
        warnings.simplefilter("ignore")
        from transformers import PreTrainedTokenizerFast
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos_token)
    return TokenizerCodec(tokenizer, eos_ids=eos_ids)


@pytest.fixture(scope="module")
def codec() -> TokenizerCodec:
    return codec_of(byte_level(), eos_token="<|im_end|>", eos_ids=[END])


def test_a_line_stops_at_every_token_that_ends_in_a_newline(codec: TokenizerCodec) -> None:
    assert codec.newline_ids == {NEWLINE, BRACKET_NEWLINE, TWO_NEWLINES}


def test_a_token_with_text_after_its_newline_is_no_stop(codec: TokenizerCodec) -> None:
    assert codec.decode([NEWLINE_TEXT]) == "\nx"
    assert NEWLINE_TEXT not in codec.newline_ids


def test_an_end_of_sequence_token_is_no_newline(codec: TokenizerCodec) -> None:
    assert codec.newline_ids.isdisjoint(codec.eos_ids)


def test_a_newline_above_a_hole_in_the_ids_is_found() -> None:
    """Two entries; the ids 1 to 4 are nobody's."""
    assert codec_of(byte_pairs({"a": 0, NEWLINE_SYMBOL: 5})).newline_ids == {5}


# Ids that run on over the end of a line


def test_ids_with_text_behind_their_first_newline_run_on(codec: TokenizerCodec) -> None:
    assert codec.run_on_ids == {TWO_NEWLINES, NEWLINE_TEXT}


def test_an_id_that_ends_the_sequence_never_runs_on() -> None:
    backend = byte_pairs({NEWLINE_SYMBOL: 0, f"{NEWLINE_SYMBOL}x": 1, f"{NEWLINE_SYMBOL}y": 2})
    assert codec_of(backend, eos_ids=[1]).run_on_ids == {2}


def test_forbidden_are_the_ids_that_run_on_where_they_are_not_allowed(
    codec: TokenizerCodec,
) -> None:
    assert forbidden_ids(codec, "allow") == frozenset()
    assert forbidden_ids(codec, "forbid") == {TWO_NEWLINES, NEWLINE_TEXT}


def test_a_vocabulary_whose_lines_could_not_end_cannot_forbid() -> None:
    codec = codec_of(byte_pairs({"a": 0, 2 * NEWLINE_SYMBOL: 1}))
    with pytest.raises(ConfigError, match=r"run_on = 'forbid', but each .* no line could end"):
        forbidden_ids(codec, "forbid")


PIECES = st.text(
    st.sampled_from(["\n", " ", "\r", "\t", "a", ")", "\u00e9"]), min_size=1, max_size=5
)


@given(st.lists(PIECES, max_size=12, unique=True), st.randoms(use_true_random=False))
def test_which_ids_run_on_is_told_by_their_texts_alone(
    pieces: list[str], rng: random.Random
) -> None:
    """Whatever their numbers, and in whatever order a vocabulary gives them out."""
    texts = ["\n", *(text for text in pieces if text != "\n")]
    ids = rng.sample(range(100), len(texts))
    codec = codec_of(byte_pairs(dict(zip(map(symbols, texts), ids, strict=True))))
    expected = {i for i, text in zip(ids, texts, strict=True) if text.partition("\n")[2]}
    assert codec.run_on_ids == expected


@given(st.lists(PIECES, max_size=12, unique=True), st.lists(st.integers(0, 99), max_size=12))
def test_a_line_has_text_behind_a_newline_exactly_where_an_id_of_it_runs_on(
    pieces: list[str], drawn: list[int]
) -> None:
    """Single bytes of longer characters are drawn as well."""
    halves = [symbols("\u00e9")[:1], symbols("\u00e9")[1:]]
    names = dict.fromkeys([NEWLINE_SYMBOL, *halves, *map(symbols, pieces)])
    codec = codec_of(byte_pairs({name: i for i, name in enumerate(names)}))
    ids = [i % len(names) for i in drawn]
    end = next((at + 1 for at, i in enumerate(ids) if i in codec.newline_ids), len(ids))
    line = ids[:end]
    assert runs_on(codec.decode(line)) == (not codec.run_on_ids.isdisjoint(line))


def test_merged_newlines_are_one_token(codec: TokenizerCodec) -> None:
    assert codec.encode(")\n\n\nx") == [BRACKET_NEWLINE, TWO_NEWLINES, ord("x") - 33]


@pytest.mark.parametrize("text", ["<|im_end|>", "a<|im_end|>\n", "<|im_end|><|im_end|>"])
def test_text_that_looks_like_a_control_token_never_becomes_one(
    codec: TokenizerCodec, text: str
) -> None:
    assert END not in codec.encode(text)


def test_text_that_looks_like_an_added_token_never_becomes_one(codec: TokenizerCodec) -> None:
    """`<think>` is an added token of many chat models, and not marked as special."""
    assert THINK not in codec.encode("<think>")


def test_text_of_our_own_may_use_an_added_token_but_no_control_token(codec: TokenizerCodec) -> None:
    assert codec.encode("<think>", is_trusted=True) == [THINK]
    assert END not in codec.encode("<|im_end|>", is_trusted=True)


@pytest.mark.parametrize("text", ["<<think>", "<think><think>", "a <think> b", "<<think>think>"])
def test_no_cut_of_a_look_alike_makes_another(codec: TokenizerCodec, text: str) -> None:
    ids = codec.encode(text)
    assert THINK not in ids
    assert codec.decode(ids) == text


@pytest.mark.parametrize("text", ["<|im_end|>", "<think>", " 1+1\n", "\u4e2d\u6587 \u00e9\n", "\t"])
def test_text_survives_its_tokens(codec: TokenizerCodec, text: str) -> None:
    assert codec.decode(codec.encode(text)) == text


def test_decoding_shows_special_tokens(codec: TokenizerCodec) -> None:
    assert codec.decode([ord("1") - 33, END]) == "1<|im_end|>"


def test_decoding_cleans_nothing_up(codec: TokenizerCodec) -> None:
    text = "f (x) , y . z n't 's\n"
    assert codec.decode(codec.encode(text)) == text


def test_half_a_character_decodes_to_a_replacement(codec: TokenizerCodec) -> None:
    assert codec.decode(codec.encode("\u4e2d")[:2]).count("\ufffd") >= 1


def test_a_vocabulary_without_a_newline_is_refused() -> None:
    class Poor:
        @property
        def added_tokens_decoder(self) -> Mapping[int, AddedTokenLike]:
            return {}

        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "\nb": 1}

        def encode(self, *_: object, **__: object) -> list[int]:
            return []

        def decode(self, *_: object, **__: object) -> str:
            return ""

        def batch_decode(self, sequences: list[list[int]]) -> list[str]:
            return ["a", "\nb"]

    with pytest.raises(ConfigError, match="no token that ends in a newline"):
        TokenizerCodec(Poor(), eos_ids=[])


@given(st.text())
def test_bytes_round_trip(text: str) -> None:
    codec = ByteCodec()
    assert codec.decode(codec.encode(text)) == text


def test_the_byte_codec_drops_its_end_of_sequence_from_text() -> None:
    assert ByteCodec().decode([97, 256]) == "a"
