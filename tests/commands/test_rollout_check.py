"""Laws of the checks of one trajectory: what is sound passes, and each fault is told by its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine_kit import qwen3, scorer
from repl_rl.commands.rollout import RolloutSubject, Scores, findings, score
from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.credit.rewards import shaped
from repl_rl.models.loading import logprobs
from repl_rl.records import Finding, OutcomeKind, Problem, Scored, StopReason, Trajectory
from repl_rl.testing.under_test import random_model
from repl_rl.training.audit import LARGEST_GAP
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.types import ExecStatus, Execution

Play = Callable[..., Trajectory]
MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
Spoil = Callable[[Trajectory], Trajectory]
OK = OutcomeKind.OK_OUTPUT

ANSWERS = {
    "1+1": Execution(status=ExecStatus.OK, output="2\n"),
    "2": Execution(status=ExecStatus.OK, value="2"),
}
SUBMIT = " submit_final_answer(2)\n"


def subject_of(
    trajectory: Trajectory, scored: Scored | None = None, **limits: Any
) -> RolloutSubject:
    """Subject of a scripted rollout after `>>>`; the trainer agrees with it."""
    reward = shaped(trajectory, None, RewardConfig())
    problem = Problem(id="p", statement="What is 1 + 1?")
    return RolloutSubject(
        scored=scored
        or Scored(trajectory=trajectory, problem=problem, verdict=None, reward=reward),
        prompt=Prompt.plain(">>>"),
        encoding=Encoding(PYTHON, ByteCodec()),
        sampling=SamplingConfig(**limits),
        samples_lines=True,
        context_tokens=1 << 16,
        scores=Scores(shifted=trajectory.logprobs, unshifted=(-5.0,) * len(trajectory.logprobs)),
        is_exact=True,
        num_drifted=0,
    )


@pytest.fixture
def sound(play: Play) -> Trajectory:
    r"""` 1+1\n` at 0, `2\n>>>` at 5, the submission's 24 tokens at 10: 34 tokens."""
    return play(" 1+1\n", SUBMIT, answers=ANSWERS)


def amiss(subject: RolloutSubject) -> dict[str, str]:
    return {one.name: one.text for one in findings(subject) if not one.passed}


def said(subject: RolloutSubject, name: str) -> Finding:
    return next(one for one in findings(subject) if one.name == name)


def test_nothing_is_amiss_in_what_the_loop_made(sound: Trajectory) -> None:
    assert amiss(subject_of(sound)) == {}


# Tokens


def test_text_behind_a_newline_is_told_and_is_amiss_only_where_it_is_forbidden(
    make_trajectory: MakeTrajectory,
) -> None:
    trajectory = make_trajectory([(" 1\n", OK, "1\n>>>"), (" 2\n\n", OK, None)])
    name = "text after newlines"
    found = said(subject_of(trajectory), name)
    assert (found.text, found.passed) == ("in 1 of 2 lines; sampling.run_on = 'allow'", True)
    found = said(subject_of(trajectory, run_on="forbid"), name)
    assert (found.text, found.passed) == ("line 2 has some, and sampling.run_on = 'forbid'", False)


def test_a_flipped_bit_of_the_mask_is_told_with_its_place(sound: Trajectory) -> None:
    mask = list(sound.loss_mask)
    mask[6] = True
    found = amiss(subject_of(replace(sound, loss_mask=tuple(mask))))
    assert found == {"mask": "position 6: sampled by the mask, injected by the lines"}


def with_id(trajectory: Trajectory, at: int, token: int) -> Trajectory:
    ids = trajectory.completion_ids
    return replace(trajectory, completion_ids=(*ids[:at], token, *ids[at + 1 :]))


def test_another_id_in_a_line_is_told(sound: Trajectory) -> None:
    found = amiss(subject_of(with_id(sound, 1, ord("7"))))
    assert found == {"lines": "line 1: its ids decode to another text"}


def test_another_id_in_an_observation_is_told(sound: Trajectory) -> None:
    found = amiss(subject_of(with_id(sound, 5, ord("3"))))
    assert found == {"observations": "after line 1: ids do not encode the output that was shown"}


def test_another_id_in_the_prompt_is_told(sound: Trajectory) -> None:
    found = amiss(subject_of(replace(sound, prompt_ids=(62, 60, 62))))
    assert found == {"prompt": "position 1 holds id 60, its text is encoded as 62"}


def test_another_prompt_than_the_tasks_is_told(sound: Trajectory) -> None:
    found = amiss(subject_of(replace(sound, prompt_text="...")))
    assert found == {"prompt": "its text is not the task's prompt"}


def test_what_the_engine_did_not_say_is_told(sound: Trajectory) -> None:
    found = amiss(replace(subject_of(sound), num_drifted=3))
    assert list(found) == ["sampled ids"]


# Log-probabilities


def with_shifted(subject: RolloutSubject, at: int, value: float) -> RolloutSubject:
    shifted = list(subject.scores.shifted)
    shifted[at] = value
    return replace(subject, scores=replace(subject.scores, shifted=tuple(shifted)))


def test_a_gap_is_told_with_its_token(sound: Trajectory) -> None:
    found = amiss(with_shifted(subject_of(sound), 2, -0.29))
    assert found == {"gap": "largest 2.9e-01 nats, at position 2 '+'; mean 1.0e-02"}


def test_a_gap_at_an_injected_token_is_none(sound: Trajectory) -> None:
    assert amiss(with_shifted(subject_of(sound), 6, -9.0)) == {}


@pytest.mark.parametrize(("gap", "passed"), [(LARGEST_GAP, True), (2 * LARGEST_GAP, False)])
def test_in_float32_the_largest_gap_counts(sound: Trajectory, gap: float, passed: bool) -> None:
    assert said(with_shifted(subject_of(sound), 2, -gap), "gap").passed is passed


def test_in_half_precision_the_mean_gap_counts(sound: Trajectory) -> None:
    """29 sampled tokens: 1.4 / 29 = 0.048 and 1.5 / 29 = 0.052 nats, the limit is 0.05."""
    subject = replace(subject_of(sound), is_exact=False)
    assert said(with_shifted(subject, 2, -1.4), "gap").passed
    assert not said(with_shifted(subject, 2, -1.5), "gap").passed


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_log_probability_that_is_no_number_is_amiss(sound: Trajectory, is_exact: bool) -> None:
    subject = replace(subject_of(sound), is_exact=is_exact)
    assert "gap" in amiss(with_shifted(subject, 2, math.nan))


def test_scores_without_the_shift_are_told(sound: Trajectory) -> None:
    subject = subject_of(sound)
    swapped = Scores(shifted=subject.scores.unshifted, unshifted=subject.scores.shifted)
    assert "shift by one" in amiss(replace(subject, scores=swapped))


def test_one_forward_scores_each_token_by_the_one_before_it_and_by_itself(
    make_trajectory: MakeTrajectory,
) -> None:
    """Asked one by one: what follows the prefix that ends before token t, or with it."""
    model = random_model(qwen3)
    trajectory = replace(
        make_trajectory([("ab", OutcomeKind.CUT, None)]),
        prompt_ids=(5, 6, 7),
        completion_ids=(8, 9),
    )
    found = score(scorer(model), trajectory, temperature=0.7)
    ids = [5, 6, 7, 8, 9]
    for t in range(2):
        before, upto = ids[: 3 + t], ids[: 4 + t]
        shifted = logprobs(scorer(model), [*before, ids[3 + t]], 3 + t, temperature=0.7)
        unshifted = logprobs(scorer(model), [*upto, ids[3 + t]], 4 + t, temperature=0.7)
        assert found.shifted[t] == pytest.approx(shifted[0], abs=1e-5)
        assert found.unshifted[t] == pytest.approx(unshifted[0], abs=1e-5)


# Lines


def test_a_line_that_goes_on_after_its_newline_is_told(make_trajectory: MakeTrajectory) -> None:
    silent = OutcomeKind.OK_SILENT
    trajectory = make_trajectory([(" a\nb\n", silent, ">>>"), (" c\n", silent, None)])
    found = amiss(subject_of(trajectory, max_lines=2))
    assert found == {"stop tokens": "line 1 continues after an id that ends it"}


def test_a_line_that_does_not_end_is_told_unless_it_is_the_last(
    make_trajectory: MakeTrajectory,
) -> None:
    silent = OutcomeKind.OK_SILENT
    trajectory = make_trajectory([(" a", silent, ">>>"), (" c\n", silent, None)])
    found = amiss(subject_of(trajectory, max_lines=2))
    assert found == {"stop tokens": "line 1 does not end in a newline id"}
    cut = make_trajectory([(" c", OutcomeKind.CUT, None)], stop_reason=StopReason.MAX_LINE_TOKENS)
    assert amiss(subject_of(cut, max_line_tokens=2)) == {}


@pytest.mark.parametrize(
    ("limits", "name", "text"),
    [
        ({"max_tokens": 33}, "budgets", "tokens 34 of 33"),
        ({"max_lines": 1}, "budgets", "lines 2 of 1"),
        ({"max_line_tokens": 23}, "budgets", "longest line 24 of 23"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_budget_that_was_overrun_is_told(
    sound: Trajectory, limits: dict[str, Any], name: str, text: str
) -> None:
    subject = subject_of(sound)
    tight = replace(subject.sampling, **limits)
    assert amiss(replace(subject, sampling=tight)) == {name: text}


def test_an_output_over_its_cap_is_told(play: Play) -> None:
    """65 tokens, the newline among them."""
    long = Execution(status=ExecStatus.OK, output=64 * "1" + "\n")
    subject = subject_of(play(" 1+1\n", SUBMIT, answers={**ANSWERS, "1+1": long}))
    capped = replace(subject.sampling, max_observation_tokens=64)
    assert amiss(replace(subject, sampling=capped)) == {"budgets": "longest output 65 of 64"}


def test_a_context_that_was_overrun_is_told(sound: Trajectory) -> None:
    """3 tokens of the prompt and 34 of the completion."""
    found = amiss(replace(subject_of(sound), context_tokens=36))
    assert found == {"budgets": "with the prompt 37 of 36"}


# Rewards


def with_reward(trajectory: Trajectory, make_scored: MakeScored, **told: Any) -> RolloutSubject:
    scored = make_scored(trajectory, told["outcome"], told["lines"])
    reward = replace(scored.reward, terms=told["terms"])
    return subject_of(trajectory, replace(scored, reward=reward))


def test_terms_that_do_not_add_up_are_told(sound: Trajectory, make_scored: MakeScored) -> None:
    subject = with_reward(
        sound, make_scored, outcome=1.0, lines=(-0.1, 0.0), terms={"a": -0.2, "b": 1.0}
    )
    assert amiss(subject) == {
        "reward terms": "terms add up to +0.800, outcome +1.000 and lines -0.100 to +0.900"
    }


def test_the_lines_of_a_loop_of_ones_own_are_not_held_to_the_repls(sound: Trajectory) -> None:
    subject = subject_of(sound)
    own = replace(subject, sampling=SamplingConfig(max_tokens=2), samples_lines=False)
    assert {one.name for one in findings(subject)} - {one.name for one in findings(own)} == {
        "observations",
        "stop tokens",
        "text after newlines",
        "budgets",
    }
