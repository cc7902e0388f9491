"""Laws of a replay's jobs: one word about a file, at the right time, and none about a wrong one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from repl_rl.errors import ConfigError
from repl_rl.replay import jobs as replay_jobs
from repl_rl.replay.jobs import Wanted, step_through
from repl_rl.replay.many import Options
from repl_rl.runs.trajectory_file import Selection, append
from trajectory_kit import FULL, ROW, row


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def wanted(said: list[str], tmp_path: Path) -> Callable[..., Wanted]:
    """`wanted(content)`: all that is in a file of it."""

    def make(content: bytes, model: str | None = None) -> Wanted:
        path = tmp_path / "s.jsonl"
        path.write_bytes(content)
        return Wanted(
            path=path,
            selection=Selection(),
            count=None,
            options=Options(),
            model=model,
            say=said.append,
        )

    return make


def test_a_row_that_was_cut_off_is_told_beside_what_is_left(
    wanted: Callable[..., Wanted], said: list[str]
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
    wanted: Callable[..., Wanted], said: list[str], content: bytes, message: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        wanted(content).find()
    assert message in str(refusal.value)
    assert said == []


def test_that_a_model_is_read_is_told_before_it_is(
    wanted: Callable[..., Wanted],
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
