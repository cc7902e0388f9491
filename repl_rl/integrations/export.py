"""Scored trajectories as rows, and a row in the fields of three frameworks.

    Scored, advantages [T] -> Row -> a tinker.Datum, or a mapping of a framework's fields

Knows names of fields. Does not know how rewards and advantages came about. docs/export.md says with
which versions these were tried, and where a framework reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from repl_rl.errors import ConfigError, how_to_install
from repl_rl.records import Scored, Trajectory
from repl_rl.transcript.format import spans


class Row(NamedTuple):
    """The completion of one trajectory, [T] each, for a framework that has no function here.

    ids, mask, logprobs, advantages, rewards = row_of(scored, advantages)
    """

    ids: list[int]
    """Sampled and injected tokens; those of the prompt are not among them."""
    mask: list[int]
    """1 where a token is trained: sampled, and no copy of another trajectory's token."""
    logprobs: list[float]
    """Under the policy that sampled, nats; 0.0 where `mask` is 0."""
    advantages: list[float]
    """0.0 where `mask` is 0."""
    rewards: list[float]
    """That of a line stands at its last token, the outcome's at the last sampled token. Their sum
    is `Reward.total`."""


def row_of(scored: Scored, advantages: Sequence[float]) -> Row:
    """The lists of one trajectory; `advantages` [T] are one row of `repl_rl.advantages`.

    Raises ConfigError for lists of different lengths, and for a trajectory without a sampled token.
    """
    trajectory = scored.trajectory
    _check(trajectory, advantages, num_rewards=len(scored.reward.line_rewards))
    mask = [int(is_own) for is_own in trajectory.own_mask]
    return Row(
        ids=list(trajectory.completion_ids),
        mask=mask,
        logprobs=_where(mask, trajectory.logprobs),
        advantages=_where(mask, advantages),
        rewards=_rewards(scored),
    )


def _check(trajectory: Trajectory, advantages: Sequence[float], *, num_rewards: int) -> None:
    name, num_tokens = trajectory.problem_id, len(trajectory.completion_ids)
    counts = {
        "advantages": (len(advantages), "tokens", num_tokens),
        "entries of the loss mask": (len(trajectory.loss_mask), "tokens", num_tokens),
        "log-probabilities": (len(trajectory.logprobs), "tokens", num_tokens),
        "line rewards": (num_rewards, "lines", len(trajectory.lines)),
    }
    for what, (count, of, expected) in counts.items():
        if count != expected:
            raise ConfigError(
                f"{count} {what} and {expected} {of} in a trajectory of problem {name}; expected "
                f"one for each, in the order of the trajectories"
            )
    if not any(trajectory.loss_mask):
        raise ConfigError(
            f"a trajectory of problem {name} holds no sampled token among {num_tokens}; leave it "
            f"out, nothing can be trained on it"
        )


def _where(mask: Sequence[int], values: Sequence[float]) -> list[float]:
    return [float(value) if counts else 0.0 for counts, value in zip(mask, values, strict=True)]


def _rewards(scored: Scored) -> list[float]:
    trajectory, reward = scored.trajectory, scored.reward
    rewards = [0.0] * len(trajectory.completion_ids)
    for line, value in zip(trajectory.lines, reward.line_rewards, strict=True):
        rewards[line.stop - 1] += value
    last = max(at for at, is_sampled in enumerate(trajectory.loss_mask) if is_sampled)
    rewards[last] += reward.outcome_reward or 0.0
    return rewards


Record = dict[str, Any]
"""Keyword arguments of a class that is not imported here."""


def tinker_datum(scored: Scored, advantages: Sequence[float], *, with_mask: bool = True) -> Any:
    """A `tinker.Datum` of the whole sequence, where position i describes token i + 1.

    `model_input` has P + T - 1 tokens, and so has each of `loss_fn_inputs`: target_tokens,
    logprobs, advantages, mask. tinker-cookbook keeps the mask until it sends a datum;
    `forward_backward` of the SDK takes one `with_mask=False`.

    Raises ConfigError for lists of different lengths, and where tinker is not installed.

        training_client.forward_backward(
            [tinker_datum(one, row, with_mask=False)], loss_fn="importance_sampling"
        )
    """
    try:
        import tinker
    except ModuleNotFoundError as error:
        if error.name != "tinker":
            raise
        raise ConfigError(f"tinker is not installed; {how_to_install('tinker')}") from None
    row, prompt_ids = row_of(scored, advantages), scored.trajectory.prompt_ids
    ids, before = [*prompt_ids, *row.ids], [0] * len(prompt_ids)
    inputs = {
        "target_tokens": tinker.TensorData(data=ids[1:], dtype="int64"),
        "logprobs": tinker.TensorData(data=[*before, *row.logprobs][1:], dtype="float32"),
        "advantages": tinker.TensorData(data=[*before, *row.advantages][1:], dtype="float32"),
    }
    if with_mask:
        inputs["mask"] = tinker.TensorData(data=[*before, *row.mask][1:], dtype="float32")
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=inputs)


def verl(scored: Scored, advantages: Sequence[float]) -> Record:
    """Keyword arguments of verl's `AgentLoopOutput`, which an agent loop returns.

    `extra_fields` holds advantages and line rewards, [T] each; stock verl trains on `reward_score`
    alone. The policy's version, as `episode.take` got it, counts as verl's global step.

    Raises ConfigError for a trajectory that was not scored: verl puts every reward into a baseline,
    and scores what has none itself.

        return AgentLoopOutput(**verl(scored, advantages))
    """
    _check_is_scored(scored)
    trajectory, row = scored.trajectory, row_of(scored, advantages)
    return {
        "prompt_ids": list(trajectory.prompt_ids),
        "response_ids": row.ids,
        "response_mask": row.mask,
        "response_logprobs": row.logprobs,
        "reward_score": scored.reward.total,
        "num_turns": 1 + len(list(spans(trajectory))),
        "metrics": {},
        "extra_fields": {
            "advantages": row.advantages,
            "line_rewards": row.rewards,
            "min_global_steps": trajectory.policy_version,
            "max_global_steps": trajectory.policy_version,
        },
    }


def skyrl(
    scored: Sequence[Scored], advantages: Sequence[Sequence[float]], *, as_rewards: bool = False
) -> Record:
    """SkyRL's `GeneratorOutput` for a whole batch, in the order of its prompts.

    `rewards` holds those of lines, which sum to the total, for SkyRL's own estimators. SkyRL has no
    field for advantages. With `as_rewards` they replace the rewards: register a function with
    `register_advantage_estimator` that returns `token_level_rewards` as they are, twice.

    Raises ConfigError for a trajectory that was not scored, unless `as_rewards`: its advantages are
    0, and its rewards would be those of an answer.

        return skyrl(scored, advantages, as_rewards=True)
    """
    if len(scored) != len(advantages):
        raise ConfigError(
            f"{len(advantages)} rows of advantages and {len(scored)} trajectories; expected one "
            f"for each"
        )
    if not as_rewards:
        _check_is_scored(*scored)
    rows = [row_of(*pair) for pair in zip(scored, advantages, strict=True)]
    trajectories = [item.trajectory for item in scored]
    return {
        "prompt_token_ids": [list(one.prompt_ids) for one in trajectories],
        "response_ids": [row.ids for row in rows],
        "rewards": [row.advantages if as_rewards else row.rewards for row in rows],
        "loss_masks": [row.mask for row in rows],
        "stop_reasons": ["length" if t.stop_reason.is_limit else "stop" for t in trajectories],
        "rollout_metrics": None,
        "rollout_logprobs": [row.logprobs for row in rows],
    }


def _check_is_scored(*scored: Scored) -> None:
    for one in scored:
        if one.reward.outcome_reward is None:
            raise ConfigError(
                f"a trajectory of problem {one.trajectory.problem_id} was not scored, and the "
                f"{one.reward.total:g} of its lines is no reward for an answer; leave it out"
            )
