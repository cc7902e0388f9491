"""Laws of the table of commands: it is what the modules say, and listing imports none of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from repl_rl import commands
from repl_rl.commands.cli import _EXTRA_OF, COMMANDS, GROUPED, cli

Call = Callable[..., tuple[int, str, str]]
CONTEXT = click.Context(cli)


def command_of(name: str) -> click.Command:
    found = cli.get_command(CONTEXT, name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_has_a_commands_name_and_the_first_line_of_its_help(name: str) -> None:
    command = command_of(name)
    assert command.name == name
    assert (command.help or "").partition("\n")[0] == COMMANDS[name][1]


def test_every_command_of_every_module_is_in_the_table() -> None:
    """A command within a group is in its group."""
    modules = [one.name for one in pkgutil.iter_modules(commands.__path__, "repl_rl.commands.")]
    made = {
        value
        for name in modules
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, click.Command)
    }
    listed = [command_of(name) for name in COMMANDS]
    inner = [one for group in listed if isinstance(group, click.Group) for one in group_of(group)]
    assert made == {cli, *listed, *inner}


def test_the_package_is_the_command() -> None:
    words = (sys.executable, "-m", "repl_rl", "trian")
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    said = "Error: No such command 'trian'; did you mean 'train'?\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


def group_of(group: click.Group) -> list[click.Command]:
    return list(group.commands.values())


def test_the_commands_of_groups_are_those_within_them() -> None:
    groups = {name: command_of(name) for name in COMMANDS}
    assert {
        inner: name
        for name, group in groups.items()
        if isinstance(group, click.Group)
        for inner in group.commands
    } == GROUPED


def loaded_by(code: str, **environment: str) -> set[str]:
    """Modules that a fresh interpreter holds after `code`, which may end it."""
    told = f"try:\n    {code}\nexcept SystemExit:\n    pass"
    shown = f"import sys\n{told}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", shown],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.split())


MAIN = "sys.argv = {!r}; from repl_rl.commands.cli import main; main()"
LISTING = {"repl_rl.commands", "repl_rl.commands.cli"}


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("help",), ("trian",)])
def test_listing_the_commands_imports_none_of_them(words: tuple[str, ...]) -> None:
    loaded = loaded_by(MAIN.format(["repl-rl", *words]))
    assert {name for name in loaded if name.startswith("repl_rl.commands")} == LISTING


@pytest.mark.slow
def test_a_shell_completes_the_name_of_a_command_without_importing_one() -> None:
    told = {"_REPL_RL_COMPLETE": "bash_complete", "COMP_WORDS": "repl-rl wa", "COMP_CWORD": "1"}
    loaded = loaded_by(MAIN.format(["repl-rl"]), **told)
    assert {name for name in loaded if name.startswith("repl_rl.commands")} == LISTING


def test_a_shell_completes_names_with_their_help() -> None:
    found = cli.shell_complete(CONTEXT, "wa")
    assert [(one.value, one.help) for one in found] == [("warmstart", COMMANDS["warmstart"][1])]
    assert [one.value for one in cli.shell_complete(CONTEXT, "--v")] == ["--version"]


@pytest.mark.slow
def test_the_help_of_a_command_takes_no_more_than_a_base_installation() -> None:
    modules = sorted({place.partition(":")[0] for place, _ in COMMANDS.values()})
    loaded = loaded_by(f"import {', '.join(f'repl_rl.commands.{name}' for name in modules)}")
    assert loaded & {*_EXTRA_OF, "torch", "sympy"} == set()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("trian", "did you mean 'train'?"), ("test", "it is 'repl-rl reward test'")],
)
def test_an_unknown_command_names_the_nearest(call: Call, typed: str, meant: str) -> None:
    code, _, err = call(typed)
    assert code == 2
    assert f"No such command {typed!r}; {meant}" in err
