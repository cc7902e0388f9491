"""Whatever a kernel leaves in its folder, the folder goes."""

import os
from pathlib import Path

import pytest

from repl_sandbox.host.fork_server_client import make_runtime_folder
from repl_sandbox.host.started_kernel import remove_folder


def test_a_folder_goes_with_files_links_and_closed_folders(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = tmp_path / "folder"
    (folder / "a" / "b" / "c").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "link").symlink_to(kept)
    (folder / "a" / "link").symlink_to(kept)
    (folder / "a" / "b").chmod(0)
    remove_folder(folder)
    assert os.listdir(tmp_path) == ["kept"]
    assert os.listdir(kept) == ["file"]


def test_folders_a_thousand_deep_go_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_runtime_folder()
    monkeypatch.chdir(folder)
    for _ in range(1200):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(tmp_path)
    remove_folder(folder)
    assert not folder.exists()


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_folder(tmp_path / "none")
