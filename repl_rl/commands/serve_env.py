"""`repl-rl serve-env`: a task as an environment of OpenEnv.

Flags -> Config -> open Env -> app -> uvicorn, until a signal. Knows addresses and words for the
terminal. Does not know sessions.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import click

from repl_rl.commands import options as shared
from repl_rl.config import Config
from repl_rl.errors import ConfigError
from repl_rl.rollout.env import AS_TEXT, env_of

_CLOSING_S = 5
"""So long a line that runs may hold up the end of the server."""


@click.command("serve-env")
@shared.TASK
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 in a container.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port; 0 takes a free one.",
)
@click.option(
    "--sessions",
    "num_sessions",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Sessions at once, with a kernel each.",
)
@click.option(
    "--problems",
    "num_problems",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Problems of each split, at most.",
)
@click.option(
    "--idle",
    "idle_s",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Give a kernel back after this long without a line.",
)
@shared.with_options(shared.FILES, shared.OVERRIDES, shared.SEED)
def serve_env(
    host: str, port: int, num_sessions: int, num_problems: int, idle_s: float, **options: Any
) -> None:
    """Serve a task as an OpenEnv environment, until Ctrl-C.

    One line is one step. The server asks for no password: keep its address private.
    """
    config = shared.resolve({**options, "preset": "none"}, saved=AS_TEXT)
    sizes = {"num_sessions": num_sessions, "num_problems": num_problems}
    with _listening(host, port) as listener:
        asyncio.run(_serve(config, listener, idle_s=idle_s, **sizes))


async def _serve(config: Config, listener: socket.socket, *, idle_s: float, **sizes: int) -> None:
    """Until SIGINT or SIGTERM; all processes are gone then."""
    import uvicorn

    from repl_rl.integrations.openenv import make_app  # of the extra `openenv`

    async with env_of(config) as env:
        click.echo(f"task: {env.plan.task.name}, {sizes['num_sessions']} sessions at once")
        click.echo(f"kernels: {env.walls}")
        click.echo(f"listening: {_url(listener)}")
        app = make_app(env, idle_s=idle_s, **sizes)
        options = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_CLOSING_S)
        await uvicorn.Server(options).serve(sockets=[listener])
        # The signal that ended it cancels here, and not where processes are ended.
        await asyncio.sleep(0)


def _listening(host: str, port: int) -> socket.socket:
    """ConfigError for an address that cannot be listened on: before any process is started."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # which names the address again
        raise ConfigError(
            f"--host {host} --port {port}: {reason}; expected an address that is free here"
        ) from None


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
