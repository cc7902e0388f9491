"""Laws of a run that was ended and goes on: it is the run that was never ended."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from event_file import same_rows
from run_metrics import read_metrics
from same_run import differences
from shared_work import once, shared_folder
from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]

SETTINGS = small(
    grpo__steps=5,
    grpo__micro_batch_size=2,
    grpo__learning_rate=1e-3,
    grpo__kl_beta=0.01,
    eval__every=2,
    report__checkpoint_every=2,
    report__trackers='["tensorboard"]',
    sampling__max_in_flight=1,  # rows of a batch round by what is beside them
)


@pytest.fixture
def reference(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that was never ended, made once."""

    def make(path: Path) -> None:
        ended = repl_rl("train", "--model", str(tiny_model), "--output", "whole", *SETTINGS)
        assert ended.code == 0, ended.stderr
        shutil.move(tmp_path / "whole", path)

    return once(shared_folder(tmp_path_factory) / "whole-run", make)


def exists(path: Path) -> Callable[[], bool]:
    return path.exists


def has_rows(run: Path, count: int) -> Callable[[], bool]:
    """A measurement takes a row, and so does an update."""
    path = run / "metrics.jsonl"
    return lambda: path.exists() and path.read_bytes().count(b"\n") >= count


@pytest.mark.long
@pytest.mark.parametrize(
    ("phase", "when"),
    [
        ("the first rollouts", lambda run: has_rows(run, 1)),
        ("a save", lambda run: exists(run / "checkpoints" / ".unfinished-checkpoint-2")),
        ("the end", lambda run: exists(run / "checkpoints" / "final")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_killed_run_goes_on_as_if_it_had_not_been(
    repl_rl: Command,
    tiny_model: Path,
    tmp_path: Path,
    reference: Path,
    phase: str,
    when: Callable[[Path], Callable[[], bool]],
) -> None:
    run = tmp_path / "run"
    killed = repl_rl(
        *("train", "--model", str(tiny_model), "--output", "run", *SETTINGS),
        interrupt_when=when(run),
        interrupt_with=signal.SIGKILL,
    )
    if killed.code == 0:
        pytest.skip(f"{phase} was over before it was seen")
    resumed = repl_rl("train", "--resume", "run")
    assert resumed.code == 0, resumed.stderr
    assert differences(reference, run) == []
    assert same_rows(run)


@pytest.mark.long
@pytest.mark.parametrize("when", [1, 4])
def test_an_interrupted_run_keeps_its_last_step_and_goes_on_from_it(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, reference: Path, when: int
) -> None:
    run = tmp_path / "run"
    ended = repl_rl(
        *("train", "--model", str(tiny_model), "--output", "run", *SETTINGS),
        interrupt_when=has_rows(run, when),
        interrupt_with=signal.SIGTERM,
    )
    assert (ended.code, ended.left_behind) == (143, []), ended.stderr
    steps = [row["step"] for row in read_metrics(run / "metrics.jsonl") if "loss" in row]
    if steps:
        assert (run / "checkpoints" / f"checkpoint-{steps[-1]}" / "COMPLETE").exists()
    resumed = repl_rl("train", "--resume", "run")
    assert resumed.code == 0, resumed.stderr
    assert same_rows(run)
    assert differences(reference, run) == [] or _only_checkpoints_differ(reference, run)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_of_several_updates_a_rollout_goes_on_with_a_rollout_of_its_own(
    repl_rl: Command,
    tiny_model: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    how: signal.Signals,
) -> None:
    """Ended in the second of three rollouts of two problems, each gone through twice."""
    start = ("train", "--model", str(tiny_model), "--output", "run", *SETTINGS)
    words = (*start, *set_words("grpo.updates_per_rollout=2", "grpo.passes=2", "grpo.steps=12"))

    def make(path: Path) -> None:
        assert repl_rl(*words).code == 0
        shutil.move(tmp_path / "run", path)

    whole = once(shared_folder(tmp_path_factory) / "whole-run-of-passes", make)
    run = tmp_path / "run"
    # A row for each of six updates, and for the measurements before the first and the fifth.
    ended = repl_rl(*words, interrupt_when=has_rows(run, 8), interrupt_with=how)
    assert ended.code == (-how if how is signal.SIGKILL else 128 + how), ended.stderr
    resumed = repl_rl("train", "--resume", "run")
    assert resumed.code == 0, resumed.stderr
    assert "resumed after step 4\n" in resumed.stdout or "after step 8\n" in resumed.stdout
    assert differences(whole, run) == []
    assert same_rows(run)


def _only_checkpoints_differ(one: Path, other: Path) -> bool:
    """The step that was interrupted has a checkpoint of its own, and an older one made room."""
    found = differences(one, other)
    return all(text.startswith("weights of checkpoint-") for text in found)


def test_a_second_signal_ends_it_at_once_and_leaves_no_process(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    sent = 0

    def again() -> bool:
        """True three times: the first one asks, the others insist."""
        nonlocal sent
        sent += has_rows(run, 2)()
        return sent == 1

    ended = repl_rl(
        *("train", "--model", str(tiny_model), "--output", "run", *small(grpo__steps=5000)),
        interrupt_when=again,
        interrupt_with=signal.SIGTERM,
    )
    assert (ended.code, ended.left_behind) == (143, [])


def test_a_longer_run_goes_on_where_the_shorter_one_ended(
    repl_rl: Command, tmp_path: Path, reference: Path
) -> None:
    shutil.copytree(reference, tmp_path / "run")
    best, final = (reference / "checkpoints" / name / "UPDATES" for name in ("best", "final"))
    assert (best.read_text(), final.read_text()) == ("2\n", "5\n")
    refused = repl_rl("train", "--resume", "run")
    assert refused.code == 2
    assert refused.stderr == (
        "repl-rl: 'run' has ended after step 5; give it more to do with --set grpo.steps=N\n"
    )
    longer = repl_rl("train", "--resume", "run", "--set", "grpo.steps=7")
    assert longer.code == 0, longer.stderr
    assert "repl-rl: grpo.steps = 7, 5 before\n" in longer.stderr
    assert "resumed after step 5\n" in longer.stdout
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["step"] for row in rows if "eval_solve_rate" in row] == [0, 2, 4, 5, 6, 7]


UNMEASURED = (*SETTINGS, *set_words("eval.problems=0", "grpo.steps=2"))


@pytest.mark.timeout(300)
def test_a_run_that_measures_nothing_goes_on_and_says_no_rate(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    first = repl_rl("train", "--model", str(tiny_model), "--output", "run", *UNMEASURED)
    assert first.code == 0, first.stderr
    assert "held-out solve rate: not measured before, not measured after\n" in first.stdout
    resumed = repl_rl("train", "--resume", "run", "--set", "grpo.steps=3")
    assert resumed.code == 0, resumed.stderr
    assert "resumed after step 2\n" in resumed.stdout
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert not [name for row in rows for name in row if name.startswith("eval_")]
    assert same_rows(tmp_path / "run")
    again = repl_rl("train", "--resume", "run", "--set", "grpo.steps=3")
    assert (again.code, "has ended after step 3" in again.stderr) == (2, True)
    card = (tmp_path / "run" / "checkpoints" / "final" / "README.md").read_text()
    assert "## Held-out problems\n\nNot measured.\n" in card
    assert repl_rl("plot", "run").code == 0
    assert repl_rl("show", "run", "-n", "1").code == 0
    measured = repl_rl("eval", "run")
    assert (measured.code, "eval.problems = 0" in measured.stderr) == (2, True)


@pytest.mark.timeout(300)
def test_a_pickle_that_no_run_has_written_is_not_loaded(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    words = ("train", "--model", str(tiny_model), *UNMEASURED, "--set", "grpo.steps=1")
    assert repl_rl(*words, "--output", "run").code == 0
    (state,) = (tmp_path / "run").glob("checkpoints/checkpoint-1/optimizer.pt")
    state.write_bytes(b"cos\nmkdir\n(S'unpickled'\ntR.")
    resumed = repl_rl("train", "--resume", "run", "--set", "grpo.steps=2")
    assert (resumed.code, "Traceback" in resumed.stderr) == (2, False)
    assert "a pickle in it has more than weights, which may be code" in resumed.stderr
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.long
def test_a_killed_run_that_measures_nothing_goes_on_as_if_it_had_not_been(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    words = ("train", "--model", str(tiny_model), *UNMEASURED, "--set", "grpo.steps=5")
    assert repl_rl(*words, "--output", "whole").code == 0
    killed = repl_rl(
        *(*words, "--output", "run"),
        interrupt_when=exists(tmp_path / "run" / "checkpoints" / "checkpoint-2" / "COMPLETE"),
        interrupt_with=signal.SIGKILL,
    )
    assert killed.code == -signal.SIGKILL, killed.stderr
    resumed = repl_rl("train", "--resume", "run")
    assert resumed.code == 0, resumed.stderr
    assert differences(tmp_path / "whole", tmp_path / "run") == []
