"""`repl-rl config`: what each setting takes, what it is by default, and what it means.

Knows terminals of 80 columns. Does not know any setting.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from repl_rl.config.describe import Setting, find, settings
from repl_rl.config.resolve import toml_value

_WIDTH = 80


@click.command()
@click.argument("key", required=False, metavar="[SECTION or KEY]")
def config(key: str | None) -> None:
    """Explain the settings: all, a section or one.

    `repl-rl config grpo` explains one section. `repl-rl train --dry-run` prints the settings of a
    run, with the same explanations as comments.
    """
    for row in rows(list(settings() if key is None else find(key))):
        click.echo(row)


def rows(chosen: list[Setting]) -> Iterator[str]:
    """An explanation of each, in at most 80 columns, with a blank row between two."""
    spoken_of = None
    for number, one in enumerate(chosen):
        table = one.key.rpartition(".")[0]
        is_price = table == spoken_of  # its table has explained it
        if number and not is_price:
            yield ""
        yield from ([f"    {_equation(one)}"] if is_price else _entry(one))
        if isinstance(one.default, dict):
            spoken_of = one.key


def _entry(one: Setting) -> Iterator[str]:
    yield f"[{one.key}]" if one.is_section or isinstance(one.default, dict) else _equation(one)
    others = (f"; {toml_value(value)} for {name}" for name, value in one.others.items())
    kind = one.kind + "".join(others)
    for text in filter(None, (kind, one.doc)):
        yield from textwrap.wrap(
            text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
        )


def _equation(one: Setting) -> str:
    return f"{one.key} = {'not set' if one.default is None else toml_value(one.default)}"
