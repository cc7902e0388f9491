"""Laws of what is known of a trajectory: the update's own numbers, its siblings, its tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from repl_rl.config.sections import GRPOConfig, Scale
from repl_rl.credit.advantages import advantage_rows, load_credit
from repl_rl.errors import ConfigError
from repl_rl.records import Branch, Line, LineOutcome, Origin, OutcomeKind, Scored, Trajectory
from repl_rl.rollout.observations import Answers
from repl_rl.runs.trajectory_file import StoredTrajectory, append, places
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.viewer.replay.annotated import Annotated, annotate, read

OK, ERROR = OutcomeKind.OK_SILENT, OutcomeKind.NAME_ERROR
BYTES = Origin(config="", setup=(), tokenizer=None, isolation="", versions={})
SCALES: tuple[Scale, ...] = ("group", "batch", "none")

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]


@pytest.fixture
def step(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> list[Scored]:
    """Two groups of three, in turns: outcomes 1, 0, None and 0.8, -0.6, 0."""
    outcomes = (1.0, 0.8, 0.0, -0.6, None, 0.0)
    made = []
    for i, outcome in enumerate(outcomes):
        parts = [(f" x = {i}\n", OK, ">>>"), (" y\n", ERROR, "NameError\n>>>")][: 1 + i % 2]
        trajectory = make_trajectory(parts, group_index=i % 2, sibling_index=i // 2)
        made.append(make_scored(trajectory, outcome, [0.0, -0.1][: 1 + i % 2]))
    return made


def annotated(
    path: Path, scored: list[Scored], config: GRPOConfig | None = None, origin: Origin = BYTES
) -> list[Annotated]:
    append(path, scored, origin=origin)
    return list(annotate(places(path), config or GRPOConfig()))


def advantages(item: Annotated) -> list[float]:
    return [entry.advantage for entry in item.ledger.entries]


# Advantages


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("credit", ["line_local", "return_to_go", "outcome"])
def test_advantages_are_those_of_the_whole_step(
    tmp_path: Path, step: list[Scored], scale: Scale, credit: str
) -> None:
    config = GRPOConfig(scale=scale, credit=credit)
    together = sorted(step, key=lambda item: item.trajectory.group_index)
    rows = dict(zip(map(id, together), advantage_rows(together, load_credit(config)), strict=True))
    for item, scored in zip(annotated(tmp_path / "s.jsonl", step, config), step, strict=True):
        starts = [line.start for line in scored.trajectory.lines]
        assert advantages(item) == [rows[id(scored)][start] for start in starts]


@pytest.mark.parametrize(
    ("scale", "divisor"), [("group", 0.70710678), ("batch", 0.5), ("none", 1.0)]
)
def test_the_scale_is_that_of_the_config(
    tmp_path: Path,
    make_trajectory: MakeTrajectory,
    make_scored: MakeScored,
    scale: Scale,
    divisor: float,
) -> None:
    """Outcomes 1, 0 and 0, 0: deviations 0.7071 of the first group and 0.5 of all four."""
    trajectory = make_trajectory([("x\n", OK, None)])
    step = [
        make_scored(replace(trajectory, group_index=i // 2), outcome)
        for i, outcome in enumerate((1.0, 0.0, 0.0, 0.0))
    ]
    items = annotated(tmp_path / "s.jsonl", step, GRPOConfig(scale=scale))
    expected = 0.5 / divisor
    assert [advantages(item)[0] for item in items] == pytest.approx(
        [expected, -expected, 0.0, 0.0], rel=1e-3
    )


def test_a_step_is_not_scaled_by_another_in_its_file(tmp_path: Path, step: list[Scored]) -> None:
    config = GRPOConfig(scale="batch")
    later = [
        replace(item, trajectory=replace(item.trajectory, policy_version=1)) for item in step[:4]
    ]
    alone = annotated(tmp_path / "alone.jsonl", later, config)
    both = annotated(tmp_path / "both.jsonl", [*step, *later], config)
    assert list(map(advantages, both[6:])) == list(map(advantages, alone))


def test_a_run_is_not_scaled_by_another_in_its_file(tmp_path: Path, step: list[Scored]) -> None:
    config = GRPOConfig(scale="batch")
    alone = annotated(tmp_path / "alone.jsonl", step[:4], config)
    annotated(tmp_path / "both.jsonl", step, config)
    both = annotated(tmp_path / "both.jsonl", step[:4], config, replace(BYTES, isolation="other"))
    assert list(map(advantages, both[6:])) == list(map(advantages, alone))


def test_shares_are_of_the_group(tmp_path: Path, step: list[Scored]) -> None:
    items = annotated(tmp_path / "s.jsonl", step)
    assert sum(item.ledger.share for item in items[::2]) == pytest.approx(1.0)
    assert sum(item.ledger.share for item in items[1::2]) == pytest.approx(1.0)
    assert [item.ledger.num_siblings for item in items] == [3] * 6


# What stands beside it


def test_siblings_are_those_of_its_group_and_itself(tmp_path: Path, step: list[Scored]) -> None:
    items = annotated(tmp_path / "s.jsonl", step)
    assert [item.id for item in items] == [f"s:{n}" for n in range(1, 7)]
    assert items[0].siblings == items[4].siblings == ("s:1", "s:3", "s:5")
    assert items[1].siblings == ("s:2", "s:4", "s:6")


def test_siblings_are_looked_for_in_the_same_file(tmp_path: Path, step: list[Scored]) -> None:
    append(tmp_path / "a.jsonl", step[:2], origin=BYTES)
    append(tmp_path / "b.jsonl", step, origin=BYTES)
    wanted = [next(places(tmp_path / f"{name}.jsonl")) for name in "aba"]
    found = [item.siblings for item in annotate(wanted, GRPOConfig())]
    assert found == [("a:1",), ("b:1", "b:3", "b:5"), ("a:1",)]


def test_the_order_asked_for_is_kept(tmp_path: Path, step: list[Scored]) -> None:
    append(tmp_path / "s.jsonl", step, origin=BYTES)
    wanted = list(places(tmp_path / "s.jsonl"))
    items = annotate([wanted[n] for n in (5, 0, 4, 1)], GRPOConfig())
    assert [item.id for item in items] == ["s:6", "s:1", "s:5", "s:2"]


def test_texts_of_tokens_are_known_where_the_vocabulary_is(
    tmp_path: Path, step: list[Scored]
) -> None:
    (first, *_) = annotated(tmp_path / "s.jsonl", step)
    assert first.token_texts == (*" x = 0\n", *">>>")


@pytest.mark.parametrize("origin", [None, replace(BYTES, tokenizer="no/such")])
def test_texts_of_tokens_are_not_guessed(
    tmp_path: Path, step: list[Scored], origin: Origin | None
) -> None:
    append(tmp_path / "s.jsonl", step, origin=origin)
    assert next(annotate(places(tmp_path / "s.jsonl"), GRPOConfig())).token_texts is None


def test_each_part_of_a_file_has_its_own_vocabulary(tmp_path: Path, step: list[Scored]) -> None:
    path = tmp_path / "s.jsonl"
    for origin in (replace(BYTES, tokenizer="no/such"), BYTES, None):
        append(path, step[:1], origin=origin)
    items = annotate(places(path), GRPOConfig())
    assert [item.token_texts is not None for item in items] == [False, True, False]


def test_a_model_is_asked_about_the_whole_completion(tmp_path: Path, step: list[Scored]) -> None:
    append(tmp_path / "s.jsonl", step[:1], origin=BYTES)

    def score(trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(-float(i) for i in trajectory.completion_ids)

    (item,) = annotate(places(tmp_path / "s.jsonl"), GRPOConfig(), score=score)
    assert item.trainer_logprobs == tuple(-float(i) for i in b" x = 0\n>>>")


def test_the_surprise_at_an_answer_is_its_mean_over_tokens(
    tmp_path: Path, step: list[Scored]
) -> None:
    """The second line alone has an answer, of ten bytes: nine cost 1 nat, its newline 11."""
    append(tmp_path / "s.jsonl", step[1:2], origin=BYTES)

    def score(trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(-11.0 if i == ord("\n") else -1.0 for i in trajectory.completion_ids)

    answers = Answers(Encoding(PYTHON, ByteCodec()), setup=())
    stored = list(places(tmp_path / "s.jsonl"))
    (item,) = annotate(stored, GRPOConfig(), score=score, answers=answers)
    assert item.surprises == {1: 2.0}
    (item,) = annotate(stored, GRPOConfig(), answers=answers)
    assert item.surprises == {}


def test_without_a_model_there_are_no_log_probabilities_of_one(
    tmp_path: Path, step: list[Scored]
) -> None:
    assert annotated(tmp_path / "s.jsonl", step)[0].trainer_logprobs is None


# What is refused


def _line(**changes: Any) -> tuple[Line, ...]:
    fields: dict[str, Any] = {"index": 0, "source": "x\n", "start": 0, "stop": 2}
    return (Line(**(fields | {"outcome": LineOutcome(kind=OK)} | changes)),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_mask": (True,)}, "1 mask entries and 2 logprobs for 2 tokens"),
        ({"logprobs": ()}, "2 mask entries and 0 logprobs for 2 tokens"),
        ({"loss_mask": (True, False)}, "a loss mask that disagrees with its lines"),
        ({"lines": _line(stop=3)}, "lines that overlap or lie beyond its tokens"),
        ({"lines": _line(stop=10**12)}, "lines that overlap or lie beyond its tokens"),
        ({"lines": _line(start=-1, stop=1)}, "lines that overlap or lie beyond its tokens"),
        ({"prompt_ids": ()}, "no prompt ids, so nothing stands before its first token"),
        ({"lines": _line(index=7)}, "lines that are not numbered in order"),
        ({"completion_ids": (-1, 10)}, "a token id that is not within 0 to 2147483647"),
        ({"completion_ids": (1 << 31, 10)}, "a token id that is not within 0 to 2147483647"),
        ({"prompt_ids": (-1,)}, "a token id that is not within 0 to 2147483647"),
        ({"lines": ()}, "1 line rewards for 0 lines"),
        ({"branch": Branch(sibling_index=0, num_lines=2, seed=0)}, "2 copied lines of 1"),
        ({"branch": Branch(sibling_index=0, num_lines=0, seed=0)}, "0 copied lines of 1"),
    ],
)
def test_a_record_whose_lists_disagree_is_refused(
    tmp_path: Path,
    make_trajectory: MakeTrajectory,
    make_scored: MakeScored,
    changes: dict[str, Any],
    message: str,
) -> None:
    scored = make_scored(make_trajectory([("x\n", OK, None)]), 1.0)
    if "lines" in changes and not changes["lines"]:
        changes = changes | {"loss_mask": (False, False), "logprobs": (0.0, 0.0)}
    bent = replace(scored, trajectory=replace(scored.trajectory, **changes))
    append(tmp_path / "s.jsonl", [scored, bent])
    first, second = places(tmp_path / "s.jsonl")
    assert read(first) == scored
    with pytest.raises(ConfigError, match=rf"^s:2 of .*s\.jsonl is a trajectory with {message}"):
        read(second)


def test_a_line_without_a_token_is_refused(
    tmp_path: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectory = make_trajectory([("x\n", OK, None), ("", OK, None)])
    append(tmp_path / "s.jsonl", [make_scored(trajectory, 1.0)])
    with pytest.raises(ConfigError, match="with a line without a token"):
        read(next(places(tmp_path / "s.jsonl")))


def test_a_sibling_whose_lists_disagree_is_refused_too(tmp_path: Path, step: list[Scored]) -> None:
    bent = replace(step[2], trajectory=replace(step[2].trajectory, logprobs=()))
    append(tmp_path / "s.jsonl", [step[0], bent], origin=BYTES)
    with pytest.raises(ConfigError, match="s:2 of "):
        next(annotate(places(tmp_path / "s.jsonl"), GRPOConfig()))


def test_a_trajectory_that_was_called_off_before_its_first_line_is_shown(
    tmp_path: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    (item,) = annotated(tmp_path / "s.jsonl", [make_scored(make_trajectory([]), None)])
    assert (item.ledger.entries, item.token_texts) == ((), ())


def test_a_file_that_was_changed_is_not_mixed_up(tmp_path: Path, step: list[Scored]) -> None:
    path = tmp_path / "s.jsonl"
    append(path, step, origin=BYTES)
    last: StoredTrajectory = list(places(path))[-1]
    path.unlink()
    append(path, step[:2], origin=BYTES)
    with pytest.raises(ConfigError, match="was changed while it was read; try again"):
        next(annotate([last], GRPOConfig()))


def test_rows_of_another_writer_are_annotated_alike(tmp_path: Path, step: list[Scored]) -> None:
    mine = annotated(tmp_path / "s.jsonl", step)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "s.jsonl"
    records = [{"format": 2, "origin": msgspec.to_builtins(BYTES)}]
    records += [{"scored": msgspec.to_builtins(item), "format": 2} for item in step]
    other.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    assert list(annotate(places(other), GRPOConfig())) == mine


@pytest.mark.parametrize(
    "changes", [{"outcome_reward": 1e101}, {"line_rewards": (-1e101,)}, {"terms": {"x": 1e308}}]
)
def test_rewards_that_no_arithmetic_survives_are_refused(
    tmp_path: Path, step: list[Scored], changes: dict[str, Any]
) -> None:
    huge = replace(step[0], reward=replace(step[0].reward, **changes))
    append(tmp_path / "s.jsonl", [huge])
    with pytest.raises(ConfigError, match=r"with a reward that is not within -1e\+100 to 1e\+100"):
        read(next(places(tmp_path / "s.jsonl")))


def test_a_huge_reward_elsewhere_in_the_step_is_refused_too(
    tmp_path: Path, step: list[Scored]
) -> None:
    huge = replace(step[1], reward=replace(step[1].reward, outcome_reward=1.7e308))
    with pytest.raises(ConfigError, match=r"s:2 of .* with a reward that is not within"):
        annotated(tmp_path / "s.jsonl", [step[0], huge], GRPOConfig(scale="batch"))
