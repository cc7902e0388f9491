"""Laws of rollouts in worker processes: whatever becomes of these, the rows are those of none."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

import scripted_worker
from own_processes import children
from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError, StorageError, WorkerError
from repl_rl.records import Attempt, Branch, Problem, Scored, Stem
from repl_rl.rollout import workers
from repl_rl.rollout.plan import make_plan
from repl_rl.rollout.workers import Report, WorkerPool
from repl_rl.runs.trajectory_file import FORMAT
from scripted_worker import CODEC, ROWS, OneTask, SeededEngine, runner_of

pytestmark = pytest.mark.slow

T = TypeVar("T")
VERSION = 7
PYTHON_OF_TESTS = sys.executable
ALWAYS = "@always"


def attempts(number: int = 6) -> list[Attempt]:
    """Two siblings a problem."""
    return [
        Attempt(
            problem=Problem(id=f"p{at // 2}", statement=f"What is {at // 2}?", meta={"a": "1"}),
            group_index=at // 2,
            sibling_index=at % 2,
            seed=100 + at,
        )
        for at in range(number)
    ]


def made_here(wanted: Sequence[Attempt]) -> list[Scored]:
    """Rows that one process makes of them, without workers."""
    engine = SeededEngine()
    engine.version = VERSION
    return asyncio.run(runner_of(engine).run(wanted))


@dataclass
class Heard:
    """Words of a pool."""

    warnings: list[str] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    num_tokens: int = 0

    def sampled(self, num_tokens: int, busy_s: float) -> None:
        self.num_tokens += num_tokens


def launch_of(trouble: str, folder: Path) -> str:
    words = (PYTHON_OF_TESTS, scripted_worker.__file__, trouble.replace(" ", "_") or "_", folder)
    return " ".join(map(str, words))


def pool_of(
    folder: Path,
    *troubles: str,
    launch: Sequence[str] = (),
    logs: Path | None = None,
    **settings: Any,
) -> tuple[WorkerPool, Heard]:
    """A worker for each trouble, in which one of them gets once; "" stands for none."""
    commands = launch or [launch_of(trouble, folder) for trouble in troubles]
    given = {"sampling.max_in_flight": 4, "workers.count": len(commands), **settings}
    config = resolve(
        overrides=[f"{name}={value}" for name, value in given.items()],
        flags={"workers": {"launch": commands}},
    )
    heard = Heard()
    files: Any = SimpleNamespace(name="a model", codec=CODEC, vocabulary=256)
    pool = WorkerPool(
        plan=replace(make_plan(config), task=OneTask()),
        files=files,
        row_tokens=64,
        context_tokens=64,
        runner=runner_of(SeededEngine()),
        on_sampled=heard.sampled,
        logs=folder / "workers" if logs is None else logs,
        warn=heard.warnings.append,
    )
    return pool, heard


def run(pool: WorkerPool, act: Callable[[WorkerPool], Awaitable[T]], *, within_s: float = 60) -> T:
    """Nothing may hang, and no process outlives the pool."""

    async def inside() -> T:
        async with asyncio.timeout(within_s), pool:
            pool.adopt("label", version=VERSION)
            return await act(pool)

    before = children()
    try:
        return asyncio.run(inside())
    finally:
        assert children() <= before


def rows_by(
    folder: Path, *troubles: str, number: int = 6, most_s: float = 900.0, **settings: Any
) -> tuple[list[Scored], Heard]:
    pool, heard = pool_of(folder, *troubles, **settings)
    pool.most_s = most_s
    made = run(pool, lambda pool: pool.run(attempts(number), on_scored=heard.scored.append))
    return made, heard


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start again at once."""
    monkeypatch.setattr(workers, "_PAUSES_S", (0.0,) * 3)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_rows_are_the_same_whatever_workers_there_are(tmp_path: Path, count: int) -> None:
    here = made_here(attempts())
    made, heard = rows_by(tmp_path, *[""] * count)
    assert made == here
    assert sorted(heard.scored, key=here.index) == here
    assert heard.num_tokens == sum(one.trajectory.num_sampled for one in here)
    assert heard.warnings == []


def test_clocks_and_counters_take_in_what_workers_measure(tmp_path: Path) -> None:
    pool, _ = pool_of(tmp_path, "", "")
    run(pool, lambda pool: pool.run(attempts()))
    waits = pool.runner.waits
    assert len(waits.starts_ms) == 6
    assert 0 < waits.kernel_s <= waits.total_s
    submitted = [one for one in made_here(attempts()) if one.verdict is not None]
    assert len(waits.verdicts_ms) == len(submitted)


def test_what_begins_behind_the_lines_of_another_is_the_same(tmp_path: Path) -> None:
    solved = made_here(attempts(1))[0].trajectory
    stem = Stem(trajectory=solved, num_lines=1, is_sibling=False)
    wanted = [replace(one, stem=stem, problem=attempts(1)[0].problem) for one in attempts()]
    pool, _ = pool_of(tmp_path, "", "")
    made = run(pool, lambda pool: pool.run(wanted))
    assert [one.trajectory.branch is not None for one in made] == [True] * 6
    assert made == made_here(wanted)


SAID = {
    **dict.fromkeys(("garbage", "no text", "half a row", "nested"), "sent a row that is none: "),
    "without an end": "sent a row of more than 64 MiB",
    **dict.fromkeys(("a number of nobody", "twice"), "sent what it was not asked for"),
    "no trajectory": "sent no trajectory",
    "that of another": "sent a trajectory of another problem than it was asked for",
}
"""Words about a worker that has sent this."""


@pytest.mark.parametrize("lie", ROWS)
def test_a_worker_that_lies_costs_its_trajectories_and_one_line(tmp_path: Path, lie: str) -> None:
    made, heard = rows_by(tmp_path, lie, lie)
    here = made_here(attempts())
    assert made == here
    assert sorted(heard.scored, key=here.index) == here
    (warning,) = heard.warnings
    assert SAID[lie] in warning
    assert warning.startswith("worker ")
    assert warning.endswith("it is started again")


def test_what_was_asked_for_is_taken(tmp_path: Path) -> None:
    pool, heard = pool_of(tmp_path, "")
    pool.weights = ("label", VERSION)
    wanted, (made,) = attempts(1)[0], made_here(attempts(1))
    pool.take(wanted, Report(format=FORMAT, scored=made, num_sampled=3, num_retries=2))
    assert (heard.num_tokens, pool.runner.num_retries) == (3, 2)


@pytest.mark.parametrize(
    ("field", "change", "said"),
    [
        ("problem_id", lambda _: "q", "of another problem "),
        ("group_index", lambda index: index + 1, "of another group_index "),
        ("sibling_index", lambda index: index + 1, "of another sibling_index "),
        ("seed", lambda seed: seed + 1, "of another seed "),
        ("branch", lambda _: Branch(sibling_index=0, num_lines=1, seed=5), "of another seed "),
        ("policy_version", lambda version: version - 1, "of another policy_version "),
        ("prompt_ids", lambda ids: (*ids[:-1], 65), "of another prompt_ids "),
        ("completion_ids", lambda ids: (256, *ids[1:]), "its tokens are not within the vocabulary"),
        ("completion_ids", lambda ids: (*ids, 65), "that cannot be: "),
        ("loss_mask", lambda mask: (not mask[0], *mask[1:]), "a loss mask that disagrees "),
        ("logprobs", lambda values: (0.5, *values[1:]), "its log-probabilities are none"),
        ("lines", lambda lines: lines[:-1], "that cannot be: "),
    ],
)
def test_a_trajectory_that_was_not_asked_for_is_not_taken(
    tmp_path: Path, field: str, change: Callable[[Any], Any], said: str
) -> None:
    pool, heard = pool_of(tmp_path, "")
    pool.weights = ("label", VERSION)
    wanted, (made,) = attempts(1)[0], made_here(attempts(1))
    trajectory = replace(made.trajectory, **{field: change(getattr(made.trajectory, field))})
    report = Report(format=FORMAT, scored=replace(made, trajectory=trajectory), num_sampled=3)
    with pytest.raises(ConfigError, match=f"^sent a trajectory .*{said}"):
        pool.take(wanted, report)
    assert heard.num_tokens == 0


def test_a_reward_that_is_not_one_a_line_is_not_taken(tmp_path: Path) -> None:
    pool, _ = pool_of(tmp_path, "")
    wanted, (made,) = attempts(1)[0], made_here(attempts(1))
    reward = replace(made.reward, line_rewards=(*made.reward.line_rewards, 0.0))
    with pytest.raises(ConfigError, match="does not have a reward for each line"):
        pool.take(wanted, Report(format=FORMAT, scored=replace(made, reward=reward)))


ENDS = {
    "killed": "has ended (exit code -9)",
    "killed within a row": "has ended (exit code -9)",
    "killed behind a row": "has ended (exit code -9)",
    "stopped": "was silent for 6 s",
    "blocked": "was silent for 6 s",
    "fails": "has ended (exit code 1): repl_rl.errors.EngineError: the server is gone",
    "leaves": "has ended (exit code 7): no space left on device",
    "closes stdout": "has ended (",
    "keeps a trajectory": "did not answer in time",
}


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("act", ENDS)
def test_a_worker_that_dies_or_hangs_costs_its_trajectories_and_one_line(
    tmp_path: Path, act: str, at: int
) -> None:
    settings: dict[str, Any] = {"workers.timeout_s": 6}
    if act not in ("stopped", "blocked", "keeps a trajectory"):
        settings = {}
    most_s = 10.0 if act == "keeps a trajectory" else 900.0
    made, heard = rows_by(tmp_path, f"{act}@{at}", "", number=12, most_s=most_s, **settings)
    here = made_here(attempts(12))
    assert made == here
    assert sorted(heard.scored, key=here.index) == here
    (warning,) = heard.warnings
    assert f" {ENDS[act]}" in warning


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("other version", r"has repl_rl 0\.0, and [\d.]+\S* is here; install the same"),
        ("cannot start", r"has ended \(exit code 1\): no module named 'torch'"),
        ("not ready", "did not answer in time"),
    ],
)
def test_a_worker_that_does_not_come_up_refuses_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, said: str
) -> None:
    monkeypatch.setattr(workers, "_START_S", 30.0 if trouble != "not ready" else 4.0)
    pool, heard = pool_of(tmp_path, "", trouble)
    pool.tick_s = 0.5
    with pytest.raises(ConfigError, match=rf"^worker 1 \(.+\) {said}$"):
        run(pool, lambda pool: pool.run(attempts()))
    assert heard.warnings == []


def test_a_command_that_is_not_there_refuses_the_run(tmp_path: Path) -> None:
    pool, _ = pool_of(tmp_path, launch=["env nothing-of-this-name"])
    with pytest.raises(
        ConfigError, match=r"^worker 0 \(env n.+\) has ended \(exit code 127\): env"
    ):
        run(pool, lambda pool: pool.run(attempts()))
    assert "nothing-of-this-name" in (tmp_path / "workers" / "worker-0.log").read_text()
    pool, _ = pool_of(tmp_path, launch=["nothing-of-this-name"])
    with pytest.raises(ConfigError, match=r"^worker 0 \(n.+\) cannot be started: No such file"):
        run(pool, lambda pool: pool.run(attempts()))


def test_an_attempt_that_loses_one_worker_after_the_other_ends_the_run(tmp_path: Path) -> None:
    pool, heard = pool_of(tmp_path, f"leaves{ALWAYS}")
    with pytest.raises(
        WorkerError,
        match=r"^the attempt at problem p\d \(group \d, sibling \d\) has lost 3 workers; the last "
        r"one, worker 0 \(.+\), has ended \(exit code 7\): no space left on device$",
    ):
        run(pool, lambda pool: pool.run(attempts(2)))
    assert len(heard.warnings) == 3


def test_a_worker_that_is_given_up_leaves_its_work_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_PAUSES_S", ())
    made, heard = rows_by(tmp_path, f"leaves{ALWAYS}", "", number=40)
    assert made == made_here(attempts(40))
    (warning,) = heard.warnings
    assert warning.endswith("it is not started again")


def test_where_no_worker_is_left_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_PAUSES_S", ())
    pool, _ = pool_of(tmp_path, f"leaves{ALWAYS}", f"killed{ALWAYS}")
    with pytest.raises(WorkerError, match=r"^no worker is left: worker 0 \(.+\) has ended \(exit "):
        run(pool, lambda pool: pool.run(attempts()))


def test_time_in_which_this_process_does_not_run_is_nobodys_silence(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"workers.timeout_s": 4.0}
    pool, heard = pool_of(tmp_path, "", **settings)
    stops = iter([6.0])

    async def act(pool: WorkerPool) -> list[Scored]:
        return await pool.run(attempts(), on_scored=lambda _: time.sleep(next(stops, 0.0)))

    assert run(pool, act) == made_here(attempts())
    assert heard.warnings == []


def test_a_worker_that_starts_again_has_all_the_time_to_get_ready(tmp_path: Path) -> None:
    """The last one had worked for 700 s on a trajectory; a start may take 600 s."""
    warnings: list[str] = []
    pool: Any = SimpleNamespace(
        logs=tmp_path, tick_s=10.0, most_s=2040.0, is_open=False, warn=warnings.append
    )
    worker = workers._Worker("one", "", pool)

    async def live() -> None:
        answer = asyncio.get_running_loop().create_future()
        worker.owed[5] = attempts(1)[0], answer
        for _ in range(70):
            worker._silence = 0  # it says that it is there
            worker.tick()
        assert worker.owed
        worker.end()
        worker.owed[0] = None, asyncio.get_running_loop().create_future()
        worker.tick()
        assert 0 in worker.owed

    asyncio.run(live())
    assert (worker.fault, warnings) == ("", [])


@pytest.mark.usefixtures("jumping_clock")
def test_a_clock_that_jumps_here_and_there_is_nobodys_silence(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"workers.timeout_s": 6.0}
    made, heard = rows_by(tmp_path, "clock jumps", "", most_s=60.0, **settings)
    assert made == made_here(attempts())
    assert heard.warnings == []


def test_workers_whose_words_the_disk_refuses_make_the_same_rows(
    tmp_path: Path, small_disk: Path
) -> None:
    (small_disk / "filling").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
    pool, heard = pool_of(tmp_path, "leaves@2", "", logs=small_disk / "workers")
    assert run(pool, lambda pool: pool.run(attempts(12))) == made_here(attempts(12))
    (warning,) = heard.warnings
    assert " has ended (exit code " in warning


def test_a_folder_for_their_words_that_the_disk_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    pool, _ = pool_of(tmp_path, "", logs=tmp_path / "taken" / "workers")
    with pytest.raises(StorageError, match=r"^cannot write '.*/taken/workers': Not a directory$"):
        run(pool, lambda pool: pool.run(attempts()))


def test_what_is_called_off_costs_no_later_run(tmp_path: Path) -> None:
    pool, heard = pool_of(tmp_path, "", "")

    async def act(pool: WorkerPool) -> list[Scored]:
        begun = asyncio.create_task(pool.run(attempts(200)))
        await asyncio.sleep(0.05)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        return await pool.run(attempts())

    assert run(pool, act) == made_here(attempts())
    assert heard.warnings == []


def test_a_worker_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_CLOSE_S", 0.5)
    made, heard = rows_by(tmp_path, "never ends", "")
    assert made == made_here(attempts())
    assert heard.warnings == []
