"""The text of each token, found without a model, in what a run keeps of its tokenizer.

    StoredTrajectory -> decode | None;  decode, ids -> texts, one a token

Knows token ids and files. Does not know models.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from repl_rl.errors import ConfigError
from repl_rl.records import Trajectory
from repl_rl.runs.folder import TOKENIZER, read_versions
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.transcript.format import source_of, spans, text_of
from repl_rl.transcript.tokens import ByteCodec, Decode

_FILE = "tokenizer.json"
_MAX_DECODER = 4096
"""Characters of a decoder, as JSON: ten times what a usual one has."""
_MAX_CHARS = 1 << 26
"""Most characters of the text of one line or observation, if all its tokens were as long as the
longest."""
_NEWLINES = ("\u010a", "<0x0A>", "\n")
"""A newline in vocabularies of bytes, with bytes to fall back on, and of characters."""
_OPEN_TOKENS = 32
"""Number of tokens in a row that may end inside a character. Bytes that are no UTF-8, and U+FFFD
itself, look like an incomplete character for ever."""


def find_decode(stored: StoredTrajectory) -> Decode | None:
    """The function that turns a trajectory's ids into text; None where it is not at hand."""
    if stored.origin is not None and stored.origin.tokenizer is None:
        return ByteCodec().decode
    for folder in _folders(stored):
        if (decode := read_decode(folder / _FILE)) is not None:
            return decode
    return None


def _folders(stored: StoredTrajectory) -> Iterator[Path]:
    """Yield what the run keeps, then a model's folder, which may hold another model by now."""
    if stored.run is not None:
        yield from (stored.run / TOKENIZER, stored.run / "checkpoints" / "final")
    if stored.origin is not None and stored.origin.tokenizer is not None:
        yield Path(stored.origin.tokenizer)
    elif stored.run is not None and (policy := read_versions(stored.run).get("policy")):
        yield Path(policy)


def read_decode(path: Path) -> Decode | None:
    """The decoder in a file; None where there is no such file, or no tokenizer in it.

    The file may be anybody's, so None as well for a decoder that holds a regular expression, which
    may take for ever, or that is longer than any usual one. Decoding raises ConfigError where the
    library panics, or where the text would fill the memory.
    """
    from tokenizers import Tokenizer  # of an extra; a text of bytes is read without it

    with _panics_as_config_errors(path):
        try:
            if not path.is_file() or (content := _what_decodes(path.read_text("utf-8"))) is None:
                return None
            tokenizer = Tokenizer.from_str(content)
        # The library raises nothing narrower for a file that is cut or foreign.
        except Exception:  # noqa: BLE001
            return None
    longest = max(map(len, tokenizer.get_vocab()), default=0)
    # Behind a newline, as `tokens.Context` does: some decoders strip a space from what comes first.
    before = [i for i in map(tokenizer.token_to_id, _NEWLINES) if i is not None][:1]

    def decode(ids: Sequence[int]) -> str:
        if len(ids) * longest > _MAX_CHARS:
            raise ConfigError(f"{len(ids):,} tokens of up to {longest:,} characters: {str(path)!r}")
        with _panics_as_config_errors(path):
            text = tokenizer.decode([*before, *ids], skip_special_tokens=False)
            return text[len(tokenizer.decode(before, skip_special_tokens=False)) :]

    return decode


def _what_decodes(content: str) -> str | None:
    """A tokenizer without the parts that only encode; None where its decoder must not run."""
    parts = json.loads(content)
    decoder = json.dumps(parts.get("decoder"))
    # A quote within a text has a backslash before it: here it is a key.
    if len(decoder) > _MAX_DECODER or '"Regex"' in decoder:
        return None
    only_encode = ("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding")
    return json.dumps(parts | dict.fromkeys(only_encode))


@contextlib.contextmanager
def _panics_as_config_errors(path: Path) -> Iterator[None]:
    """ConfigError where the library panics: its panic is no Exception and cannot be imported."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ConfigError(
            f"the tokenizer {str(path)!r} cannot be used: {error}; without that file tokens are "
            f"shown without their texts"
        ) from None


def token_texts(trajectory: Trajectory, decode: Decode) -> tuple[str, ...] | None:
    """Return the text that each token adds to the completion, [T]; None for another vocabulary.

    A token that ends inside a character adds nothing, the one that completes it adds it whole. The
    texts of a line's tokens join to its source, perhaps with that of a token that ends its turn.
    """
    texts: list[str] = []
    for span in spans(trajectory):
        ids = trajectory.completion_ids[span.start : span.stop]
        whole = decode(ids)
        if span.is_sampled and text_of(source_of(trajectory, span), ids, decode) is None:
            return None
        cut = list(_cut(ids, decode))
        # A vocabulary may join tokens in a way that no cut between them shows.
        texts += cut if "".join(cut) == whole else [*[""] * (len(ids) - 1), whole]
    return tuple(texts)


def _cut(ids: Sequence[int], decode: Decode) -> Iterator[str]:
    # With the tokens of the text before: some vocabularies drop the space that a text begins with.
    before, start, known = 0, 0, ""
    for stop in range(1, len(ids) + 1):
        text = decode(ids[before:stop])
        may_go_on = text.endswith("\ufffd") and stop < len(ids)
        if may_go_on and stop - start < _OPEN_TOKENS:
            yield ""
            continue
        yield text.removeprefix(known)
        before, start = start, stop
        known = decode(ids[before:start])
