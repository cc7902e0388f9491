"""A warm start from outside: what it leaves, what takes that for a model, and how it ends early."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from repl_rl.runs.trajectory_file import read_trajectories
from run_metrics import read_metrics
from small_run import set_words

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel, pytest.mark.timeout(300)]

Command = Callable[..., Any]

SETTINGS = set_words(
    *("warmstart.transcripts_per_step=2", "warmstart.epochs=1", "warmstart.problems_before=1"),
    *("warmstart.keep=all", "eval.problems=2", "sandbox.standby=2", "sampling.device=cpu"),
    *("sampling.max_tokens=500", "sampling.max_lines=12", "sampling.max_line_tokens=120"),
)
BY_HAND = """\
=== by hand
statement: Solve over the reals: x**2 - 4 = 0
statement: Answer: a list of all solutions, exact.

>>> solve(x**2 - 4, x)
[-2, 2]
>>> submit_final_answer(_)
"""


def test_a_model_is_shown_demonstrations_and_measured_before_and_after(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    given = ("warmstart", "--model", str(tiny_model), "--output", "warm", "--json")
    ended = repl_rl(*given, "--demonstrations", "6", *SETTINGS)
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    facts = json.loads(ended.stdout)
    assert facts["before"]["total"] == 1
    assert facts["after"]["total"] == 2
    assert {"solve_rate", "interval", "submit_share"} <= facts["after"].keys()
    assert facts["steps"] == -(-facts["transcripts"] // 2)

    run = tmp_path / "warm"
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["step"] for row in rows if "eval_total" in row] == [0, facts["steps"]]
    assert [row["step"] for row in rows if "loss" in row] == [*range(1, facts["steps"] + 1)]
    lessons = list(read_trajectories(run / "trajectories" / "lessons.jsonl"))
    assert len(lessons) == facts["transcripts"]

    checkpoints = run / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"adapter", "final"}
    AutoModelForCausalLM.from_pretrained(checkpoints / "final")
    card = (checkpoints / "final" / "README.md").read_text()
    assert "trained by repl-rl on transcripts whose every line was executed" in card
    assert "grpo" not in card.split("# ")[0]

    for command in (("eval", "warm"), ("replay", "warm", "--execute"), ("show", "warm")):
        ended = repl_rl(*command)
        assert ended.code == 0, (command, ended.stderr)
    refused = repl_rl("train", "--resume", "warm")
    assert (refused.code, "is a warm start" in refused.stderr) == (2, True)

    # What it has solved itself can be shown to it again: expert iteration.
    again = repl_rl(
        *("warmstart", "--model", "warm", "--from", "warm", "--solved", "--output", "again"),
        *("--whole", "--json", *SETTINGS),
    )
    assert again.code == 0, again.stderr
    solved = sum(one.verdict is not None and one.verdict.is_solved for one in lessons)
    assert json.loads(again.stdout)["taken"] == {"warm": solved}
    assert {path.name for path in (tmp_path / "again" / "checkpoints").iterdir()} == {"final"}


def test_a_person_shows_transcripts_of_their_own(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.repl").write_text(BY_HAND)
    given = ("warmstart", "--model", str(tiny_model), "--from", "mine.repl", "--output", "run")
    ended = repl_rl(*given, *SETTINGS)
    assert ended.code == 0, ended.stderr
    assert "shown: 1 transcripts (by hand 1)" in ended.stdout

    (tmp_path / "mine.repl").write_text(BY_HAND.replace("[-2, 2]", "[2, -2]"))
    refused = repl_rl(*given[:-1], "other", *SETTINGS)
    assert refused.code == 2
    assert "mine.repl:5: 'solve(x**2 - 4, x)' answers '[-2, 2]\\n', not" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_an_interrupt_leaves_no_process_and_no_weights(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    metrics = tmp_path / "run" / "metrics.jsonl"
    ended = repl_rl(
        *("warmstart", "--model", str(tiny_model), "--output", "run", "--demonstrations", "4"),
        *(*SETTINGS, "--set", "warmstart.epochs=5000"),
        interrupt_when=lambda: metrics.is_file() and '"loss"' in metrics.read_text(),
    )
    assert (ended.code, ended.left_behind) == (130, [])
    assert ended.stderr.endswith(
        "repl-rl: interrupted; run holds no weights; a warm start cannot be resumed, so start it "
        "again\n"
    )
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    refused = repl_rl("eval", "run")
    assert (refused.code, "no checkpoint" in refused.stderr) == (2, True)
