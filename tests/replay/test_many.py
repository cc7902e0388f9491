"""Many trajectories at once: in order, each with its own origin, few of them held at a time."""

import asyncio
import contextlib
import gc
import io
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Self

import pytest
from rich.console import Console

from fixture_types import Record, Store, WithLine
from repl_rl.config import Config
from repl_rl.errors import ConfigError
from repl_rl.records import Origin, Problem, Scored, Trajectory, Verdict, VerdictKind
from repl_rl.rollout.scoring import Judge, Scorer
from repl_rl.runs.folder import make_origin
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.viewer.replay import jobs
from repl_rl.viewer.replay.compare import Change
from repl_rl.viewer.replay.execute import Rerun
from repl_rl.viewer.replay.jobs import execute, rerun_rows, rescore, scenes
from repl_rl.viewer.replay.scene import Scene, make_scene
from repl_rl.viewer.show.display import Screen
from repl_sandbox.fake import FakeKernel, FakeKernels
from repl_sandbox.types import ExecStatus, Execution

ANSWERS = {
    "1+1": Execution(status=ExecStatus.OK, output="2\n"),
    "3": Execution(status=ExecStatus.OK, value="3"),
    "y": Execution(status=ExecStatus.ERROR, output="NameError: y\n", error_type="NameError"),
}
LINES = (" 1+1\n", " y\n", " submit_final_answer(3)\n")
WALLS = "fake walls"


class Pool(FakeKernels):
    """Fakes behind the face of a pool."""

    walls = WALLS

    def __init__(self, at_acquire: Callable[[], None] = lambda: None) -> None:
        super().__init__(ANSWERS)
        self._at_acquire = at_acquire

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    async def acquire(self, *, seed: int) -> FakeKernel:
        self._at_acquire()
        await asyncio.sleep(0)
        return await super().acquire(seed=seed)


class SaysProved:
    def __init__(self, at_grade: Callable[[], None] = lambda: None) -> None:
        self._at_grade = at_grade

    async def grade(self, _task_spec: str, _problem: Problem, _submission: str) -> Verdict:
        self._at_grade()
        await asyncio.sleep(0)
        return Verdict(kind=VerdictKind.PROVED)


MakePlaces = Callable[..., list[StoredTrajectory]]
Use = Callable[..., Pool]


def held() -> int:
    """Trajectories in memory."""
    return sum(type(item) is Trajectory for item in gc.get_objects())


@pytest.fixture
def origin() -> Origin:
    return make_origin(Config(), setup=(), tokenizer=None, isolation=WALLS)


@pytest.fixture
def found(record: Record, stored: Store, origin: Origin) -> MakePlaces:
    """`found(count, spoil)`: that many trajectories in a file, each as `spoil` leaves it."""

    def make(
        count: int,
        spoil: Callable[[int, Scored], Scored] = lambda number, scored: scored,
        **options: Any,
    ) -> list[StoredTrajectory]:
        scored = asyncio.run(record(LINES, FakeKernels(ANSWERS)))
        return stored(*(spoil(n, scored) for n in range(count)), **{"origin": origin, **options})

    return make


@pytest.fixture
def screen() -> Screen:
    return Screen(Console(file=io.StringIO()))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Fakes in place of pools and graders."""

    def take(*, pool: Pool | None = None, judge: Judge | None = None) -> Pool:
        @contextlib.asynccontextmanager
        async def open_scorer(plan: Any) -> AsyncIterator[Scorer]:
            yield Scorer(
                task_spec="t",
                judge=judge or SaysProved(),
                reward=plan.reward,
            )

        made = pool or Pool()
        monkeypatch.setattr(jobs, "pool_of", lambda scene, *, standby=1: made)
        monkeypatch.setattr(jobs, "open_scorer", open_scorer)
        return made

    return take


def _maker(said: list[str], **options: Any) -> Callable[[StoredTrajectory], Scene]:
    def make(place: StoredTrajectory) -> Scene:
        scene = make_scene(place, **options)
        said.extend(scene.notes)
        return scene

    return make


def run_all(
    found: list[StoredTrajectory], screen: Screen, **options: Any
) -> tuple[list[Rerun], list[str]]:
    said: list[str] = []
    reruns = asyncio.run(execute(found, _maker(said, **options), screen, say=said.append))
    return reruns, said


def score_all(
    found: list[StoredTrajectory],
    screen: Screen,
    **options: Any,
) -> tuple[list[Change], list[str]]:
    said: list[str] = []
    scoring = rescore(found, _maker(said, **options), screen)
    return asyncio.run(scoring), said


def test_reruns_come_in_the_order_of_the_file(
    use: Use, found: MakePlaces, screen: Screen, with_line: WithLine
) -> None:
    use()

    def spoil(number: int, scored: Scored) -> Scored:
        return with_line(scored, 0, observation="planted\n") if number in (3, 5) else scored

    reruns, said = run_all(found(7, spoil), screen)
    assert [one.id for one in reruns] == [f"step-000000:{n}" for n in range(1, 8)]
    assert [bool(one.divergence) for one in reruns] == [n in (3, 5) for n in range(7)]
    assert next(row for row in rerun_rows(reruns) if "first" in row).startswith(
        "first divergence: step-000000:4, line 1"
    )
    assert said == []


def test_few_trajectories_are_held_while_many_run_again(
    use: Use, found: MakePlaces, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    wanted = found(24)
    before = held()
    peak: list[int] = []
    use(pool=Pool(lambda: peak.append(held() - before)))
    run_all(wanted, screen)
    assert len(peak) == 24
    assert max(peak) <= 4


def test_few_trajectories_are_held_while_many_are_scored(
    use: Use, found: MakePlaces, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_SCORED_AT_ONCE", 3)
    wanted = found(24)
    before = held()
    peak: list[int] = []
    use(judge=SaysProved(lambda: peak.append(held() - before)))
    score_all(wanted, screen)
    assert len(peak) == 24
    assert max(peak) <= 3


def test_how_kernels_differ_is_said_once_for_an_origin(
    use: Use, found: MakePlaces, screen: Screen, origin: Origin
) -> None:
    use()
    other = replace(origin, isolation="none", versions={**origin.versions, "sympy": "1.0"})
    _, said = run_all(found(3, origin=other), screen)
    assert [one.split(" ")[2] for one in said] == ["sympy", "kernels"]


def test_how_another_machine_scored_is_said_once_for_an_origin(
    use: Use, found: MakePlaces, screen: Screen, origin: Origin
) -> None:
    use()
    other = replace(origin, isolation="none", versions={**origin.versions, "sympy": "1.0"})
    _, said = score_all(found(3, origin=other), screen)
    assert [one.partition(",")[0] for one in said] == ["made with sympy 1.0"]


def test_what_is_scored_by_the_defaults_is_told_so(
    use: Use, found: MakePlaces, screen: Screen
) -> None:
    use()
    _, said = score_all(found(2, origin=None), screen)
    assert [one.partition(":")[0] for one in said] == [
        "step-000000.jsonl does not say how it was made"
    ]


def test_trajectories_of_one_origin_share_a_scene_and_others_have_their_own(
    found: MakePlaces, stored: Store, origin: Origin
) -> None:
    first = found(2)
    scored = first[0].read()
    more = stored(scored, origin=origin, name="step-000001")
    other = stored(scored, origin=replace(origin, config="seed = 5"), name="step-000002")
    cut = [
        (scene.config.seed, len(some)) for scene, some in scenes(first + more + other, make_scene)
    ]
    assert cut == [(0, 3), (5, 1)]


def test_what_is_scored_again_comes_in_order(use: Use, found: MakePlaces, screen: Screen) -> None:
    use()
    changes, _ = score_all(found(5), screen)
    assert [change.id for change in changes] == [f"step-000000:{n}" for n in range(1, 6)]


def test_the_reward_is_that_of_the_settings(use: Use, found: MakePlaces, screen: Screen) -> None:
    """Stored: +1 and no charge, no verdict. Scored: proved +1, a name error -0.1 or -0.2."""
    use()
    wanted = found(1)
    gains = [
        score_all(wanted, screen, overrides=overrides)[0][0].gain
        for overrides in ((), ("reward.line.name_error=-0.2",))
    ]
    assert gains == pytest.approx([-0.1, -0.2])


def test_a_file_that_is_gone_ends_it_with_its_name(
    use: Use, found: MakePlaces, screen: Screen
) -> None:
    use()
    wanted = found(2)
    wanted[0].path.unlink()
    with pytest.raises(ConfigError, match=r"step-000000\.jsonl"):
        run_all(wanted, screen)


def test_a_file_that_was_changed_is_told(
    use: Use, found: MakePlaces, screen: Screen, origin: Origin
) -> None:
    use()
    wanted = found(2)
    wanted[0].path.write_bytes(b'{"format":2}\n' * 4000)
    with pytest.raises(ConfigError, match="step-000000"):
        run_all(wanted, screen)
