"""Laws of what a step reports: always, and of the advantages that its loss took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from repl_rl.credit.advantages import divergence
from repl_rl.records import OutcomeKind, Scored

if TYPE_CHECKING:
    from trainer_kit import Step

pytestmark = pytest.mark.train


def outcomes(group: Sequence[Scored], value: float | None) -> list[Scored]:
    """The group with one outcome for all, and nothing for any line."""
    return [
        replace(
            item,
            reward=replace(
                item.reward,
                outcome_reward=value,
                line_rewards=(0.0,) * len(item.trajectory.lines),
            ),
        )
        for item in group
    ]


@pytest.mark.parametrize("value", [None, 0.0, 1.0])
def test_a_step_that_teaches_nothing_is_reported(
    step: Step, group: list[Scored], value: float | None
) -> None:
    """No trajectory is scored, or all alike: the loss is 0, and the run goes on."""
    from repl_rl.training.steps import StepCallback

    logs = step(outcomes(group, value)).logs
    assert logs["loss"] == 0.0
    assert logs["mean_adv_loss"] == 0.0
    assert {logs[f"line/{kind}/adv_mass"] for kind in OutcomeKind} == {0.0}
    reported: list[int] = []
    training: Any = type("Training", (), {"log": lambda self, step, *_: reported.append(step)})()
    update: Any = None  # nothing is shown
    state: Any = type("State", (), {"global_step": 3, "max_steps": 9})()
    control: Any = None
    StepCallback(training, update).on_log(None, state, control, logs=logs)
    assert reported == [3]


def test_the_mass_of_outcomes_is_that_of_the_advantages_in_the_loss(
    step: Step, group: list[Scored]
) -> None:
    logs = step(group, kl_beta=0.1, credit="outcome", scale="none", importance="off").logs
    # Outcomes 1, 0, 0, -0.6 around their mean 0.1; tokens of lines: 5 + 6, 3 + 3 + 3, 13, 3.
    errors = 0.1 * 3 + 0.7 * 3
    mass = 0.9 * 11 + 0.1 * 9 + 0.1 * 13 + 0.7 * 3
    assert logs["line/name_error/adv_mass"] == pytest.approx(errors / mass)
    assert logs["line/ok_output/adv_mass"] == pytest.approx(1 - errors / mass)
    total = 0.9 * 11 - 0.1 * 9 - 0.1 * 13 - 0.7 * 3
    assert logs["mean_adv_loss"] == pytest.approx(-total / 36)
    assert logs["mean_kl_penalty"] == pytest.approx(0.1 * logs["kl"])


def test_the_divergence_of_engine_and_trainer_is_of_sampled_tokens(group: list[Scored]) -> None:
    """k3 of a token that the trainer finds e times as likely: e - 1 - 1."""
    trajectory = group[0].trajectory
    shifted = [logp + 1.0 for logp in trajectory.logprobs]
    assert divergence(trajectory, shifted) == pytest.approx((11 * (math.e - 2), 11))
    assert divergence(trajectory, trajectory.logprobs) == (0.0, 11)


def test_it_is_reported_where_lines_are_weighed(step: Step, group: list[Scored]) -> None:
    assert step(group, importance="line").logs["inf_kld"] > 0
    assert "inf_kld" not in step(group, importance="off").logs
