"""`repl-rl kernels`: sealed kernels for a person's Jupyter clients, kept warm.

Flags -> a configuration -> `repl_sandbox.jupyter.serve`. Knows words for the terminal. Does not
know kernels.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import click

from repl_sandbox.jupyter.configuration import Configuration, names_in, resident_address
from repl_sandbox.jupyter.serve import serve as serve_kernels
from repl_sandbox.types import Isolation


@click.group()
def kernels() -> None:
    """Keep sealed kernels ready for Jupyter clients."""


@kernels.command()
@click.option(
    "--preload",
    metavar="NAME,...",
    help="Modules that every kernel has loaded [all installed ones that it may import].",
)
@click.option(
    "--packages",
    metavar="NAME,...",
    help="Modules that a kernel may import, as in the kernelspec.",
)
@click.option(
    "--isolation",
    type=click.Choice(list(map(str, Isolation))),
    default=str(Isolation.AUTO),
    show_default=True,
    help="Isolation of the kernels.",
)
@click.option("--memory-mib", type=int, metavar="MIB", help="Memory that a kernel may add.")
def serve(preload: str | None, packages: str | None, isolation: str, **given: Any) -> None:
    """Keep kernels of the kernelspec repl-rl warm, until Ctrl-C.

    A kernel of your Jupyter client then starts without waiting for imports. Give the options that
    the kernelspec has: a kernelspec with others starts its own fork server.
    """
    chosen: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if packages is not None:
        chosen["packages"] = names_in(packages)
    configuration = Configuration(isolation=Isolation(isolation), **chosen)
    loaded = configuration.installed() if preload is None else names_in(preload)
    configuration = replace(configuration, preload=loaded)

    def say(walls: object) -> None:
        click.echo(f"kernels: {walls}")
        click.echo(f"preloaded: {', '.join(loaded) or 'nothing'}")
        click.echo(f"listening: {resident_address()}")

    asyncio.run(serve_kernels(configuration, on_warm=say))
