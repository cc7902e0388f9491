"""A file made for a person appears whole, and never in the place of anything else."""

import contextlib
import os
from pathlib import Path

import pytest

from repl_rl.errors import ConfigError
from repl_rl.viewer.replay.scene import check_apart, check_replaceable, whole_file


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    with whole_file(path) as file:
        file.write("x")
        assert not path.exists()
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"]


def test_what_was_there_stays_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("before")
    with contextlib.suppress(ValueError), whole_file(path) as file:
        file.write("x")
        raise ValueError
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text("")
    (tmp_path / "a.html").symlink_to("b.html")
    with whole_file(tmp_path / "a.html") as file:
        file.write("x")
    assert (tmp_path / "a.html").is_symlink()
    assert (tmp_path / "b.html").read_text() == "x"


def test_a_planted_link_is_neither_written_through_nor_removed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("before")
    part = tmp_path / f"a.html.{os.getpid()}.part"
    part.symlink_to(victim)
    with pytest.raises(ConfigError, match="File exists"), whole_file(tmp_path / "a.html"):
        pass
    assert victim.read_text() == "before"
    assert part.is_symlink()


def test_what_cannot_be_written_to_the_end_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    with pytest.raises(ConfigError, match="Is a directory"), whole_file(path):
        path.mkdir()
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_of_another_kind_is_not_written_over(tmp_path: Path) -> None:
    config, link = tmp_path / "config.toml", tmp_path / "a.html"
    config.write_text("")
    link.symlink_to(config)
    for path in (config, link):
        with pytest.raises(ConfigError, match=r"is there and is no \.html file; name"):
            check_replaceable(path, (".html", ".htm"))


def test_what_is_of_that_kind_or_not_there_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.HTM").write_text("")
    (tmp_path / "link").symlink_to("a.HTM")
    (tmp_path / "ring").symlink_to("ring")
    for name in ("a.HTM", "link", "b", "no/b", "ring", "c" * 300):
        check_replaceable(tmp_path / name, (".html", ".htm"))


@pytest.mark.parametrize("name", ["folder", "pipe", "ring", "no/a.html", "a" * 300])
def test_what_is_no_place_for_a_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "ring").symlink_to("ring")
    with pytest.raises(ConfigError, match="cannot write to"), whole_file(tmp_path / name):
        pass


def test_a_device_is_refused() -> None:
    expected = pytest.raises(ConfigError, match="it is a folder or device")
    with expected, whole_file(Path("/dev/null")):
        pass


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    source = tmp_path / "after.jsonl"
    source.write_text("")
    (tmp_path / "link").symlink_to(source)
    for path in (source, tmp_path / "link"):
        with pytest.raises(ConfigError, match="holds the trajectories themselves"):
            check_apart(path, [source])


def test_another_file_is_apart(tmp_path: Path) -> None:
    source = tmp_path / "after.jsonl"
    source.write_text("")
    check_apart(tmp_path / "a.html", [source])
