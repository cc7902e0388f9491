"""Tasks of the real lm-evaluation-harness, and the same problems by our own evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from repl_rl.lm_eval.model import ReplLM
from repl_rl.progress import SILENT
from repl_rl.records import Trajectory
from repl_rl.rollout.plan import plan_of_model
from repl_rl.training import evaluate as asked
from repl_rl.training.eval_job import Evaluation, evaluate
from repl_rl.training.evaluate import held_out_attempts

MINE = """\
task: mine
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: []}
repeats: 2
filter_list:
  - {name: first, filter: [{function: regex, regex_pattern: "#### (.*)"}, {function: take_first}]}
metric_list: [{metric: exact_match}]
"""


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def task_of(place: Path, text: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A task of the harness, its rows read from a file beside it."""
    write_rows(place / "docs.jsonl", rows)
    files = dict.fromkeys(("train", "test"), str(place / "docs.jsonl"))
    kwargs = {"data_files": files, "cache_dir": str(place / "cache")}
    data = f"dataset_path: json\ndataset_name: null\ndataset_kwargs: {json.dumps(kwargs)}\n"
    (place / "task.yaml").write_text(f"{text}{data}test_split: test\nnum_fewshot: 0\n")
    return {"include": str(place / "task.yaml")}


def harnessed(model: ReplLM, task: dict[str, Any]) -> dict[str, Any]:
    """The rates that the harness finds."""
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=[load_yaml(task["include"])],
        task_manager=TaskManager(include_defaults=False),  # else it reads all of its own
        bootstrap_iters=0,
    )
    assert found is not None
    (rates,) = found["results"].values()
    return dict(rates)


def keep_made(monkeypatch: pytest.MonkeyPatch) -> list[Trajectory]:
    """A list that fills with what the harness's model makes."""
    kept: list[Trajectory] = []
    answers = asked.answers

    def keep(*given: Any) -> list[Trajectory]:
        found = answers(*given)
        kept.extend(found)
        return found

    monkeypatch.setattr(asked, "answers", keep)
    return kept


def evaluated(model: Path, given: Mapping[str, Any], *, samples: int = 2) -> Evaluation:
    """Evaluation that `repl-rl eval -k SAMPLES` would make."""
    return evaluate(plan_of_model(str(model), given), SILENT, samples=samples)


def mine(place: Path, evaluation: Evaluation, given: Mapping[str, Any]) -> dict[str, Any]:
    """A task of the harness: the same problems in the same order, as often."""
    plan = plan_of_model(evaluation.policy, given)
    of = evaluation.plan
    drawn = held_out_attempts(plan.task, count=of.eval.problems, seed=of.seed)
    rows = [
        {"question": one.problem.statement, "answer": one.problem.meta["value"]} for one in drawn
    ]
    return task_of(place, MINE.replace("repeats: 2", f"repeats: {evaluation.samples}"), rows)


def tokens(trajectories: Sequence[Trajectory]) -> list[tuple[Any, ...]]:
    return [
        (one.seed, one.prompt_ids, one.completion_ids, one.loss_mask, one.logprobs, one.stop_reason)
        for one in trajectories
    ]
