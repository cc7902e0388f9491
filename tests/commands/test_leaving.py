"""Laws of what is said of a run that did not end: what is there, what is not, how to go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repl_rl.commands.options import code_options
from repl_rl.commands.train import commands, left_by, next_after, next_after_end
from repl_rl.config.resolve import resolve
from repl_rl.rollout.plan import make_plan


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    return Path("runs/a")


def write(run: Path, *rows: str, checkpoints: tuple[str, ...] = ()) -> None:
    (run / "metrics.jsonl").write_text("".join(rows))
    for name in checkpoints:
        (run / "checkpoints" / name).mkdir(parents=True)
        (run / "checkpoints" / name / "model.safetensors").touch()


def test_before_there_is_a_run_nothing_was_written(run: Path) -> None:
    assert left_by(run, checkpoint_every=50) == "nothing was written"
    assert next_after(run) == ""


def test_before_the_first_step_a_run_is_begun(run: Path) -> None:
    write(run, '{"step": 0}\n')
    assert left_by(run, checkpoint_every=50) == ("runs/a has begun, and nothing was trained yet")


def test_before_the_first_checkpoint_there_are_steps_and_no_weights(run: Path) -> None:
    write(run, '{"step": 0}\n', '{"step": 3}\n', '{"step": 4')
    assert left_by(run, checkpoint_every=50) == (
        "after step 3: runs/a holds metrics and trajectories, but no weights: the first checkpoint "
        "comes after step 50"
    )
    assert next_after(run) == (
        "next:\n  repl-rl show runs/a --worst\n  repl-rl train --resume runs/a"
    )


def test_after_a_checkpoint_a_command_goes_on_from_it(run: Path) -> None:
    write(run, '{"step": 61}\n', checkpoints=("checkpoint-9", "checkpoint-50"))
    assert left_by(run, checkpoint_every=50) == (
        "after step 61: runs/a holds metrics and trajectories, and whole weights in "
        "checkpoints/checkpoint-50"
    )
    assert next_after(run) == (
        "next:\n"
        "  repl-rl eval runs/a\n"
        "  repl-rl show runs/a --worst\n"
        "  repl-rl train --resume runs/a"
    )


def test_commands_find_the_modules_that_the_run_has_found(run: Path) -> None:
    write(run, '{"step": 9}\n', checkpoints=("final",))
    assert next_after(run, ["--config", "own.toml"]) == (
        "next:\n"
        "  repl-rl eval runs/a --config own.toml\n"
        "  repl-rl show runs/a --worst\n"
        "  repl-rl train --config own.toml --resume runs/a"
    )


@pytest.mark.parametrize("setting", ["grpo.credit", "sampling.engine"])
def test_a_module_that_a_setting_names_is_found_again_by_the_same_config(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "elsewhere" / "own.toml"
    plan = make_plan(resolve(overrides=["grpo.credit=outcome"]))
    assert code_options(plan, [there]) == []
    section, name = setting.split(".")
    own = replace(getattr(plan.config, section), **{name: "mine:Own"})
    named = replace(plan, config=replace(plan.config, **{section: own}))
    assert code_options(named, [there]) == ["--config", str(there)]


def test_a_command_is_quoted_and_fits_a_terminal() -> None:
    assert commands(["repl-rl", "eval", "my run"]) == "next:\n  repl-rl eval 'my run'"
    long = "runs/sympy-proofs-20260101-120000"
    told = commands(["repl-rl", "train", "--config", f"{long}/config.toml", "--seed", "123"])
    assert max(map(len, told.splitlines())) <= 80


# A run that ended


def test_after_its_end_the_best_way_to_look_comes_first() -> None:
    assert next_after_end(Path("runs/a")).splitlines() == [
        "next:",
        "  repl-rl replay runs/a --html runs/a/page.html",
        "  repl-rl reward explain runs/a",
        "  repl-rl replay runs/a --worst",
        "  repl-rl eval runs/a",
        "  repl-rl ask QUESTION --model runs/a",
    ]
