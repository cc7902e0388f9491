"""Laws of rollouts that are made beside the update before them: whose weights, and going on."""

from __future__ import annotations

import itertools
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copying_kind import CopyingKind
from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError, EngineError, StorageError
from repl_rl.records import Scored
from repl_rl.rollout.plan import make_plan
from repl_rl.runs.trajectory_file import read_trajectories, rows_of
from repl_rl.testing.under_test import one_thread
from repl_rl.training import steps
from repl_rl.training.train import train
from run_metrics import read_metrics
from same_run import differences
from shared_work import once, shared_folder
from small_run import small, small_settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.train,
    pytest.mark.kernel,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

ENGINE = Path(__file__).parents[1] / "support" / "copying_kind.py"
CHANGES: dict[str, object] = {
    "sampling__engine": "copying_kind:CopyingKind",
    "grpo__staleness": 1,
    "grpo__steps": 5,
    "grpo__problems_per_step": 3,
    "grpo__learning_rate": 1e-2,
    "grpo__warmup_steps": 0,
    "report__checkpoint_every": 2,
    "report__keep_checkpoints": 9,
    "sampling__max_in_flight": 1,  # rows of a batch round by what is beside them
}
FORMS: dict[str, dict[str, object]] = {
    "lines": {},
    "trees": {"grpo__credit": "tree", "grpo__branching": "[2, 2]"},
}


def run(model: Path, path: Path, changes: dict[str, object], *, resume: bool = False) -> Path:
    settings = small_settings(**(CHANGES | changes))
    with one_thread():
        plan = make_plan(resolve(flags={"model": str(model)}, overrides=settings), to_train=True)
        train(plan, path, resume=resume)
    return path


def rows(path: Path, step: int) -> list[Scored]:
    return list(read_trajectories(path / "trajectories" / f"step-{step:06d}.jsonl"))


def sampled(scored: list[Scored]) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    return [(one.trajectory.completion_ids, one.trajectory.logprobs) for one in scored]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> dict[str, object]:
    found: dict[str, object] = FORMS[request.param]
    return found


@pytest.fixture
def whole(
    form: dict[str, object], tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that was never ended, made once."""
    path = shared_folder(tmp_path_factory) / f"stale-{len(form)}"
    return once(
        path, lambda path: shutil.move(run(tiny_model, path.with_suffix(".made"), form), path)
    )


@pytest.fixture
def plain(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of lines that was never ended."""
    path = shared_folder(tmp_path_factory) / "stale-0"
    return once(
        path, lambda path: shutil.move(run(tiny_model, path.with_suffix(".made"), {}), path)
    )


def test_a_step_is_sampled_by_the_weights_from_before_the_last_update(
    tiny_model: Path, tmp_path: Path, whole: Path, form: dict[str, object]
) -> None:
    """With a rate of 0 weights never move. The rows that update k is made from are in file k - 1;
    where it is the first that moves weights, those of update k + 1 are sampled without them."""
    versions = [{one.trajectory.policy_version for one in rows(whole, step)} for step in range(5)]
    assert versions == [{0}, {0}, {1}, {2}, {3}]
    numbers = [row for row in read_metrics(whole / "metrics.jsonl") if "loss" in row]
    assert all("importance/ratio_mean" in row for row in numbers)
    first = next(row["step"] for row in numbers if row["grad_norm"])
    still = run(tiny_model, tmp_path / "still", form | {"grpo__learning_rate": 0.0})
    for step in range(first + 1):
        assert sampled(rows(whole, step)) == sampled(rows(still, step))
    assert sampled(rows(whole, first + 1)) != sampled(rows(still, first + 1))


@pytest.mark.parametrize("step", [2, 4])
def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_never_ended(
    tiny_model: Path, tmp_path: Path, whole: Path, form: dict[str, object], step: int
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    shutil.rmtree(checkpoints / "final")
    for later in range(step + 1, 6):
        shutil.rmtree(checkpoints / f"checkpoint-{later}", ignore_errors=True)
    run(tiny_model, tmp_path / "run", form, resume=True)
    assert differences(whole, tmp_path / "run") == []


def test_an_engine_that_shares_the_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^grpo\.staleness = 1 with the engine 'hf', which"):
        make_plan(
            resolve(flags={"model": "m"}, overrides=["grpo.staleness=1", "sampling.engine=hf"]),
            to_train=True,
        )


def test_rollouts_that_fail_beside_an_update_end_the_run_with_a_checkpoint_to_go_on_from(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: Path
) -> None:
    """The weights of step 2 have sampled nothing when step 3 has ended: none is kept of it."""
    monkeypatch.setattr(CopyingKind, "fails_at", 2)
    with pytest.raises(EngineError, match="the copy is gone"):
        run(tiny_model, tmp_path / "run", {})
    names = {path.name for path in (tmp_path / "run" / "checkpoints").glob("checkpoint-*")}
    assert names == {"checkpoint-2"}
    monkeypatch.undo()
    assert_goes_on_as(plain, tiny_model, tmp_path / "run")


def assert_goes_on_as(whole: Path, model: Path, ended: Path) -> None:
    """It goes on in the process in which it failed."""
    assert differences(whole, run(model, ended, {}, resume=True)) == []


def test_rows_made_ahead_that_do_not_fit_leave_the_checkpoint_before_to_go_on_from(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: Path
) -> None:
    """The disk refuses those of the checkpoint of step 4, whose weights have sampled nothing."""
    limits, path = resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "run"
    encode, num_saves = rows_of, itertools.count(1)

    def too_many(scored: list[Scored]) -> bytes:
        return encode(scored) if next(num_saves) < 2 else bytes(1 << 26)

    monkeypatch.setattr(steps, "rows_of", too_many)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 25, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"^cannot write '.*ahead\.jsonl': File too large$"):
            run(tiny_model, path, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [one.name for one in (path / "checkpoints").iterdir()] == ["checkpoint-2"]
    monkeypatch.undo()
    assert_goes_on_as(plain, tiny_model, path)


@pytest.mark.usefixtures("jumping_clock")
def test_a_clock_that_jumps_changes_no_row_and_no_weight(
    tiny_model: Path, tmp_path: Path, plain: Path
) -> None:
    assert differences(plain, run(tiny_model, tmp_path / "run", {})) == []


@pytest.mark.deaths
@pytest.mark.parametrize("when", [2, 3, 4])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_at_any_moment_makes_the_same_trajectories(
    repl_rl: Callable[..., Any],
    tiny_model: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    when: int,
    how: signal.Signals,
) -> None:
    words = ("train", "--model", str(tiny_model), "--output", "run", *small(**CHANGES))
    shutil.copy(ENGINE, tmp_path)  # where the command finds it

    def make(path: Path) -> None:
        assert repl_rl(*words).code == 0
        shutil.move(tmp_path / "run", path)

    reference = once(shared_folder(tmp_path_factory) / "stale-command", make)
    file = tmp_path / "run" / "metrics.jsonl"
    ended = repl_rl(
        *words,
        interrupt_when=lambda: file.exists() and file.read_bytes().count(b"\n") >= when,
        interrupt_with=how,
    )
    assert ended.left_behind == [], ended.stderr
    resumed = repl_rl("train", "--resume", "run")
    assert resumed.code == 0, resumed.stderr
    found = differences(reference, tmp_path / "run")
    assert all(text.startswith("weights of checkpoint-") for text in found), found
