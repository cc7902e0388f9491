"""Bounds on what a file may ask of the reader of settings: bounded work, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from repl_rl.config import Config
from repl_rl.config.resolve import resolve, to_toml
from repl_rl.errors import ConfigError

DEEP = ".".join("a" * 60_000)
LIMITS = "expected keys of at most 256 parts"


@pytest.mark.parametrize(
    "text",
    [
        f"{DEEP} = 1",
        f"{DEEP.replace('.', ' . ', 15_000)[:60_000]} = 1",
        f"[{DEEP}]",
        f"[[{DEEP}]]",
        f"x = {{{DEEP} = 1}}",
        f"x = [{{{DEEP} = 1}}]",
        "x = '''\n''' # a comment\n" + '."a"' * 15_000 + " = 1",
        "x" + ".'a b'" * 9_000 + " = 1",
        'x = """\\""""\ny' + ".y" * 20_000 + " = 1",
    ],
    ids=str,
)
def test_a_key_of_many_parts_is_refused_before_it_is_read(text: str) -> None:
    """The library's reader takes the square of them: a minute for what is 64 KiB long."""
    with pytest.raises(ConfigError, match=LIMITS):
        resolve(saved=text[: 1 << 16])


def test_what_is_longer_than_any_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text("# long\n" * 20_000)
    with pytest.raises(ConfigError, match=r"it has more than 65,536 characters"):
        resolve(files=[tmp_path / "long.toml"])


def test_a_device_is_not_read_to_its_end(tmp_path: Path) -> None:
    """It has none."""
    with pytest.raises(ConfigError, match=r"'/dev/zero' is not valid TOML: it has more than"):
        resolve(files=[Path("/dev/zero")])


@pytest.mark.parametrize("override", [f"{DEEP}=1", f"seed={{{DEEP}=1}}"])
def test_an_override_of_many_parts_is_refused(override: str) -> None:
    with pytest.raises(ConfigError):
        resolve(overrides=[override])


def test_dots_in_texts_comments_and_numbers_are_no_parts_of_a_key() -> None:
    dots = ".".join("a" * 300)
    warmup = [dots, f'"{dots}"', f"'{dots}", f'"""{dots}']
    config = resolve(
        saved=to_toml(
            resolve(overrides=[f"sandbox.warmup={warmup!r}", "grpo.learning_rate=0.00015"])
        )
        + f"# {dots}\n"
    )
    assert config.sandbox.warmup == tuple(warmup)


def test_the_longest_key_of_ours_is_within_the_limit() -> None:
    assert resolve(saved=to_toml(Config()), overrides=["model='m'"]).model == "m"
