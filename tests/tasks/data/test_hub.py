"""Data sets on the hub, as a folder that the library takes for one, and without any network."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Problem, Split
from repl_rl.tasks.base import load_task

datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.slow


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has `owner/sums`, with three rows to train on and two held out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    folder = tmp_path / "owner" / "sums"
    folder.mkdir(parents=True)
    for split, numbers in {"train": range(3), "test": range(3, 5)}.items():
        rows = [
            {"question": f"{n} + {n}?", "answer": f"So\n#### {2 * n}", "level": n, "id": n % 3}
            for n in numbers
        ]
        path = folder / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def sides(**data: Any) -> dict[Split, list[Problem]]:
    task, _ = load_task("hf:owner/sums", DataConfig(**data))
    return {split: list(task.problems(split, seed=0)) for split in Split}


def answers(problems: list[Problem]) -> list[str]:
    return sorted(problem.meta["value"] for problem in problems)


@pytest.mark.usefixtures("owner")
def test_splits_of_the_hub_are_the_sides() -> None:
    """An id counts within its split."""
    found = sides()
    assert answers(found[Split.TRAIN]) == ["0", "2", "4"]
    assert answers(found[Split.HELD_OUT]) == ["6", "8"]
    assert sorted(one.id for one in found[Split.HELD_OUT]) == ["test/0", "test/1"]


@pytest.mark.usefixtures("owner")
def test_one_split_alone_is_divided() -> None:
    found = sides(split="train")
    assert answers([*found[Split.TRAIN], *found[Split.HELD_OUT]]) == ["0", "2", "4"]
    assert [len(one) > 0 for one in found.values()] == [True, True]


@pytest.mark.usefixtures("owner")
def test_name_revision_and_configuration_reach_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def load(*arguments: object, **named: object) -> dict[str, list[dict[str, object]]]:
        asked.append((arguments, named))
        return {"main": [{"problem": "1 + 1?", "answer": 2.5}]}

    monkeypatch.setattr(datasets, "load_dataset", load)
    task, _ = load_task("hf:owner/name@v1.0", DataConfig(config="main", split="main"))
    (problem,) = [one for split in Split for one in task.problems(split, seed=0)]
    assert problem.meta["answer"] == "2.5"
    assert asked == [(("owner/name", "main"), {"revision": "v1.0"})]


@pytest.mark.usefixtures("owner")
def test_what_cannot_be_loaded_says_what_it_takes() -> None:
    task, _ = load_task("hf:nobody/nothing")
    with pytest.raises(ConfigError, match=r"^'hf:nobody/nothing' cannot be loaded: .*the hub"):
        next(task.problems(Split.TRAIN, seed=0))


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    task, _ = load_task("hf:owner/name")
    with pytest.raises(ConfigError, match=r"needs the package datasets.*'\.\[data\]'"):
        next(task.problems(Split.TRAIN, seed=0))
