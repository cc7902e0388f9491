"""The app that serves the environment: sessions over WebSockets, tasks and schemas over HTTP.

    Env -> FastAPI

Knows openenv's server, and what strangers may send it. Does not know addresses, nor what a step is.
"""

from __future__ import annotations

import contextlib
import ipaddress
from functools import partial

import httpx
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import create_app
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from repl_rl.errors import ConfigError
from repl_rl.integrations.openenv.environment import (
    NAME,
    LineAction,
    LineObservation,
    ReplEnvironment,
    SharedEnv,
)
from repl_rl.rollout.env import Env


def make_app(env: Env, *, num_sessions: int, num_problems: int, idle_s: float) -> FastAPI:
    """The app of an open environment; call it on the event loop that serves it.

    `num_sessions` may be open at once, a kernel each, which is given back after `idle_s` without a
    line. Of each split there are `num_problems` at most: some have no end. All sessions end with
    the app, kernels and grader with `env`.

        async with open_env("sympy-proofs") as env:
            app = make_app(env, num_sessions=64, num_problems=1000, idle_s=600.0)
            await uvicorn.Server(uvicorn.Config(app, port=8000)).serve()
    """
    make = partial(ReplEnvironment, SharedEnv(env, num_problems=num_problems, idle_s=idle_s))
    app = create_app(
        make, LineAction, LineObservation, env_name=NAME, max_concurrent_envs=num_sessions
    )
    app.add_exception_handler(ConfigError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(_Guard)
    return app


async def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=400)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """Answer as FastAPI does, without what was sent: JSON has no words for NaN and others."""
    assert isinstance(error, RequestValidationError)
    known = ("type", "loc", "msg")
    rows = [{name: row[name] for name in known} for row in error.errors()]
    return JSONResponse({"detail": rows}, status_code=422)


class _Guard:
    """Refuses pages of other sites, which any browser here shows, and lets clients go away.

    Programs send no `Origin`. A browser sends that of the page, and a page that is ours has the
    address of this server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and _is_foreign(scope):
            await _forbid(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, partial(_send_if_there, send))
        else:
            await self._app(scope, receive, send)


async def _send_if_there(send: Send, message: Message) -> None:
    """Drop what a client that has gone away cannot get: its end is heard at the next receive."""
    with contextlib.suppress(OSError, RuntimeError):
        await send(message)


async def _forbid(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "another site's page"})
        return
    refusal = JSONResponse({"detail": "this page is of another site"}, status_code=403)
    await refusal(scope, receive, send)


def _is_foreign(scope: Scope) -> bool:
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    origin, host = headers.get(b"origin"), headers.get(b"host", "")
    if origin is None:
        return False
    address = origin.partition("://")[2]
    # A name may be pointed to this machine by whoever owns it.
    return address != host or (_is_here(scope) and not _is_safe(address))


def _is_here(scope: Scope) -> bool:
    """Say whether the server listens for programs of this machine alone."""
    try:
        return ipaddress.ip_address(str((scope.get("server") or ("",))[0])).is_loopback
    except ValueError:
        return False


def _is_safe(address: str) -> bool:
    """Say whether it is the address of a machine, in numbers or as the one that is always here."""
    try:
        host = httpx.URL(f"http://{address}").host
        return host == "localhost" or bool(ipaddress.ip_address(host))
    except (httpx.InvalidURL, ValueError):
        return False
