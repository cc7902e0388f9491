"""A pretrained model in the real lm-evaluation-harness: its rate is that of our own evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval")

from lm_eval_kit import evaluated, harnessed, keep_made, mine
from repl_rl.lm_eval.model import ReplLM
from shown_sums import OTHERS, SUMS

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

NUM_PROBLEMS = len(SUMS) + len(OTHERS)
GIVEN: dict[str, Any] = {
    "task": "shown_sums:ShownSums",
    "sampling.device": "cpu",
    "sampling.max_lines": 2,
    "sampling.max_line_tokens": 20,
    "sampling.max_tokens": 60,
    "sampling.max_in_flight": NUM_PROBLEMS,
    "sandbox.standby": 1,
    "eval.problems": NUM_PROBLEMS,
    "seed": 5,
}


def test_the_solve_rate_of_twenty_problems_is_that_of_eval(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = evaluated(folder, GIVEN, samples=1)
    made = keep_made(monkeypatch)
    rates = harnessed(ReplLM(str(folder), **GIVEN), mine(tmp_path, evaluation, GIVEN))
    own = [one.trajectory for one in evaluation.scored]
    assert [one.completion_ids for one in made] == [one.completion_ids for one in own]
    for one, other in zip(made, own, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert len(made) == NUM_PROBLEMS == 20
    assert rates["exact_match,first"] == evaluation.report.rate
    assert 0 < evaluation.report.rate < 1
