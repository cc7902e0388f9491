"""The resident server as a program: `repl-rl kernels serve` for systemd, without the imports.

    python -m repl_sandbox.jupyter.serve [--preload NAME,...] ...

Who opens its socket waits for this to start. Knows signals and words for a journal. Does not know
kernels.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from repl_sandbox.jupyter.configuration import Configuration
from repl_sandbox.jupyter.options import add_options, configured
from repl_sandbox.jupyter.resident import serve
from repl_sandbox.types import SandboxError
from repl_sandbox.walls.isolation import Walls


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 it was ended by SIGINT or SIGTERM, 2 there can be no such kernels."""
    parser = argparse.ArgumentParser(prog="repl_sandbox.jupyter.serve", description=__doc__)
    add_options(parser)
    asked = parser.parse_args(arguments)
    configuration = configured(asked)
    if asked.preload is None:
        configuration = replace(configuration, preload=configuration.installed())
    try:
        asyncio.run(_serve(configuration))
    except asyncio.CancelledError:
        return 0
    except SandboxError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


async def _serve(configuration: Configuration) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)

    def say(walls: Walls | None) -> None:
        sys.stderr.write(f"kernels: {walls}\n")

    await serve(configuration, on_warm=say)


if __name__ == "__main__":
    sys.exit(main())
