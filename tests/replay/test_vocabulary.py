"""Laws of the texts of tokens: whole characters, the whole source, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models

from repl_rl.errors import ConfigError
from repl_rl.records import Line, LineOutcome, Origin, OutcomeKind, Scored, StopReason, Trajectory
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.trajectory_file import StoredTrajectory, append, places
from repl_rl.transcript.tokens import ByteCodec, Decode
from repl_rl.viewer.replay import scene as replay_vocabulary
from repl_rl.viewer.replay.scene import find_decode, read_decode, token_texts

BYTES = ByteCodec().decode
SILENT = OutcomeKind.OK_SILENT
ORIGIN = Origin(config="", setup=(), tokenizer="owner/name", isolation="", versions={})

MakeTrajectory = Callable[..., Trajectory]


def one_line(ids: Sequence[int], source: str) -> Trajectory:
    outcome = LineOutcome(kind=SILENT)
    line = Line(index=0, source=source, start=0, stop=len(ids), outcome=outcome)
    return Trajectory(
        problem_id="p",
        group_index=0,
        sibling_index=0,
        policy_version=0,
        seed=0,
        prompt_text=">>>",
        prompt_ids=(),
        completion_ids=tuple(ids),
        loss_mask=(True,) * len(ids),
        logprobs=(-1.0,) * len(ids),
        lines=(line,),
        stop_reason=StopReason.MAX_LINES,
    )


def vocabulary(*words: str, decoder: decoders.Decoder | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    tokenizer.decoder = decoder or decoders.Fuse()
    return tokenizer


def decode_of(path: Path) -> Decode:
    decode = read_decode(path)
    assert decode is not None
    return decode


# Texts


def test_each_token_has_the_text_it_adds(make_trajectory: MakeTrajectory) -> None:
    trajectory = make_trajectory([(" x\n", SILENT, "2\n>>>")])
    assert token_texts(trajectory, BYTES) == (" ", "x", "\n", "2", "\n", ">", ">", ">")


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("\u00e9", ("", "\u00e9")),
        ("\u4e2d!", ("", "", "\u4e2d", "!")),
        ("\U0001f600", ("", "", "", "\U0001f600")),
        ("a\u00e9\u4e2d", ("a", "", "\u00e9", "", "", "\u4e2d")),
    ],
)
def test_a_character_of_several_tokens_comes_with_the_last(
    text: str, texts: tuple[str, ...]
) -> None:
    assert token_texts(one_line(list(text.encode()), text), BYTES) == texts


def test_bytes_that_are_no_character_come_when_that_is_certain() -> None:
    ids = [0x61, 0xE4, 0xB8, 0x62]
    assert token_texts(one_line(ids, "a\ufffdb"), BYTES) == ("a", "", "", "\ufffdb")


def test_bytes_of_a_character_that_ends_with_the_line_are_shown() -> None:
    assert token_texts(one_line([0x61, 0xE4], "a\ufffd"), BYTES) == ("a", "\ufffd")


@given(st.lists(st.binary(max_size=6) | st.text(max_size=6).map(str.encode), max_size=12))
def test_the_texts_of_a_line_are_its_source(parts: list[bytes]) -> None:
    ids = list(b"".join(parts))
    texts = token_texts(one_line(ids, BYTES(ids)), BYTES)
    assert texts is not None
    assert len(texts) == len(ids)
    assert "".join(texts) == BYTES(ids)


def test_a_line_of_nothing_but_broken_bytes_has_its_source() -> None:
    ids = [0xE4] * 500
    texts = token_texts(one_line(ids, BYTES(ids)), BYTES)
    assert texts is not None
    assert "".join(texts) == "\ufffd" * 500


def test_a_space_that_texts_do_not_begin_with_is_there_where_they_go_on(tmp_path: Path) -> None:
    """Vocabularies with `\u2581` have such a space: the decoder drops the first one of a
    document."""
    tokenizer = vocabulary("\u2581x", "\u2581=", "\u25812", "\n", decoder=decoders.Metaspace())
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    trajectory = one_line([0, 1, 2, 3], " x = 2\n")
    assert token_texts(trajectory, decode_of(tmp_path / "tokenizer.json")) == (
        " x", " =", " 2", "\n",
    )  # fmt: skip


def test_where_no_cut_between_tokens_shows_the_last_has_all() -> None:
    def backwards(ids: Sequence[int]) -> str:
        return BYTES(ids)[::-1]

    assert token_texts(one_line([0x61, 0x62], "ba"), backwards) == ("", "ba")


def test_a_control_token_is_shown(tmp_path: Path) -> None:
    tokenizer = vocabulary(" x", "\n", "<|im_end|>")
    tokenizer.add_special_tokens(["<|im_end|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    decode = decode_of(tmp_path / "tokenizer.json")
    assert token_texts(one_line([0, 2, 1], " x<|im_end|>\n"), decode) == (" x", "<|im_end|>", "\n")


def test_another_vocabulary_has_no_texts(make_trajectory: MakeTrajectory) -> None:
    trajectory = make_trajectory([(" x\n", SILENT, ">>>"), (" y\n", SILENT, None)])
    assert token_texts(trajectory, lambda ids: BYTES([i + 1 for i in ids])) is None


def test_ids_beyond_a_vocabulary_have_no_texts(tmp_path: Path) -> None:
    vocabulary(" x", "\n").save(str(tmp_path / "tokenizer.json"))
    decode = decode_of(tmp_path / "tokenizer.json")
    assert token_texts(one_line([0, (1 << 31) - 1], " x\n"), decode) is None


# Files


@pytest.mark.parametrize("content", ["", "{", "{}", '{"model": {"type": "Magic"}}', "\x00\x7fELF"])
def test_a_file_that_is_no_tokenizer_has_no_texts(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    assert read_decode(tmp_path / "tokenizer.json") is None


@pytest.mark.parametrize(
    "decoder",
    [
        # Each tries every way through the text, and panics or takes the square of ages.
        decoders.Replace(Regex("^(1|1|1)*$"), "x"),
        decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex("(x+x+)+y"), "")]),
        decoders.Sequence([decoders.Fuse()] * 1000),
    ],
    ids=["panics", "within", "long"],
)
def test_a_decoder_that_may_not_end_is_not_run(tmp_path: Path, decoder: decoders.Decoder) -> None:
    vocabulary("1" * 40 + "b", decoder=decoder).save(str(tmp_path / "tokenizer.json"))
    assert read_decode(tmp_path / "tokenizer.json") is None


def test_what_only_encodes_is_not_even_read(tmp_path: Path) -> None:
    tokenizer = vocabulary("a", "b")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    parts = json.loads((tmp_path / "tokenizer.json").read_text())
    parts["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "((("}}
    parts["normalizer"] = {"type": "Magic"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    assert decode_of(tmp_path / "tokenizer.json")([0, 1]) == "ab"


def test_a_panic_of_the_library_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that no rule of ours has foreseen."""
    decoder = decoders.Replace(Regex("^(1|1|1)*$"), "x")
    vocabulary("1" * 40 + "b", decoder=decoder).save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr(replay_vocabulary, "_what_decodes", lambda content: content)
    with pytest.raises(ConfigError, match=r"the tokenizer '.*tokenizer.json' cannot be used: "):
        decode_of(tmp_path / "tokenizer.json")([0])


def test_a_text_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    vocabulary("a" * 100_000).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match="1,000,000 tokens of up to 100,000 characters"):
        decode_of(tmp_path / "tokenizer.json")([0] * 1_000_000)


def test_no_file_has_no_texts(tmp_path: Path) -> None:
    assert read_decode(tmp_path / "tokenizer.json") is None
    assert read_decode(tmp_path) is None


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str], None]:
    """Leave a tokenizer in a folder; its id 0 reads as the folder's name."""

    def write(folder: str) -> None:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        vocabulary(folder).save(str(tmp_path / folder / "tokenizer.json"))

    return write


@pytest.fixture
def place_of(
    tmp_path: Path,
    make_trajectory: MakeTrajectory,
    make_scored: Callable[..., Scored],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., StoredTrajectory]:
    """`place_of(origin, name)`: a trajectory in `tmp_path`, where everything happens."""
    monkeypatch.chdir(tmp_path)

    def write(origin: Origin | None, name: str = "run/trajectories/s.jsonl") -> StoredTrajectory:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        append(path, [make_scored(make_trajectory([("x\n", SILENT, None)]), 1.0)], origin=origin)
        return next(places(path))

    return write


def told(place: StoredTrajectory) -> str | None:
    decode = find_decode(place)
    return None if decode is None else decode([0])


FOLDERS = ("run/tokenizer", "run/checkpoints/final", "owner/name")


@pytest.mark.parametrize("first", range(3))
def test_what_a_run_keeps_comes_before_the_model_it_began_with(
    put: Callable[[str], None], place_of: Callable[..., StoredTrajectory], first: int
) -> None:
    for folder in FOLDERS[first:]:
        put(folder)
    assert told(place_of(ORIGIN)) == FOLDERS[first]


def test_a_broken_tokenizer_is_passed_over(
    tmp_path: Path, put: Callable[[str], None], place_of: Callable[..., StoredTrajectory]
) -> None:
    for folder in FOLDERS[:2]:
        put(folder)
    (tmp_path / "run/tokenizer/tokenizer.json").write_text("{")
    assert told(place_of(ORIGIN)) == "run/checkpoints/final"


def test_nowhere_means_none(place_of: Callable[..., StoredTrajectory]) -> None:
    assert find_decode(place_of(ORIGIN)) is None
    assert find_decode(place_of(None, "old/trajectories/s.jsonl")) is None


def test_bytes_need_no_file(
    place_of: Callable[..., StoredTrajectory], put: Callable[[str], None]
) -> None:
    put("run/tokenizer")
    decode = find_decode(place_of(replace(ORIGIN, tokenizer=None)))
    assert decode is not None
    assert decode([0x78]) == "x"


def test_without_an_origin_the_policy_of_the_run_is_looked_for(
    tmp_path: Path, put: Callable[[str], None], place_of: Callable[..., StoredTrajectory]
) -> None:
    put("policy")
    place = place_of(None)
    (tmp_path / "run/versions.json").write_text(json.dumps({"policy": "policy"}))
    assert told(place) == "policy"


def test_a_tokenizer_beside_a_file_that_lies_in_no_run_is_not_its_own(
    put: Callable[[str], None], place_of: Callable[..., StoredTrajectory]
) -> None:
    for folder in ("kept/tokenizer", "owner/name"):
        put(folder)
    assert told(place_of(ORIGIN, "kept/elsewhere/s.jsonl")) == "owner/name"


def test_a_run_keeps_its_tokenizer_where_it_is_looked_for(
    tmp_path: Path, put: Callable[[str], None], place_of: Callable[..., StoredTrajectory]
) -> None:
    folder = RunFolder(tmp_path / "run")
    put(str(folder.tokenizer.relative_to(tmp_path)))
    assert told(place_of(ORIGIN)) == "run/tokenizer"


@pytest.mark.parametrize("name", ["a" * 300, "a\0"])
def test_a_name_that_no_file_can_have_has_no_texts(tmp_path: Path, name: str) -> None:
    assert read_decode(tmp_path / name / "tokenizer.json") is None
