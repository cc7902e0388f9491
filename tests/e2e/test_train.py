"""The main command from outside: what it leaves, what it refuses, how it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metric_table import METRICS, SECTIONS
from repl_rl.config.resolve import resolve
from repl_rl.models.loading import load_model, pick_device
from repl_rl.models.precision import Precision
from repl_rl.runs.folder import numbered_checkpoints
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.transcript.format import span_mask
from run_metrics import read_metrics
from small_run import small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]


def test_two_steps_leave_a_whole_run_and_no_process(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    given = ("train", "--model", str(tiny_model), "--output", "run")
    ended = repl_rl(*given, *small(), cold=True)
    assert ended.code == 0, ended.stderr
    assert ended.left_behind == []
    run = tmp_path / "run"
    assert ended.stderr == ""
    assert "held-out solve rate: " in ended.stdout
    check_config(run, tiny_model)
    check_metrics(run)
    check_trajectories(run)
    check_checkpoint(run)
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"checkpoint-2", "final"}


def check_config(run: Path, model: Path) -> None:
    config = resolve(files=[run / "config.toml"])
    assert (config.grpo.steps, config.model) == (2, str(model))
    assert {"repl_rl", "torch", "trl", "isolation"} <= set(
        json.loads((run / "versions.json").read_text())
    )


def check_metrics(run: Path) -> None:
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(isinstance(row["solve_rate"], float) for row in rows)
    check_names(read_metrics(run / "metrics.jsonl"))
    check_times(read_metrics(run / "metrics.jsonl"))


def check_names(rows: list[dict[str, Any]]) -> None:
    """Each column has a definition, and each number that has no condition is there."""
    step_names = {name for row in rows if "loss" in row for name in row}
    evaluation_names = {name for row in rows if "loss" not in row for name in row}
    assert step_names | evaluation_names <= METRICS.keys()
    for title, section in SECTIONS.items():
        always = {name for one in section if not one.when for name in one.names}
        if title != "Rows of evaluations":
            assert always <= step_names
        if title in ("Every row", "Rows of evaluations"):
            assert always <= evaluation_names


def check_times(rows: list[dict[str, Any]]) -> None:
    """The parts of a step add up to it: from the end of the one before, less the evaluation."""
    *_, first, second = [row for row in rows if "loss" in row]
    parts = [value for name, value in second.items() if name.startswith("time/")]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(second["wall_s"] - first["wall_s"], abs=0.05)


def check_trajectories(run: Path) -> None:
    files = {path.stem: list(read_trajectories(path)) for path in (run / "trajectories").iterdir()}
    assert {name: len(scored) for name, scored in files.items()} == {
        "eval-000000": 2,
        "step-000000": 4,
        "step-000001": 4,
        "eval-000002": 2,
    }
    for scored in files["step-000001"]:
        assert span_mask(scored.trajectory) == list(scored.trajectory.loss_mask)
        assert scored.trajectory.policy_version == 1


def check_checkpoint(run: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "final")
    tokenizer = AutoTokenizer.from_pretrained(run / "checkpoints" / "final")
    assert model.config.vocab_size == len(tokenizer)


# What is refused


def refused(ended: Any) -> str:
    """The one line that a refusal prints."""
    assert ended.code == 2, ended.stderr
    assert ended.left_behind == []
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    return str(lines[0])


def test_an_unknown_task_names_the_nearest(repl_rl: Command) -> None:
    line = refused(repl_rl("train", "--task", "sympy-proof"))
    assert line.startswith("repl-rl: unknown task 'sympy-proof'; did you mean 'sympy-proofs'?")


def test_an_unknown_key_names_the_nearest(repl_rl: Command) -> None:
    ended = repl_rl("train", "--set", "grpo.step=2")
    assert refused(ended) == "repl-rl: unknown key 'grpo.step'; did you mean 'grpo.steps'?"


def test_a_model_that_is_on_no_hub_is_refused(repl_rl: Command) -> None:
    assert "'models/none'" in refused(repl_rl("train", "--model", "models/none"))


def test_an_output_that_cannot_be_written_is_refused_before_a_starter_is_made(
    repl_rl: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write to 'file/run'" in refused(repl_rl("train", "--output", "file/run"))
    assert not (tmp_path / "cache").exists()


def test_a_batch_that_cannot_fit_in_memory_is_refused(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    """2 x 2 layers x 4 heads x 32 x 4 bytes x 160 tokens x 10 million rows: 3 TiB and more."""
    huge = small(sampling__max_in_flight=10_000_000)
    line = refused(repl_rl("train", "--model", str(tiny_model), "--output", "run", *huge))
    assert "lower sampling.max_in_flight or sampling.max_tokens" in line
    assert not (tmp_path / "run").exists()


def test_a_refused_run_does_not_occupy_its_output(repl_rl: Command, tmp_path: Path) -> None:
    line = refused(repl_rl("train", "--model", "/no/such/model", "--output", "run"))
    assert line.startswith("repl-rl: no such run or folder '/no/such/model'")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_run_whose_weights_explode_ends_in_an_error(repl_rl: Command, tiny_model: Path) -> None:
    """Random siblings differ in their errors, so there is a gradient for 1e30 to blow up."""
    exploding = small(grpo__learning_rate=1e30, grpo__warmup_steps=0, grpo__steps=9)
    ended = repl_rl("train", "--model", str(tiny_model), "--output", "run", *exploding)
    assert ended.code == 1, ended.stderr
    assert ended.left_behind == []
    assert "not finite" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_an_unknown_flag_names_the_nearest(repl_rl: Command) -> None:
    ended = repl_rl("train", "--modle", "x")
    assert ended.code == 2
    assert "No such option '--modle'. Did you mean '--model'?" in ended.stderr
    assert "Traceback" not in ended.stderr


# Ctrl-C


@pytest.mark.parametrize(
    ("signal_", "in_background", "code"),
    [(signal.SIGINT, False, 130), (signal.SIGTERM, True, 143)],
)
def test_an_interrupt_leaves_readable_files_and_no_process(
    repl_rl: Command,
    tiny_model: Path,
    tmp_path: Path,
    signal_: signal.Signals,
    in_background: bool,
    code: int,
) -> None:
    run = tmp_path / "run"
    metrics = run / "metrics.jsonl"
    ended = repl_rl(
        *("train", "--model", str(tiny_model), "--output", "run", *small(grpo__steps=5000)),
        interrupt_when=lambda: metrics.exists() and '"step": 3' in metrics.read_text(),
        interrupt_with=signal_,
        in_background=in_background,
        cold=in_background,
    )
    assert ended.code == code, ended.stderr
    assert ended.left_behind == []
    # The first newline is click's: it ends the line on which a terminal shows `^C`.
    told = re.fullmatch(
        r"\nrepl-rl: interrupted; after step (\d+): run holds metrics and trajectories, "
        r"and whole weights in checkpoints/checkpoint-(\d+)\n\n"
        r"next:\n  repl-rl eval run\n  repl-rl show run --worst\n  repl-rl train --resume run\n",
        ended.stderr,
    )
    assert told is not None, ended.stderr
    assert told[1] == told[2]
    assert len(read_metrics(metrics)) >= 3
    for path in (run / "trajectories").iterdir():
        assert list(read_trajectories(path))


def test_an_interrupt_before_a_run_begins_says_that_nothing_was_written(
    repl_rl: Command, tmp_path: Path
) -> None:
    ended = repl_rl(
        *("train", "--output", "run"),
        interrupt_when=lambda: "demonstrations" in (tmp_path / "out").read_text(),
    )
    assert (ended.code, ended.left_behind) == (130, [])
    assert ended.stderr == "\nrepl-rl: interrupted; nothing was written\n"
    assert not (tmp_path / "run").exists()
    assert list((tmp_path / "cache" / "starters").iterdir()) == []


def test_a_disk_that_fills_up_is_one_line_that_names_the_last_whole_checkpoint(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    """About 0.2 MB a checkpoint: some fit on the disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk here")
    settings = small(grpo__steps=5000, report__checkpoint_every=1, report__keep_checkpoints=999)
    try:
        ended = repl_rl("train", "--model", str(tiny_model), "--output", "disk/run", *settings)
        whole = numbered_checkpoints(disk / "run" / "checkpoints")
        assert ended.code == 1, ended.stderr
        (line,) = ended.stderr.splitlines()
        assert re.match(r"repl-rl: cannot write 'disk/run/[^']*': No space left on device; ", line)
        assert line.endswith(f", and whole weights in checkpoints/{whole[-1].name}")
        for path in whole:
            load_model(str(path), device=pick_device("cpu"), precision=Precision())
        for path in (disk / "run" / "trajectories").iterdir():
            assert all(read_trajectories(path))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_help_answers_at_once(repl_rl: Command) -> None:
    ended = repl_rl("--help", cold=True)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.seconds < 2.0 * max(1.0, os.getloadavg()[0])
