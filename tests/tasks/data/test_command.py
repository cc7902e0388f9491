"""A file of problems at the command line: found, said, refused before anything slow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from repl_rl.base.plugins import load_spec
from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Split
from repl_rl.tasks.base import StoredTask, load_task
from repl_rl.tasks.data import names

pytestmark = pytest.mark.slow

Call = Callable[..., tuple[int, str, str]]

ROWS = [{"problem": f"What is {n} + {n}?", "answer": 2 * n, "level": n % 2} for n in range(20)]


def write(path: Path, rows: list[dict[str, object]] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows or ROWS))
    return path


@pytest.mark.slow
def test_a_file_is_a_task(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl")
    code, out, err = call("tasks", "rows.jsonl", "-n", "1", "--set", "data.limit=10")
    assert code == 0
    assert err == (
        "repl-rl: rows.jsonl: problems 10, held out 1; statement 'problem', answer 'answer', tier "
        "'level'; graded by integer 10\n"
    )
    assert "\n    >>> from sympy import *\n" in out
    assert "\n    >>> # What is " in out
    said = "ok  problems    in both splits; those above are for training\nok  grader      0 "
    assert said in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--task", "no.jsonl"), "no such file 'no.jsonl'"),
        (
            ("train", "--task", "rows.jsonl", "--model", ".", "--set", "data.answer=gold"),
            "rows.jsonl:1: no answer",
        ),
        (("train", "--task", "bad.jsonl", "--model", "."), "bad.jsonl:2: not UTF-8"),
        (("tasks", "bad.jsonl"), "bad.jsonl:2: not UTF-8"),
        (("tasks", "empty.jsonl"), "empty.jsonl holds no rows"),
        (("tasks", "folder.jsonl"), "'folder.jsonl' is no file"),
        (
            ("tasks", "rows.jsonl", "--set", "data.held_out=2"),
            "data.held_out = 2; expected float",
        ),
        (("tasks", "rows.jsonl", "--set", "data.grader=judge"), "data.grader = 'judge'; expected"),
        (("tasks", "rows.jsonl", "--set", "data.config=main"), "data.config = 'main' has no"),
        (("tasks", "sympy-proofs", "--set", "data.limit=5"), "data.limit = 5 has no effect"),
        (("tasks", "hf:name"), "'hf:name' names no data set; expected hf:owner/name[@revision]"),
        (
            ("tasks", "rows.jsonl.gz"),
            "'rows.jsonl.gz' is no file of rows that is read: expected .jsonl, .json, .parquet, "
            ".csv or .tsv",
        ),
        (("train", "--task", "rows.txt", "--model", "."), "'rows.txt' is no file of rows that is"),
        (
            ("tasks", "mult.py"),
            "'mult.py' names no class: a task is module:Class; did you mean mult:Product?",
        ),
        (
            ("tasks", "some/mult.py"),
            "'some/mult.py' names no class: a task is module:Class; did you mean mult:Product in "
            "the folder 'some'?",
        ),
        (("tasks", "no.py"), "'no.py' names no class: a task is module:Class; expected one"),
        (("tasks", "broken:Task"), "broken.py:2: NameError: name 'Split' is not defined"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[1:]),
)
def test_what_cannot_be_read_ends_with_code_2(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    write(tmp_path / "rows.jsonl")
    (tmp_path / "bad.jsonl").write_bytes(b'{"problem": "1?", "answer": "1"}\n"\xff"\n')
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "rows.jsonl.gz").touch()
    (tmp_path / "rows.txt").touch()
    (tmp_path / "some").mkdir()
    for folder in ("", "some"):
        source = "class Other: ...\nclass Product:\n    def problems(self): ...\n"
        (tmp_path / folder / "mult.py").write_text(source)
    (tmp_path / "broken.py").write_text("class Task:\n    def problems(self, split: Split): ...\n")
    (tmp_path / "folder.jsonl").mkdir()
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"repl-rl: {message}")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_table_is_a_task(call: Call, tmp_path: Path) -> None:
    rows = "".join(f"{row['problem']},{row['answer']}\n" for row in ROWS)
    (tmp_path / "rows.csv").write_text(f"problem,answer\n{rows}")
    code, _, err = call("tasks", "rows.csv", "-n", "1")
    assert code == 0
    assert err == (
        "repl-rl: rows.csv: problems 20, held out 1; statement 'problem', answer 'answer'; graded "
        "by integer 20\n"
    )


@pytest.mark.slow
def test_a_file_is_found_beside_the_config_that_names_it(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "some" / "rows.jsonl")
    (tmp_path / "some" / "mine.toml").write_text("task = 'rows.jsonl'\n[data]\nlimit = 5\n")
    code, _, err = call("tasks", "--config", "some/mine.toml")
    assert code == 0
    assert "rows.jsonl: problems 5" in err


def test_names_of_data_are_told_from_those_of_classes() -> None:
    data = ["a.jsonl", "../b/a.json", "/c/a.parquet", "hf:owner/name", "reasoning-gym:leg"]
    assert all(map(names.is_data, data))
    assert not any(map(names.is_data, ["sympy-proofs", "module:Class", "package.module:Class"]))
    assert names.split_hub_name("hf:owner/name@v1.0") == ("owner/name", "v1.0")


# The task in a program


def task_of(path: Path) -> StoredTask:
    task, _ = load_task(str(path), DataConfig(held_out=0.25))
    assert isinstance(task, StoredTask)
    return task


def test_the_order_of_problems_is_a_function_of_the_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl")

    def ids(seed: int) -> list[str]:
        return [problem.id for problem in task_of(path).problems(Split.TRAIN, seed=seed)]

    assert ids(1) == ids(1) != ids(2)
    assert sorted(ids(1)) == sorted(ids(2))
    held = {problem.id for problem in task_of(path).problems(Split.HELD_OUT, seed=1)}
    assert len(held | set(ids(1))) == 20


def test_a_file_is_read_once_and_not_before_it_is_asked_for(tmp_path: Path) -> None:
    """The file at the start of a run stays its data."""
    path = write(tmp_path / "rows.jsonl", [{"what": "no problem"}])
    task = task_of(path)
    write(path)
    assert " 20 of 20 rows taken" in task.read().record
    path.unlink()
    assert len(list(task.problems(Split.HELD_OUT, seed=0))) > 0


def test_the_record_names_file_and_digest(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert task_of(path).read().record == f"{path}: sha256 {sha256}, 20 of 20 rows taken, 0 refused"


def test_a_grader_needs_no_file(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl")
    task, spec = load_task(str(path))
    problem = next(task.problems(Split.TRAIN, seed=0))
    path.unlink()
    judge = load_spec(spec)
    assert callable(judge)
    assert judge().grade(problem, problem.meta["answer"]).is_solved


def test_a_task_that_reads_nothing_refuses_settings_of_data() -> None:
    with pytest.raises(ConfigError, match=r"^data\.answer = 'gold' has no effect: task"):
        load_task("sympy-proofs", DataConfig(answer="gold"))
