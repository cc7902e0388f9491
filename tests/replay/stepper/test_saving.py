"""A saved branch is a trajectory like any other; what is there already stays."""

import asyncio
import errno
from collections.abc import Iterable
from pathlib import Path

import pytest

from repl_rl.records import Origin, OutcomeKind, Scored
from repl_rl.runs.trajectory_file import places, read_trajectories
from repl_rl.transcript.format import SUBMIT_STUB
from repl_rl.viewer.replay.live import Live
from repl_sandbox.fake import FakeKernels
from stepper_seat import (
    ANSWERS,
    COMMENT,
    NAME_ERROR,
    SCENE,
    SUBMITTED,
    MakeStepper,
    Seat,
    after,
    sit,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def saved(stepper: MakeStepper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder in which a branch was saved: the recorded comment, an error and an answer by hand."""
    monkeypatch.chdir(tmp_path)

    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("y")
        await seat.write("submit_final_answer(3)")
        await seat.press("w")
        await seat.write("b")
        assert "saved; replay it with: repl-rl replay b" in seat.text

    sit(stepper(), act)
    return tmp_path / "b"


def test_a_saved_branch_is_a_trajectory_like_any_other(saved: Path) -> None:
    [scored] = read_trajectories(saved)
    sources = [line.source for line in scored.trajectory.lines]
    assert sources == [" # think\n", " y\n", " submit_final_answer(3)\n"]
    assert scored.trajectory.submission == "3"
    assert scored.reward.line_rewards == pytest.approx((0.0, -0.1, 0.0))
    [place] = places(saved)
    assert place.origin is not None
    assert place.origin.tokenizer is None
    assert place.origin.setup == (SUBMIT_STUB,)


def test_a_saved_branch_runs_again(saved: Path) -> None:
    [scored] = read_trajectories(saved)

    async def run() -> list[OutcomeKind]:
        async with Live(scored, SCENE, FakeKernels(ANSWERS)) as live:
            await live.run_to(lambda line: False)
            return [line.outcome.kind for line in live.lines]

    assert asyncio.run(run()) == [COMMENT, NAME_ERROR, SUBMITTED]


def test_a_file_that_is_there_is_never_written_over(
    stepper: MakeStepper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kept"
    path.write_text("dear")

    async def act(seat: Seat) -> None:
        await seat.press("n", "i")
        await seat.write("y")
        await seat.press("escape", "w")
        await seat.write("kept")
        assert "'kept' is there already" in seat.text

    sit(stepper(), act)
    assert path.read_text() == "dear"


async def save_one_line(seat: Seat, name: str) -> None:
    await seat.press("n", "i")
    await seat.write("y")
    await seat.press("escape", "w")
    await seat.write(name)


def test_the_home_of_nobody_is_an_error_and_the_branch_is_still_there(stepper: MakeStepper) -> None:
    async def act(seat: Seat) -> None:
        await save_one_line(seat, "~no-such-user/x")
        assert "no home folder for '~no-such-user/x'; give the full path" in seat.text
        assert seat.at_line == "2*"

    sit(stepper(), act)


def test_a_tilde_is_the_home_of_who_saves(
    stepper: MakeStepper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    async def act(seat: Seat) -> None:
        await save_one_line(seat, "~/b")

    sit(stepper(), act)
    assert len(list(places(tmp_path / "b"))) == 1


def test_a_file_that_could_not_be_written_is_not_in_the_way_of_the_next_try(
    stepper: MakeStepper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def full(path: Path, scored: Iterable[Scored], *, origin: Origin | None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def act(seat: Seat) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("repl_rl.viewer.stepper.walk.append", full)
            await save_one_line(seat, "b")
        assert "cannot write 'b': No space left on device" in seat.text
        assert not (tmp_path / "b").exists()
        await seat.press("w")
        await seat.write("b")
        assert "saved; replay it with" in seat.text

    sit(stepper(), act)


@pytest.mark.parametrize("keys", ["w", "nnw", "Gw"])
def test_what_is_as_recorded_is_not_saved(stepper: MakeStepper, keys: str) -> None:
    rows = after(stepper(), *keys)
    assert any("nothing was changed here: there is no branch to save" in row for row in rows)
