"""Laws of a replay's jobs: one word about a file, at the right time, and none about a wrong one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.errors import ConfigError
from repl_rl.runs.folder import RunPart
from repl_rl.runs.trajectory_file import Selection, append
from repl_rl.viewer.replay import jobs as replay_jobs
from repl_rl.viewer.replay.jobs import ReplayRequest, step_through
from trajectory_kit import FULL, ROW, row


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def wanted(said: list[str], tmp_path: Path) -> Callable[..., ReplayRequest]:
    """`wanted(content)`: all that is in a file of it."""

    def make(content: bytes, model: str | None = None) -> ReplayRequest:
        path = tmp_path / "s.jsonl"
        path.write_bytes(content)
        return ReplayRequest(
            path=path,
            part=RunPart(),
            selection=Selection(),
            say=said.append,
            model=model,
        )

    return make


def test_a_row_that_was_cut_off_is_told_beside_what_is_left(
    wanted: Callable[..., ReplayRequest], said: list[str]
) -> None:
    (place,) = wanted(row(ROW) + row(ROW)[:-9]).find()
    assert place.id == "s:1"
    assert said == ["s.jsonl ends in the middle of a row, which is left out"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (row(ROW)[:-9], "s.jsonl' holds no whole trajectory"),
        (b"\x7fELF\x02\n\xff\xfe", "s.jsonl:1 is not a trajectory: JSON is malformed"),
        (b"\x1f\x8b\x08\x00", "s.jsonl:1 is not a trajectory: a row without an end"),
    ],
)
def test_where_nothing_is_left_one_row_tells_it(
    wanted: Callable[..., ReplayRequest], said: list[str], content: bytes, message: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        wanted(content).find()
    assert message in str(refusal.value)
    assert said == []


def test_that_a_model_is_read_is_told_before_it_is(
    wanted: Callable[..., ReplayRequest],
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.asynccontextmanager
    async def read(*_: object) -> AsyncIterator[None]:
        raise ConfigError(f"read after {said[-1]!r}")
        yield

    for name in ("pool_of", "open_scorer"):
        monkeypatch.setattr(replay_jobs, name, lambda _: contextlib.nullcontext())
    monkeypatch.setattr(replay_jobs, "_policy", read)
    append(tmp_path / "one.jsonl", [FULL])
    with pytest.raises(ConfigError, match=r"read after 'reading the model m \.\.\.'"):
        step_through(wanted((tmp_path / "one.jsonl").read_bytes(), model="m"))


@pytest.fixture
def of_run(said: list[str], tmp_path: Path) -> Callable[..., ReplayRequest]:
    """`of_run(part, **conditions)`: what is wanted of a run of two steps, measured twice."""
    for name in ("eval-000000", "step-000000", "step-000001", "eval-000002"):
        (tmp_path / "trajectories").mkdir(exist_ok=True)
        append(tmp_path / "trajectories" / f"{name}.jsonl", [FULL])

    def make(part: RunPart, **conditions: Any) -> ReplayRequest:
        return ReplayRequest(
            path=tmp_path,
            part=part,
            selection=Selection(**conditions),
            say=said.append,
        )

    return make


ALL = ["eval-000000:1", "step-000000:1", "step-000001:1", "eval-000002:1"]


@pytest.mark.parametrize(
    ("part", "conditions", "in_all", "found"),
    [
        (RunPart(), {}, False, ["step-000001:1"]),
        (RunPart(), {"which": "best"}, False, ["step-000001:1"]),
        (RunPart(), {}, True, ALL),
        (RunPart(), {"id": "p-1"}, False, ALL),
        (RunPart(step=0), {"id": "p-1"}, False, ["step-000000:1"]),
        (RunPart(step=0), {}, True, ["step-000000:1"]),
        (RunPart(held_out=True), {}, False, ["eval-000002:1"]),
        (RunPart(held_out=True), {}, True, ["eval-000002:1"]),
    ],
)
def test_a_run_opens_at_its_last_step_and_a_filter_searches_all_but_what_is_chosen_holds(
    of_run: Callable[..., ReplayRequest],
    part: RunPart,
    conditions: dict[str, Any],
    *,
    in_all: bool,
    found: list[str],
) -> None:
    assert [place.id for place in of_run(part, **conditions).find(in_all=in_all)] == found
