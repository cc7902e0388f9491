"""Laws of exports: a record of another trainer holds the trajectory, token for token."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import repl_rl
from record_readers import Read, read_skyrl, read_verl, written
from repl_rl import export
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Scored, StopReason, Trajectory
from tree_kit import three_leaves

Make = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OUTPUT, SILENT, WRONG = OutcomeKind.OK_OUTPUT, OutcomeKind.OK_SILENT, OutcomeKind.NAME_ERROR
PARTS = ((" y\n", WRONG, "no\n>>>"), (" 1\n", OUTPUT, "1\n>>>"), (" 2\n", OUTPUT, None))
LENGTHS = (3, 6, 3, 5, 3)
"""Of `PARTS` in bytes: sampled, injected, and so on."""

READERS: dict[str, Callable[[Scored, list[float]], Read]] = {
    "verl": lambda one, row: read_verl(export.verl(one, row)),
    "skyrl": lambda one, row: read_skyrl(export.skyrl([one], [row], as_rewards=True), 0),
}
REWARDS: dict[str, Callable[[Scored, list[float]], float]] = {
    "verl": lambda one, row: export.verl(one, row)["reward_score"],
    "verl, lines": lambda one, row: sum(export.verl(one, row)["extra_fields"]["line_rewards"]),
    "skyrl": lambda one, row: sum(export.skyrl([one], [row])["rewards"][0]),
}
EVERY_READER = pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())


def pair(make: Make, score: MakeScored) -> list[Scored]:
    """Two siblings: one is right after an error of -0.25, the other one says 3 and is wrong."""
    first = make(PARTS, sibling_index=0)
    second = make(((" 3\n", OUTPUT, None),), sibling_index=1)
    return [score(first, 1.0, (-0.25, 0.0, 0.0)), score(second, 0.0, (0.0,))]


@EVERY_READER
def test_what_was_written_is_read_again(
    read: Callable[[Scored, list[float]], Read],
    make_trajectory: Make,
    make_scored: MakeScored,
) -> None:
    scored = pair(make_trajectory, make_scored)
    for one, row in zip(scored, repl_rl.advantages(scored), strict=True):
        assert any(row)
        assert read(one, row) == written(one, row)


@EVERY_READER
@given(data=st.data())
def test_any_trajectory_is_read_again(
    read: Callable[[Scored, list[float]], Read],
    make_trajectory: Make,
    make_scored: MakeScored,
    data: st.DataObject,
) -> None:
    texts = st.text("ab1", max_size=5)
    parts = data.draw(st.lists(st.tuples(texts, st.just(OUTPUT), texts), min_size=1, max_size=5))
    made = make_trajectory(
        [(f"{a}\n", kind, b) for a, kind, b in parts[:-1]] + [("z\n", SILENT, None)]
    )
    values = st.floats(-9, 0)
    num_tokens = len(made.completion_ids)
    logprobs, row = (
        data.draw(st.lists(values, min_size=num_tokens, max_size=num_tokens)) for _ in range(2)
    )
    one = make_scored(dataclasses.replace(made, logprobs=tuple(logprobs)), 1.0)
    assert read(one, row) == written(one, row)


@EVERY_READER
def test_injected_tokens_get_nothing_whatever_advantages_say(
    read: Callable[[Scored, list[float]], Read],
    make_trajectory: Make,
    make_scored: MakeScored,
) -> None:
    """Lines of 3, 3 and 3 tokens, answered by 6 and 5, after a prompt of 3."""
    one = make_scored(make_trajectory(PARTS), 1.0)
    found = read(one, [0.5] * sum(LENGTHS))
    assert found.mask == [0] * 3 + [1] * 3 + [0] * 6 + [1] * 3 + [0] * 5 + [1] * 3
    assert found.advantages == [0.5 * counts for counts in found.mask]
    assert found.logprobs == [-1.0 * counts for counts in found.mask]


@EVERY_READER
def test_identical_siblings_get_0(
    read: Callable[[Scored, list[float]], Read],
    make_trajectory: Make,
    make_scored: MakeScored,
) -> None:
    twins = [
        make_scored(make_trajectory(PARTS, sibling_index=i), 1.0, (-0.25, 0, 0)) for i in (0, 1)
    ]
    rows = repl_rl.advantages(twins)
    for one, row in zip(twins, rows, strict=True):
        found = read(one, row)
        assert sum(found.mask) == 9
        assert set(found.advantages) == {0.0}


@EVERY_READER
def test_a_token_that_a_branch_has_copied_is_trained_once(
    read: Callable[[Scored, list[float]], Read], make_trajectory: Make
) -> None:
    """Sibling 1 begins as sibling 0: its first two lines are copies, 7 and 7 tokens."""
    leaves = three_leaves(make_trajectory)
    rows = [[1.0] * len(one.trajectory.completion_ids) for one in leaves]
    trained = [read(one, row) for one, row in zip(leaves, rows, strict=True)]
    own = [sum(line.stop - line.start for line in one.trajectory.own_lines) for one in leaves]
    assert own == [38, 31, 24]
    assert [sum(one.mask) for one in trained] == own
    assert [sum(one.advantages) for one in trained] == own


@pytest.mark.parametrize("total", REWARDS.values(), ids=REWARDS.keys())
def test_the_rewards_that_are_exported_sum_to_the_total(
    total: Callable[[Scored, list[float]], float],
    make_trajectory: Make,
    make_scored: MakeScored,
) -> None:
    """1 - 0.25 - 0.5, and the same of a branch, whose copied lines count, too."""
    rewards = (-0.25, 0.0, -0.5)
    scored = make_scored(make_trajectory(PARTS), 1.0, rewards)
    branch = three_leaves(make_trajectory)[1]
    reward = dataclasses.replace(
        branch.reward, line_rewards=(-0.25, 0.0, -0.5, 0.0), outcome_reward=1.0
    )
    for one in (scored, dataclasses.replace(branch, reward=reward)):
        assert total(one, [0.0] * len(one.trajectory.completion_ids)) == 0.25


def test_a_line_is_paid_at_its_last_token_and_the_outcome_at_the_last_of_all(
    make_trajectory: Make, make_scored: MakeScored
) -> None:
    scored = make_scored(make_trajectory(PARTS), 1.0, (-0.25, 0.0, -0.5))
    rewards = export.row_of(scored, [0.0] * sum(LENGTHS)).rewards
    assert {at: value for at, value in enumerate(rewards) if value} == {2: -0.25, 19: 0.5}


def test_a_trajectory_that_was_not_scored_has_no_reward(
    make_trajectory: Make, make_scored: MakeScored
) -> None:
    """Its lines earned -0.25, which is no 0 for the answer. Advantages of 0 may stand for it."""
    one, row = make_scored(make_trajectory(PARTS), None, (-0.25, 0.0, 0.0)), [0.0] * sum(LENGTHS)
    for name in ("verl", "skyrl"):
        with pytest.raises(
            ConfigError, match=r"of problem p was not scored, and the -0\.25 .*; leave it out$"
        ):
            ONE_OF[name](one, row)
    assert export.skyrl([one], [row], as_rewards=True)["rewards"] == [row]


@pytest.mark.parametrize(
    ("reason", "skyrl"),
    [
        (StopReason.SUBMITTED, "stop"),
        (StopReason.EOS, "stop"),
        (StopReason.MAX_TOKENS, "length"),
        (StopReason.CANCELLED, "stop"),
    ],
)
def test_a_framework_hears_in_its_words_why_it_ended(
    reason: StopReason, skyrl: str, make_trajectory: Make, make_scored: MakeScored
) -> None:
    one, row = make_scored(make_trajectory(PARTS, stop_reason=reason), 1.0), [0.0] * sum(LENGTHS)
    assert export.skyrl([one], [row])["stop_reasons"] == [skyrl]


@pytest.mark.parametrize("name", ["slime", "rllm"])
def test_a_format_that_is_gone_is_named_with_those_that_are_there(name: str) -> None:
    expected = rf"no '{name}'; there are Row, row_of, skyrl, .*; rllm and slime are gone"
    with pytest.raises(ImportError, match=expected):
        getattr(export, name)


# What cannot be exported


ONE_OF: dict[str, Callable[[Scored, list[float]], object]] = {
    "verl": export.verl,
    "skyrl": lambda one, row: export.skyrl([one], [row]),
}


@pytest.mark.parametrize("write", ONE_OF.values(), ids=ONE_OF.keys())
@pytest.mark.parametrize(
    ("change", "num_advantages", "message"),
    [
        ({}, 19, "19 advantages and 20 tokens in a trajectory of problem p; expected one for each"),
        ({"loss_mask": (True,)}, 20, "1 entries of the loss mask and 20 tokens in"),
        ({"logprobs": (0.0,) * 21}, 20, "21 log-probabilities and 20 tokens in"),
        ({"lines": ()}, 20, "3 line rewards and 0 lines in"),
        ({"loss_mask": (False,) * 20}, 20, "holds no sampled token among 20; leave it out"),
    ],
)
def test_lists_that_do_not_fit_are_refused_with_both_numbers(
    write: Callable[..., Any],
    change: dict[str, Any],
    num_advantages: int,
    message: str,
    make_trajectory: Make,
    make_scored: MakeScored,
) -> None:
    made = make_trajectory(PARTS)
    scored = make_scored(dataclasses.replace(made, **change), 1.0, (0.0,) * 3)
    with pytest.raises(ConfigError, match=message):
        write(scored, [0.0] * num_advantages)


def test_a_batch_needs_a_row_for_each_trajectory(
    make_trajectory: Make, make_scored: MakeScored
) -> None:
    with pytest.raises(ConfigError, match="1 rows of advantages and 2 trajectories; expected one"):
        export.skyrl(pair(make_trajectory, make_scored), [[0.0] * 20])


def test_without_tinker_one_line_says_what_to_install(
    make_trajectory: Make, make_scored: MakeScored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ConfigError, match=r"tinker is not installed; .*'\.\[tinker\]'"):
        export.tinker_datum(make_scored(make_trajectory(PARTS), 1.0), [0.0] * 20)
