"""The pretrained model that `make real` puts below `.real`; without it these tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_work import shared_folder
from warm_python import WarmPython
from watched_command import Command, WatchedCommand

_FILE = Path(__file__).resolve().parents[2] / ".real" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("real")
            item.add_marker(pytest.mark.timeout(900))
            if not _FILE.is_file():
                item.add_marker(pytest.mark.skip(reason="`make real` downloads the model"))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of these tests alone, in which the file is converted once."""
    folder = shared_folder(tmp_path_factory) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPL_RL_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The file, as its package ships it."""
    return _FILE


@pytest.fixture(scope="session")
def folder(cache: Path, gguf: Path) -> Path:
    """Folder that the file is converted to."""
    from repl_rl.models.loading import read_files

    made = Path(read_files(str(gguf)).base)
    assert made.is_relative_to(cache)
    return made


@pytest.fixture
def repl_rl(cache: Path, warm_python: WarmPython, tmp_path: Path) -> Command:
    """The command as a user runs it, in `tmp_path`: cold, and on as many cores as torch takes."""
    environment = {**warm_python.environment}
    del environment["OMP_NUM_THREADS"]
    return WatchedCommand(
        python=warm_python, environment=environment, folder=tmp_path, cache=cache, timeout_s=600
    )
