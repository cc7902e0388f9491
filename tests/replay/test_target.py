"""A file made for a person appears whole, and never in the place of what was read."""

import contextlib
import os
from pathlib import Path

import pytest

from repl_rl.errors import ConfigError
from repl_rl.replay.target import check_apart, whole_file


def test_a_file_appears_at_the_end(tmp_path):
    path = tmp_path / "a.html"
    with whole_file(path) as file:
        file.write("x")
        assert not path.exists()
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"]


def test_what_was_there_stays_where_writing_fails(tmp_path):
    path = tmp_path / "a.html"
    path.write_text("before")
    with contextlib.suppress(ValueError), whole_file(path) as file:
        file.write("x")
        raise ValueError
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_stays_one(tmp_path):
    (tmp_path / "b.html").write_text("")
    (tmp_path / "a.html").symlink_to("b.html")
    with whole_file(tmp_path / "a.html") as file:
        file.write("x")
    assert (tmp_path / "a.html").is_symlink()
    assert (tmp_path / "b.html").read_text() == "x"


@pytest.mark.parametrize("name", ["folder", "pipe", "ring", "no/a.html", "a" * 300])
def test_what_is_no_place_for_a_file_is_refused_at_once(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "ring").symlink_to("ring")
    with pytest.raises(ConfigError, match="cannot write to"), whole_file(tmp_path / name):
        pass


def test_a_device_is_refused():
    expected = pytest.raises(ConfigError, match="it is a folder or device")
    with expected, whole_file(Path("/dev/null")):
        pass


def test_what_is_read_is_not_written_over(tmp_path):
    source = tmp_path / "after.jsonl"
    source.write_text("")
    (tmp_path / "link").symlink_to(source)
    for path in (source, tmp_path / "link"):
        with pytest.raises(ConfigError, match="holds the trajectories themselves"):
            check_apart(path, [source])


def test_another_file_is_apart(tmp_path):
    source = tmp_path / "after.jsonl"
    source.write_text("")
    check_apart(tmp_path / "a.html", [source])
