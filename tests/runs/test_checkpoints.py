"""Laws of runs and their checkpoints: which weights are meant, and which settings come along."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repl_rl.commands import options as shared
from repl_rl.config.resolve import num_changed, resolve, to_toml, user_settings
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import make_plan, plan_of_model
from repl_rl.runs.folder import (
    RunFolder,
    make_origin,
    model_of,
    newest_checkpoint,
    refuse_foreign_run,
    run_of,
)

OWN = resolve(overrides=["model=m", "seed=5", "sampling.max_tokens=224", "eval.problems=3"])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was interrupted after its tenth step, while it wrote a checkpoint."""
    monkeypatch.chdir(tmp_path)
    made = Path("runs") / "mine"
    for number in (2, 10):
        (made / "checkpoints" / f"checkpoint-{number}").mkdir(parents=True)
        (made / "checkpoints" / f"checkpoint-{number}" / "model.safetensors").touch()
    (made / "checkpoints" / "checkpoint-12").mkdir()
    (made / "config.toml").write_text(to_toml(OWN))
    return made


def test_an_interrupted_run_has_the_highest_number_that_is_whole(run: Path) -> None:
    """Sorted as words, 2 stands behind 10; and 12 has no weights."""
    assert newest_checkpoint(run) == run / "checkpoints" / "checkpoint-10"


def test_a_run_that_ended_has_its_last_weights(run: Path) -> None:
    (run / "checkpoints" / "final").mkdir()
    assert model_of(run) == run / "checkpoints" / "final"


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(ConfigError, match=r"has no checkpoint: .* report\.checkpoint_every"):
        newest_checkpoint(tmp_path)


def test_a_checkpoint_belongs_to_its_run_and_a_model_to_none(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = run / "checkpoints" / "checkpoint-2"
    assert (run_of(run), run_of(inside)) == (run, run)
    assert [run_of(path) for path in (run.parent, run / "checkpoints", Path("none"))] == [None] * 3
    (run.parent / "config.json").touch()
    assert model_of(run.parent) == run.parent
    home = run.resolve()
    monkeypatch.chdir(inside)
    assert run_of(Path()) == home


OPTIONS: dict[str, Any] = {"files": (), "overrides": (), "model": None}


@pytest.mark.parametrize(
    ("named", "meant", "said"),
    [
        ("", "checkpoint-10", ["checkpoint-10 of runs/mine"]),
        ("checkpoints/checkpoint-2", "checkpoint-2", []),
    ],
)
def test_a_run_and_its_checkpoints_bring_their_settings(
    run: Path, capsys: pytest.CaptureFixture[str], named: str, meant: str, said: list[str]
) -> None:
    """Three values differ from the run's: the two that are set, and the flag's."""
    changed = ("eval.problems=9", "sampling.max_tokens=300")
    config = shared.plan_of_run(run / named, {**OPTIONS, "overrides": changed, "seed": 6}).config
    assert config.model == str(run / "checkpoints" / meant)
    assert (config.seed, config.eval.problems, config.sampling.max_tokens) == (6, 9, 300)
    assert config.grpo == OWN.grpo
    rows = [f"repl-rl: {row}" for row in (*said, "settings of runs/mine/config.toml, 3 changed")]
    assert capsys.readouterr().err.splitlines() == rows


def test_what_belongs_to_no_run_is_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = shared.plan_of_run(tmp_path, OPTIONS).config
    assert config == make_plan(resolve(flags={"model": str(tmp_path)})).config
    assert capsys.readouterr().err == ""


def test_a_run_may_be_named_as_the_model_of_another(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = shared.resolve({**OPTIONS, "model": str(run)})
    assert config.model == str(run / "checkpoints" / "checkpoint-10")
    assert config.eval.problems == 200
    assert capsys.readouterr().err == "repl-rl: checkpoint-10 of runs/mine\n"


def test_changes_are_counted_value_by_value_and_the_model_is_none() -> None:
    other = resolve(
        overrides=["model=n", "seed=5", "sampling.max_tokens=224", "reward.line.timeout=-0.2"]
    )
    assert num_changed(OWN, other) == 2


FOREIGN = [
    ("task.name", '"os:abort"', "names code of its own"),
    ("reward.function", '"os:abort"', "names code of its own"),
    ("sampling.engine", '"os:abort"', "names code of its own"),
    ("sandbox.preload", '["antigravity"]', "has kernels load 'antigravity'"),
    ("sandbox.warmup", '["import os"]', "reaches beyond kernels"),
    ("sandbox.isolation", '"none"', "reaches beyond kernels"),
    ("sampling.servers", '["http://a"]', "reaches beyond kernels"),
    ("workers.launch", '["sh -c date"]', "reaches beyond kernels"),
]


@pytest.fixture
def stranger(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`stranger("a.b", "1")` gives the run a config of nobody here, and returns it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def write(key: str, value: str) -> str:
        section, _, leaf = key.rpartition(".")
        text = f"model = 'm'\nworkers.count = 1\n{section}.{leaf} = {value}\n"
        (run / "config.toml").write_text(text)
        return text

    return write


@pytest.mark.parametrize(("key", "value", "said"), FOREIGN)
def test_a_run_of_a_stranger_has_no_code_run_unless_it_is_named(
    run: Path, stranger: Callable[..., str], key: str, value: str, said: str
) -> None:
    stranger(key, value)
    calls: list[Callable[[], object]] = [
        lambda: shared.plan_of_run(run, OPTIONS),
        lambda: shared.plan_beside(run / "trajectories", None, OPTIONS),
        lambda: plan_of_model(str(run), {}),
    ]
    for call in calls:
        with pytest.raises(
            ConfigError, match=f"{re.escape(said)}; if you trust it: --set"
        ) as refused:
            call()
        _, word = shlex.split(str(refused.value).partition("; if you trust it: ")[2])
        assert user_settings(overrides=[word]) == user_settings(overrides=[f"{key}={value}"])


def test_all_that_a_run_of_a_stranger_has_run_is_asked_for_at_once(
    run: Path, stranger: Callable[..., str]
) -> None:
    saved = stranger("task.name", "'os:abort'") + (
        "sandbox.preload = ['antigravity']\nsandbox.isolation = 'none'\n"
        "sampling.servers = ['http://a b']\n"
    )
    (run / "config.toml").write_text(saved)
    with pytest.raises(ConfigError) as refused:
        shared.plan_of_run(run, OPTIONS)
    said, _, words = str(refused.value).partition("; if you trust it: ")
    assert said == (
        "runs/mine/config.toml names code of its own, has kernels load "
        "'antigravity', reaches beyond kernels"
    )
    asked = shlex.split(words)
    assert asked[::2] == ["--set"] * 4
    given = user_settings(overrides=asked[1::2])
    refuse_foreign_run(run, saved, resolve(saved=saved), given)


@pytest.mark.parametrize(("key", "value", "said"), FOREIGN)
def test_what_a_person_repeats_or_has_run_is_theirs(
    run: Path, stranger: Callable[..., str], tmp_path: Path, key: str, value: str, said: str
) -> None:
    saved = stranger(key, value)
    config = resolve(saved=saved)
    refuse_foreign_run(run, saved, config, user_settings(overrides=[f"{key}={value}"]))
    with pytest.raises(ConfigError, match=re.escape(said)):
        refuse_foreign_run(run, saved, config, {})
    origin = make_origin(config, setup=("x = 1",), tokenizer=None, isolation="")
    origin = replace(origin, config=saved)
    RunFolder(tmp_path / "here").write_config(origin, policy="m", device="cpu")
    refuse_foreign_run(run, saved, config, {})


@pytest.mark.parametrize("name", ["reasoning-gym:gcd", "hf:owner/name", "rows.jsonl"])
def test_data_of_a_stranger_is_no_code(run: Path, stranger: Callable[..., str], name: str) -> None:
    saved = stranger("task.name", f'"{name}"')
    refuse_foreign_run(run, saved, resolve(saved=saved), {})
