"""A datum of tinker holds the trajectory, token for token, up to the bytes that leave the SDK."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tinker = pytest.importorskip("tinker")

from tinker.proto import tinker_public_pb2  # noqa: E402
from tinker.proto.request_conv import forward_backward_request_to_proto  # noqa: E402
from tinker.types import ForwardBackwardInput, ForwardBackwardRequest  # noqa: E402
from tinker.types import datum as sdk_datum  # noqa: E402

import repl_rl  # noqa: E402
from record_readers import Read, read_datum, written  # noqa: E402
from repl_rl import export  # noqa: E402
from repl_rl.errors import ConfigError  # noqa: E402
from repl_rl.records import OutcomeKind, Scored, Trajectory  # noqa: E402
from tree_kit import three_leaves  # noqa: E402

Make = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
OUTPUT, WRONG = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR
PARTS = ((" y\n", WRONG, "no\n>>>"), (" 1\n", OUTPUT, None))


@pytest.fixture
def pair(make_trajectory: Make, make_scored: MakeScored) -> list[Scored]:
    """Two siblings; log-probabilities and rewards are exact in single precision."""
    first = make_trajectory(PARTS)
    second = make_trajectory(((" 3\n", OUTPUT, None),), sibling_index=1)
    return [make_scored(first, 1.0, (-0.25, 0.0)), make_scored(second, 0.0, (0.0,))]


def single(read: Read) -> Read:
    """The record in single precision."""
    floats = ([float(np.float32(x)) for x in one] for one in (read.logprobs, read.advantages))
    return Read(read.ids, read.mask, *floats)


def test_what_was_written_is_read_again(pair: list[Scored]) -> None:
    for one, row in zip(pair, repl_rl.advantages(pair), strict=True):
        assert any(row)
        assert read_datum(export.tinker_datum(one, row)) == single(written(one, row))


def test_each_list_is_said_of_the_next_token(pair: list[Scored]) -> None:
    """`>>>`, ` 3` and a newline: six tokens, of which the last three are sampled."""
    datum = export.tinker_datum(pair[1], [0.5, 0.25, -0.5])
    assert datum.model_input.to_ints() == list(b">>> 3")
    assert {name: one.tolist() for name, one in datum.loss_fn_inputs.items()} == {
        "target_tokens": list(b">> 3\n"),
        "logprobs": [0, 0, -1, -1, -1],
        "advantages": [0, 0, 0.5, 0.25, -0.5],
        "mask": [0, 0, 1, 1, 1],
    }


def test_injected_tokens_get_nothing_whatever_advantages_say(pair: list[Scored]) -> None:
    """Lines of 3 and 3 tokens with 6 between them, after a prompt of 3."""
    read = read_datum(export.tinker_datum(pair[0], [0.5] * 12))
    assert read.mask == [0] * 3 + [1] * 3 + [0] * 6 + [1] * 3
    assert read.advantages == [0.5 * counts for counts in read.mask]


def test_identical_siblings_get_0(make_trajectory: Make, make_scored: MakeScored) -> None:
    twins = [make_scored(make_trajectory(PARTS, sibling_index=i), 1.0, (-0.25, 0)) for i in (0, 1)]
    for one, row in zip(twins, repl_rl.advantages(twins), strict=True):
        read = read_datum(export.tinker_datum(one, row))
        assert (sum(read.mask), set(read.advantages)) == (6, {0.0})


def test_a_token_that_a_branch_has_copied_is_trained_once(make_trajectory: Make) -> None:
    leaves = three_leaves(make_trajectory)
    rows = [[1.0] * len(one.trajectory.completion_ids) for one in leaves]
    data = [export.tinker_datum(*pair) for pair in zip(leaves, rows, strict=True)]
    assert [sum(read_datum(one).mask) for one in data] == [38, 31, 24]


def test_without_a_mask_every_list_is_one_that_the_sdk_names(pair: list[Scored]) -> None:
    datum = export.tinker_datum(pair[1], [0.0] * 3, with_mask=False)
    assert set(datum.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}
    assert set(datum.loss_fn_inputs) <= sdk_datum._KEY_TO_TYPE.keys()


def test_the_bytes_that_leave_the_sdk_hold_the_same(pair: list[Scored]) -> None:
    row = repl_rl.advantages(pair)[0]
    request = ForwardBackwardRequest(
        forward_backward_input=ForwardBackwardInput(
            data=[export.tinker_datum(pair[0], row)], loss_fn="importance_sampling"
        ),
        model_id="m",
        seq_id=1,
    )
    sent = tinker_public_pb2.ForwardBackwardRequest.FromString(
        forward_backward_request_to_proto(request).SerializeToString()
    )
    (datum,) = sent.data
    expected = single(written(pair[0], row))

    def floats(name: str) -> list[float]:
        found: Any = np.frombuffer(datum.loss_fn_inputs[name].dense, dtype=np.float32)
        return [float(value) for value in found]

    (chunk,) = datum.model_input
    assert list(np.frombuffer(chunk.encoded_text.tokens, dtype=np.int32)) == expected.ids[:-1]
    targets = np.frombuffer(datum.loss_fn_inputs["target_tokens"].dense, dtype=np.int64)
    assert list(targets) == expected.ids[1:]
    assert floats("logprobs") == expected.logprobs[1:]
    assert floats("advantages") == expected.advantages[1:]


def test_lists_that_do_not_fit_are_refused_with_both_numbers(pair: list[Scored]) -> None:
    with pytest.raises(ConfigError, match="4 advantages and 3 tokens in a trajectory of problem p"):
        export.tinker_datum(pair[1], [0.0] * 4)
    cut = dataclasses.replace(pair[1].trajectory, logprobs=(0.0,))
    with pytest.raises(ConfigError, match="1 log-probabilities and 3 tokens in"):
        export.tinker_datum(dataclasses.replace(pair[1], trajectory=cut), [0.0] * 3)
