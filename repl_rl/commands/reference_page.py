"""docs/reference.md: every setting and command, as the code has them.

    Config, cli -> page()

`make reference` writes it. Does not know any setting or command.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

import click

from repl_rl.commands.cli import cli
from repl_rl.config.describe import Setting, settings
from repl_rl.config.resolve import toml_value

_WIDTH = 84
_INTRODUCTION = """\
# Reference

`make reference` writes this page from the code. `repl-rl config` prints the settings, and `--help`
the commands.

## Settings

Values come from the defaults, then from the files of `--config`, then from `--set`. A run keeps all
of them in its `config.toml`.
"""


def page() -> str:
    """The text of docs/reference.md."""
    return "\n".join(
        [
            _INTRODUCTION,
            *_settings(),
            "## Commands",
            "",
            *(
                f"### {name}\n\n{textwrap.indent(text, '    ')}\n"
                for name, text in commands("repl-rl", cli)
            ),
        ]
    )


def commands(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """Each command with its help, those within a group in place of the group."""
    context = click.Context(
        command, info_name=name, terminal_width=_WIDTH, help_option_names=["-h", "--help"]
    )
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            one = command.get_command(context, inner)
            assert one is not None
            yield from commands(f"{name} {inner}", one)
        return
    yield name, command.get_help(context)


def _settings() -> Iterator[str]:
    known = list(settings())
    plain = [one for one in known if "." not in one.key and not one.is_section]
    yield _table(plain)
    for section in (one for one in known if one.is_section):
        inside = [one for one in known if one.key.startswith(f"{section.key}.")]
        yield f"### `[{section.key}]`\n\n{section.doc}\n\n{_table(inside)}"


def _table(rows: Iterable[Setting]) -> str:
    head = ["setting", "takes", "default", "what it is"]
    cells = [[f"`{one.key}`", one.kind, _default(one), _doc(one)] for one in rows]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    lines = [head, ["--"] * len(head), *escaped]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _default(one: Setting) -> str:
    if isinstance(one.default, dict):
        return ""  # the rows below have it, value by value
    others = (f"; {_value(value)} for {name}" for name, value in one.others.items())
    return _value(one.default) + "".join(others)


def _value(value: object) -> str:
    return "" if value is None else f"`{toml_value(value)}`"


def _doc(one: Setting) -> str:
    is_price = one.key.count(".") > 1
    return "" if is_price else one.doc
