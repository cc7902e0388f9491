r"""Laws of vocabularies in the manner of SentencePiece: a text that goes on begins with no space.

They put a space before whatever they encode and take one off whatever they decode, which is right
for a document and wrong for each piece of a transcript.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from repl_rl.transcript.tokens import Context, TokenizerCodec

SPACE = "\u2581"
BYTES = [f"<0x{i:02X}>" for i in range(256)]
CODE = """\
Python 3.11.7 on linux
>>> def f(x):
...     y = x**2 - 4
...     return y
...
>>> solve(f(x), x)
[-2, 2]
>>> # all roots
>>> x = = 2
  File "<stdin>", line 1
SyntaxError: invalid syntax
"""
AWKWARD = [
    ">>>",
    "...",
    "[-2, 2]\n>>>",
    " Matrix([[1, 2]])\n",
    "    y = 2\n",
    '  File "<stdin>", line 1\n    x = = 2\n        ^\nSyntaxError: invalid syntax\n>>>',
    "\n>>>",
    "\n\n x",
    ") 0",
    "\t\u00e9\u4e2d\U0001f600\n",
    "</s><s> <think> [INST]",
    "",
    " ",
]


def pieces() -> list[str]:
    """Bytes, the characters of `CODE`, and merges of it, spaces of Llama's kind among them."""
    trainer = trainers.BpeTrainer(vocab_size=150, show_progress=False)
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    trained.train_from_iterator([CODE.replace(" ", SPACE)] * 2, trainer)
    words = sorted(trained.get_vocab(), key=lambda word: (len(word), word))
    return [word for word in words if "\n" not in word]


def byte_fallback() -> models.BPE:
    words = pieces()
    vocab = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *BYTES, *words])}
    merges = [
        (word[:at], word[at:])
        for word in words
        for at in range(1, len(word))
        if word[:at] in vocab and word[at:] in vocab
    ]
    return models.BPE(vocab=vocab, merges=merges, fuse_unk=True, byte_fallback=True)


def llama_decoder(*, has_strip: bool = True) -> decoders.Decoder:
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if has_strip else [])])


def normalizing() -> Tokenizer:
    """As files of Llama 2, Mistral v1 and Phi-3 have it."""
    tokenizer = Tokenizer(byte_fallback())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = llama_decoder()
    return tokenizer


def metaspace(scheme: str) -> Tokenizer:
    """As transformers makes them itself: `first` is its `legacy=False`, `always` the other."""
    tokenizer = Tokenizer(byte_fallback())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, split=False)
    tokenizer.decoder = llama_decoder(has_strip=scheme != "never")
    return tokenizer


def unigram() -> Tokenizer:
    words = [*pieces(), "\n"]
    scores = [(word, -10.0 / len(word)) for word in words]
    vocab = [("<unk>", -50.0), *((byte, -30.0) for byte in BYTES), *scores]
    tokenizer = Tokenizer(models.Unigram(vocab, 0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(SPACE, "always")]
    )
    return tokenizer


def joining() -> Tokenizer:
    """With a space before each text, and newlines that have tokens in common with what follows."""
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([CODE] * 2, trainer)
    return tokenizer


def stripping() -> Tokenizer:
    """No space before a text that is encoded, yet one taken off where it is decoded."""
    tokenizer = metaspace("never")
    tokenizer.decoder = llama_decoder()
    return tokenizer


MAKERS = {
    "normalizer": normalizing,
    "metaspace always": lambda: metaspace("always"),
    "metaspace first": lambda: metaspace("first"),
    "metaspace never": lambda: metaspace("never"),
    "unigram": unigram,
    "joined newlines": joining,
    "stripped": stripping,
}


def wrapped(backend: Tokenizer) -> Any:
    with warnings.catch_warnings():
        # Importing transformers is not what is tested here.
        warnings.simplefilter("ignore")
        from transformers import PreTrainedTokenizerFast
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    backend.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


@pytest.fixture(scope="module", params=MAKERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return wrapped(MAKERS[request.param]())


@pytest.fixture(scope="module")
def codec(tokenizer: Any) -> TokenizerCodec:
    return TokenizerCodec(tokenizer, eos_ids=[tokenizer.eos_token_id])


def raw(tokenizer: Any, ids: Sequence[int]) -> str:
    """What the tokenizer itself makes of ids."""
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


@pytest.mark.parametrize("text", AWKWARD)
def test_what_is_injected_reads_in_its_place_as_what_it_was(
    tokenizer: Any, codec: TokenizerCodec, text: str
) -> None:
    before = codec.encode("x = 1\n", is_first=True)
    whole = raw(tokenizer, before + codec.encode(text))
    assert whole == raw(tokenizer, before) + text


@pytest.mark.parametrize("text", AWKWARD)
def test_ids_have_the_text_that_they_have_in_their_place(codec: TokenizerCodec, text: str) -> None:
    assert codec.decode(codec.encode(text)) == text


def test_a_line_has_the_text_that_it_has_after_its_prompt(
    tokenizer: Any, codec: TokenizerCodec
) -> None:
    """Any ids: a policy samples spaces in one token with a name or apart, and halves of bytes."""
    rng = random.Random(0)
    prompt = codec.encode("\n>>>")
    ids = sorted(tokenizer.get_vocab().values())
    for line in ([rng.choice(ids) for _ in range(rng.randint(1, 6))] for _ in range(500)):
        assert raw(tokenizer, prompt + line) == raw(tokenizer, prompt) + codec.decode(line)


def test_the_first_text_begins_as_the_vocabulary_begins_a_document(
    tokenizer: Any, codec: TokenizerCodec
) -> None:
    text = "Python 3.11.7 on linux\n>>>"
    ids = codec.encode(text, is_trusted=True, is_first=True)
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    assert codec.decode(ids, is_first=True) == raw(tokenizer, ids)


def test_pieces_have_the_ids_that_they_have_in_one_text(
    tokenizer: Any, codec: TokenizerCodec
) -> None:
    """Where no merge goes over a newline."""
    if isinstance(tokenizer.backend_tokenizer.decoder, decoders.ByteLevel):
        return
    parts = CODE.splitlines(keepends=True)
    first, *rest = (codec.encode(part, is_first=not at) for at, part in enumerate(parts))
    assert sum(rest, first) == tokenizer.encode(CODE, add_special_tokens=False)


def test_no_cut_of_a_look_alike_gets_a_space(codec: TokenizerCodec) -> None:
    text = "a <think> <<think>think></s>b"
    assert codec.decode(codec.encode(text)) == text


def test_a_template_goes_on_without_a_space(tokenizer: Any, codec: TokenizerCodec) -> None:
    first = codec.encode_template("<s>[INST] ", is_first=True)
    assert first == tokenizer.encode("<s>[INST] ", add_special_tokens=False)
    whole = raw(tokenizer, first + codec.encode("2 + 2") + codec.encode_template(" [/INST]</s>"))
    assert whole == raw(tokenizer, first) + "2 + 2 [/INST]</s>"


def test_a_vocabulary_that_reads_texts_alike_everywhere_is_asked_as_it_is() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [*text.encode()]

    context = Context(encode, lambda ids: bytes(ids).decode())
    del asked[:]
    assert context.decode(context.encode(">>>")) == ">>>"
    assert asked == [">>>"]
