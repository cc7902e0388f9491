"""A file of problems, from outside: trained on, measured on, kept on record, and gone on with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.runs.folder import read_versions
from small_run import small

pytest.importorskip("pylatexenc")
pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel, pytest.mark.timeout(300)]

Command = Callable[..., Any]

TEN = Path(__file__).parents[2] / "examples" / "ten.jsonl"
TAKEN = (
    "repl-rl: ten.jsonl: problems 10, held out 2; statement 'problem', answer 'answer', id 'id', "
    "family 'subject', tier 'level'; graded by "
)


def test_a_file_is_trained_on_measured_on_and_gone_on_with(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copy(TEN, tmp_path / "ten.jsonl")
    settings = small(grpo__steps=1, report__checkpoint_every=1)
    given = ("--task", "ten.jsonl", "--model", str(tiny_model))
    ended = repl_rl("train", *given, "--output", "run", *settings)
    assert ended.code == 0, ended.stderr
    assert TAKEN in ended.stderr
    record = read_versions(tmp_path / "run")["data"]
    assert record.startswith(f"{tmp_path}/ten.jsonl: sha256 ")
    assert record.endswith(", 10 of 10 rows taken, 0 refused")

    measured = repl_rl("eval", "run", "--json", *small(eval__problems=5))
    assert measured.code == 0, measured.stderr
    facts = json.loads(measured.stdout)
    assert (
        facts["task"],
        facts["total"],
        sum(one["total"] for one in facts["by_tier"].values()),
    ) == ("ten.jsonl", 2, 2)

    more = '{"id": "more", "problem": "What is 2 + 2?", "answer": 4}\n'
    with (tmp_path / "ten.jsonl").open("a") as file:
        file.write(more)
    resumed = repl_rl("train", "--resume", "run", "--set", "grpo.steps=2")
    assert resumed.code == 0, resumed.stderr
    said = " ".join((resumed.stdout + resumed.stderr).split())
    assert "the run began with data " in said
    assert "10 of 10 rows taken, 0 refused, and is resumed with " in said

    (tmp_path / "ten.jsonl").unlink()
    assert repl_rl("replay", "run", "--rescore").code == 0
    gone = repl_rl("eval", "run")
    assert gone.code == 2
    assert "no such file 'ten.jsonl'" in gone.stderr


def test_a_row_with_a_prompt_beyond_the_context_is_refused_before_anything_is_sampled(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [{"problem": f"What is {i} + 1?", "answer": i + 1} for i in range(200)]
    rows[150]["problem"] = "What is 2 + 2? " + "It is not 5. " * 2000
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "rows.jsonl").write_text(lines)
    given = ("--task", "rows.jsonl", *small())
    for command in (("eval", str(tiny_model)), ("train", "--model", str(tiny_model))):
        refused = repl_rl(*command, *given, "--output", "run")
        assert refused.code == 2, refused.stderr
        assert "the prompt of rows.jsonl:151 has " in refused.stderr
        assert not (tmp_path / "run").exists()


def test_one_trajectory_of_a_file_passes_all_checks(repl_rl: Command, tiny_model: Path) -> None:
    given = ("--task", str(TEN), "--model", str(tiny_model), "--problem", "roots")
    ended = repl_rl("rollout", *given, *small())
    assert ended.code == 0, ended.stdout + ended.stderr
    assert "Find all real $x$ with" in ended.stdout


def test_a_dry_run_reads_the_file(repl_rl: Command, tiny_model: Path) -> None:
    given = ("--task", str(TEN), "--model", str(tiny_model), "--set", "data.held_out=0.5")
    ended = repl_rl("train", "--dry-run", *given)
    assert ended.code == 0, ended.stderr
    assert "ten.jsonl: problems 10, held out " in ended.stderr
    assert "\n[data]\n" in ended.stdout
