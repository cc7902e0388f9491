"""Laws of what is kept: whole or not there, and a disk that refuses is one line."""

from __future__ import annotations

import errno
import glob
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from fake_vllm import FakeServer, line_of, use
from repl_rl.base.disk import append_whole, explained, remove, replace_file, written_aside
from repl_rl.engines.vllm.server import VLLMServerEngine, _write
from repl_rl.errors import StorageError
from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.runs.folder import RunFolder, last_checkpoint, numbered_checkpoints
from repl_rl.runs.trajectory_file import read_trajectories

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
SIZE = 1 << 18
"""Size of `small_disk`."""


def weights() -> dict[str, torch.Tensor]:
    """Twice as large as the disk."""
    return {"weights": torch.zeros(2 * SIZE // 4)}


def by_torch(folder: Path) -> None:
    torch.save(weights(), folder / "weights.bin")


def by_safetensors(folder: Path) -> None:
    save_file(weights(), folder / "weights.safetensors")


def by_python(folder: Path) -> None:
    (folder / "weights").write_bytes(bytes(2 * SIZE))


@pytest.mark.parametrize("write", [by_torch, by_safetensors, by_python])
def test_a_full_disk_leaves_the_checkpoint_that_was_there(
    small_disk: Path, write: Callable[[Path], None]
) -> None:
    path = small_disk / "final"
    with written_aside(path) as aside:
        (aside / "config.json").write_text("{}")
    told = f"^cannot write '{path}': No space left on device$"

    def write_again() -> None:
        with written_aside(path) as aside:
            (aside / "config.json").write_text("[]")
            write(aside)

    with pytest.raises(StorageError, match=told):
        write_again()
    assert [file.name for file in small_disk.iterdir()] == ["final"]
    assert (path / "config.json").read_text() == "{}"


def test_a_folder_is_removed_where_an_earlier_removal_was_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, left = tmp_path / "best", tmp_path / ".unfinished-best-gone"
    for folder in (path, left):
        folder.mkdir()
        (folder / "weights").touch()
    remove(path)
    assert not any(tmp_path.iterdir())
    path.mkdir()
    left.mkdir()
    (left / "weights").touch()  # which another process has open, on some disks
    monkeypatch.setattr("repl_rl.base.disk.shutil.rmtree", lambda *_, **__: None)
    remove(path)
    assert not path.exists()


def test_weights_for_a_server_that_do_not_fit_are_one_line(small_disk: Path) -> None:
    path = small_disk / "run-1.safetensors"
    with pytest.raises(StorageError, match=f"^cannot write '{path}': No space left on device$"):
        _write(weights().items(), path)


def test_a_file_that_does_not_fit_leaves_the_one_that_was_there_and_no_other(
    small_disk: Path,
) -> None:
    path = small_disk / "versions.json"
    replace_file(path, b"{}")
    with pytest.raises(StorageError, match=f"^cannot write '{path}': No space left on device$"):
        replace_file(path, bytes(2 * SIZE))
    assert [file.name for file in small_disk.iterdir()] == ["versions.json"]
    assert path.read_bytes() == b"{}"


class Adapted:
    """A model with an adapter; one of them is as large as `num_bytes`."""

    def __init__(self, reason: str | None) -> None:
        self.reason, self.num_bytes = reason, 4

    def why_whole(self) -> str | None:
        return self.reason

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter([("w", torch.zeros(self.num_bytes // 4))])

    def save_adapter(self, folder: Path) -> None:
        (folder / "adapter_model.safetensors").write_bytes(bytes(self.num_bytes))


@pytest.mark.slow
@pytest.mark.parametrize("reason", [None, "it is sent whole"], ids=["adapter", "all weights"])
def test_a_sync_that_the_disk_refuses_is_one_line_and_servers_keep_what_they_have(
    small_disk: Path, reason: str | None
) -> None:
    weights = Adapted(reason)

    async def act(engine: VLLMServerEngine, server: FakeServer) -> list[int]:
        server.takes_adapters = True
        await engine.sync(weights, version=1)
        before = sorted(glob.glob(f"{small_disk}/**", recursive=True))
        weights.num_bytes = 2 * SIZE
        told = rf"^cannot write '{small_disk}/.*': No space left on device$"
        with pytest.raises(StorageError, match=told):
            await engine.sync(weights, version=2)
        assert sorted(glob.glob(f"{small_disk}/**", recursive=True)) == before
        assert not server.is_paused
        weights.num_bytes = 4
        await engine.sync(weights, version=3)
        return [(await line_of(engine)).policy_version]

    assert use(act, weights_dir=small_disk)[0] == [3]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_what_a_disk_says_is_one_line(tmp_path: Path, code: int) -> None:
    told = f"^cannot write '.*/x': {os.strerror(code)}$"
    with pytest.raises(StorageError, match=told), explained(tmp_path / "x"):
        raise OSError(code, os.strerror(code), "x")
    with pytest.raises(StorageError, match=told), explained(tmp_path / "x"):
        raise SafetensorError(f"Error while serializing: I/O error: (os error {code})")


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SafetensorError("bad header")])
def test_what_is_not_the_disks_doing_keeps_its_type(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), explained(tmp_path / "x"):
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_checkpoint_that_was_not_finished_has_no_name(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def write_half() -> None:
        with written_aside(tmp_path / "checkpoint-2") as aside:
            (aside / "half").touch()
            assert numbered_checkpoints(tmp_path) == []
            raise error

    with pytest.raises(error):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_rows_that_do_not_fit_are_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    append_whole(path, b"first\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            append_whole(path, b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"first\n"
    append_whole(path, b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


def test_a_step_that_does_not_fit_is_one_line_and_the_steps_before_it_are_whole(
    small_disk: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    folder = RunFolder(small_disk / "run")
    fits = make_scored(make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)]), 1.0)
    long = make_scored(make_trajectory([(f" {'x' * SIZE}\n", OutcomeKind.OK_SILENT, None)]), 1.0)
    folder.append_trajectories("step-000000", [fits])
    with pytest.raises(StorageError, match=r"step-000000\.jsonl': No space left on device$"):
        folder.append_trajectories("step-000000", [long])
    assert list(read_trajectories(folder.path / "trajectories" / "step-000000.jsonl")) == [fits]
    (small_disk / "filling").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
    with pytest.raises(StorageError, match=r"metrics\.jsonl': No space left on device$"):
        folder.append_metrics(1, {"loss": 0.0})


def test_the_last_checkpoint_is_the_final_one_or_that_of_the_latest_step(tmp_path: Path) -> None:
    inside = tmp_path / "checkpoints"
    assert last_checkpoint(tmp_path) is None
    for name in ("checkpoint-9", "checkpoint-50", ".unfinished-checkpoint-51", "checkpoint-x"):
        (inside / name).mkdir(parents=True)
        (inside / name / "model.safetensors").touch()
    assert last_checkpoint(tmp_path) == inside / "checkpoint-50"
    (inside / "final").mkdir()
    assert last_checkpoint(tmp_path) == inside / "final"
