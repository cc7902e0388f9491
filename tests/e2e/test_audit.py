"""The audit from outside: silent about what is well, exit code 1 for anything that was planted."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repl_rl.commands.cli import main
from repl_rl.config import Config
from repl_rl.config.resolve import resolve, to_toml
from repl_rl.models.precision import Precision
from repl_rl.records import Scored, Trajectory
from repl_rl.rollout.plan import make_plan
from repl_rl.runs.folder import RunFolder, evaluation_name
from small_run import INLINE, set_words, small, small_settings

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
Spoil = Callable[[Trajectory], Trajectory]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def report(text: str) -> dict[str, tuple[str, str]]:
    """Name -> (mark, what is said)."""
    rows = re.findall(r"^(ok|!!)  (.+?)  +(.+)$", text, re.M)
    return {name: (mark, said) for mark, name, said in rows}


def check_clean(text: str, *, trajectories: int) -> None:
    found = report(text)
    assert {mark for mark, _ in found.values()} == {"ok"}
    assert re.fullmatch(
        rf"0 of \d+ sampled in {trajectories} trajectories", found["drifted tokens"][1]
    )
    assert found["mask disagreements"][1] == "0"
    gaps = [said for name, (_, said) in found.items() if name.startswith("gap ")]
    assert len(gaps) == 2
    for said in (*gaps, found["weights at the engine"][1]):
        assert all(float(number) < 1e-5 for number in re.findall(r"\d\.\de-?\d+", said))


def test_what_a_model_samples_is_what_would_be_trained(repl_rl: Command, tiny_model: Path) -> None:
    ended = repl_rl("audit", str(tiny_model), "-n", "4", *small())
    assert (ended.code, ended.stderr, ended.left_behind) == (0, "", [])
    check_clean(ended.stdout, trajectories=4)


def test_a_loop_of_ones_own_is_audited(repl_rl: Command, tiny_model: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "inline_calls.py", tmp_path)
    ended = repl_rl("audit", str(tiny_model), "-n", "4", *small(), *set_words(*INLINE))
    assert (ended.code, ended.stderr, ended.left_behind) == (0, "", [])
    check_clean(ended.stdout, trajectories=4)


# Runs


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> Config:
    return resolve(flags={"model": str(tiny_model)}, overrides=small_settings())


@pytest.fixture(scope="module")
def scored(config: Config) -> list[Scored]:
    """Attempts of the tiny model at two held-out problems."""
    import torch

    from repl_rl.models.loading import load_model
    from repl_rl.training.evaluate import held_out_attempts
    from repl_rl.training.runtime import open_runtime

    plan = make_plan(config)
    assert config.model is not None
    loaded = load_model(config.model, device=torch.device("cpu"), precision=Precision())
    with open_runtime(plan, loaded) as runtime:
        return runtime.run(held_out_attempts(plan.task, count=2, seed=0))


Call = Callable[..., tuple[int, dict[str, tuple[str, str]]]]


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    config: Config,
    scored: list[Scored],
) -> Iterator[Call]:
    """`call(spoil, name)`: exit code and report on a run that holds one spoiled trajectory."""
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for name in ("HF_HUB_DISABLE_TELEMETRY", "TRL_EXPERIMENTAL_SILENCE", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "1")

    def run(spoil: Spoil, name: str | None = None) -> tuple[int, dict[str, tuple[str, str]]]:
        folder = RunFolder(tmp_path / "run")
        (tmp_path / "run" / "config.toml").write_text(to_toml(config))
        assert config.model is not None
        shutil.copytree(config.model, folder.final_checkpoint)
        first, second = scored
        folder.append_trajectories(
            name or evaluation_name(config.grpo.steps),
            [first, replace(second, trajectory=spoil(second.trajectory))],
        )
        monkeypatch.setattr(sys, "argv", ["repl-rl", "audit", "run", "-n", "1"])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return int(str(code or 0)), report(capsys.readouterr().out)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def another_token(trajectory: Trajectory) -> Trajectory:
    first, *rest = trajectory.completion_ids
    return replace(trajectory, completion_ids=((first + 1) % 256, *rest))


def shifted_mask(trajectory: Trajectory) -> Trajectory:
    mask = trajectory.loss_mask
    return replace(trajectory, loss_mask=(mask[-1], *mask[:-1]))


def another_logprob(trajectory: Trajectory) -> Trajectory:
    first, *rest = trajectory.logprobs
    return replace(trajectory, logprobs=(first - 0.01, *rest))


def amiss(found: dict[str, tuple[str, str]]) -> list[str]:
    return [name for name, (mark, _) in found.items() if mark == "!!"]


def test_a_run_as_it_was_made_is_well(call: Call) -> None:
    code, found = call(lambda trajectory: trajectory)
    assert (code, amiss(found)) == (0, [])
    assert found["drifted tokens"][1].endswith(" in 3 trajectories")


def test_another_token_in_a_run_is_told_by_its_log_probabilities(call: Call) -> None:
    code, found = call(another_token)
    assert code == 1
    assert "gap at boundaries" in amiss(found)


def test_a_shifted_mask_in_a_run_is_told(call: Call, scored: list[Scored]) -> None:
    """It disagrees wherever the mask changes between neighbours, the ends being neighbours too."""
    code, found = call(shifted_mask)
    mask = scored[1].trajectory.loss_mask
    changes = sum(a != b for a, b in itertools.pairwise((*mask, mask[0])))
    assert (code, amiss(found)) == (1, ["mask disagreements"])
    assert found["mask disagreements"] == ("!!", str(changes))
    assert changes > 0


def test_a_log_probability_that_is_off_by_a_hundredth_is_told(call: Call) -> None:
    code, found = call(another_logprob)
    assert (code, amiss(found)) == (1, ["gap at boundaries"])
    assert "largest 1.0e-02 nats" in found["gap at boundaries"][1]


def test_what_earlier_weights_sampled_is_not_scored_with_the_last(call: Call) -> None:
    code, found = call(another_logprob, "step-000000")
    assert (code, amiss(found)) == (0, [])
