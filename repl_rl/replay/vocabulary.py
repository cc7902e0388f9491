"""Which text a token stands for, told without a model: by what a run keeps of its tokenizer.

    Place -> decode | None;  decode, ids -> texts, one a token

Knows token ids and files. Does not know models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from repl_rl.store import TOKENIZER, read_versions
from repl_rl.tokens import ByteCodec
from repl_rl.trajectory_file import Place
from repl_rl.transcript import spans
from repl_rl.types import Trajectory

Decode = Callable[[Sequence[int]], str]

_FILE = "tokenizer.json"
_OPEN_TOKENS = 32
"""How many may lie inside characters, one after another. What cannot be told from a character that
is not complete goes on forever otherwise: bytes that are no UTF-8, or U+FFFD itself."""


def find_decode(place: Place) -> Decode | None:
    """What made the ids of a trajectory into text; None where it is not at hand."""
    if place.origin is not None and place.origin.tokenizer is None:
        return ByteCodec().decode
    for folder in _folders(place):
        if (decode := read_decode(folder / _FILE)) is not None:
            return decode
    return None


def _folders(place: Place) -> Iterator[Path]:
    """What the run keeps comes first: a model's folder may hold another model by now."""
    if place.run is not None:
        yield from (place.run / TOKENIZER, place.run / "checkpoints" / "final")
    if place.origin is not None and place.origin.tokenizer is not None:
        yield Path(place.origin.tokenizer)
    elif place.run is not None and (policy := read_versions(place.run).get("policy")):
        yield Path(policy)


def read_decode(path: Path) -> Decode | None:
    """None where there is no file or no such name can be, and for one that is no tokenizer."""
    try:
        if not path.is_file():
            return None
        tokenizer = Tokenizer.from_file(str(path))
    # The library raises nothing narrower for a file that is cut or foreign.
    except Exception:  # noqa: BLE001
        return None
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


def token_texts(trajectory: Trajectory, decode: Decode) -> tuple[str, ...] | None:
    """What each token of the completion adds to its text, [T]; None for another vocabulary.

    A token that ends inside a character adds nothing, the one that completes it adds it whole. The
    texts of a line's tokens are its source.
    """
    texts: list[str] = []
    for span in spans(trajectory):
        ids = trajectory.completion_ids[span.start : span.stop]
        whole = decode(ids)
        if span.is_sampled and whole != trajectory.lines[span.line_index].source:
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
