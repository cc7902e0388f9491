"""Read what `repl_rl.export` writes, without its code: ids, mask, log-probabilities, advantages.

Each reader gets a record as a framework holds it, and gives back the whole sequence, prompt first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from repl_rl.records import Scored


class Read(NamedTuple):
    """Lists of one trajectory, [P + T]; at the prompt all but `ids` is 0."""

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    advantages: list[float]


def written(scored: Scored, advantages: Sequence[float]) -> Read:
    """Lists that a record has to hold: own sampled tokens count, everything else is 0."""
    one = scored.trajectory
    mask = [0] * len(one.prompt_ids)
    mask += [0] * one.num_copied + [int(is_own) for is_own in one.loss_mask[one.num_copied :]]
    before = [0.0] * len(one.prompt_ids)
    return Read(
        [*one.prompt_ids, *one.completion_ids],
        mask,
        [x * y for x, y in zip([*before, *one.logprobs], mask, strict=True)],
        [x * y for x, y in zip([*before, *advantages], mask, strict=True)],
    )


def _behind(prompt: Sequence[int], ids: Sequence[int], *rest: Sequence[float]) -> Read:
    lists: list[Any] = [[0] * len(prompt) + list(one) for one in rest]
    return Read([*prompt, *ids], *lists)


def read_verl(record: dict[str, Any]) -> Read:
    return _behind(
        record["prompt_ids"],
        record["response_ids"],
        record["response_mask"],
        record["response_logprobs"],
        record["extra_fields"]["advantages"],
    )


def read_skyrl(record: dict[str, Any], row: int) -> Read:
    """Lists of a batch whose `rewards` are advantages."""
    fields = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rewards")
    return _behind(*(record[name][row] for name in fields))


def read_datum(datum: Any) -> Read:
    """Lists of a `tinker.Datum`, which begin at the second token."""
    inputs = {name: tensor.tolist() for name, tensor in datum.loss_fn_inputs.items()}
    first = datum.model_input.to_ints()[0]
    assert datum.model_input.to_ints()[1:] == inputs["target_tokens"][:-1]
    return Read(
        [first, *inputs["target_tokens"]],
        [0, *map(int, inputs["mask"])],
        [0.0, *inputs["logprobs"]],
        [0.0, *inputs["advantages"]],
    )
