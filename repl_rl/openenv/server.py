"""The app that serves the environment: sessions over WebSockets, tasks and schemas over HTTP.

    Env -> FastAPI

Knows openenv's server. Does not know addresses, nor what a step is.
"""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import create_app

from repl_rl.errors import ConfigError
from repl_rl.openenv.environment import NAME, LineAction, LineObservation, ReplEnvironment, Shared
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
    make = partial(ReplEnvironment, Shared(env, num_problems=num_problems, idle_s=idle_s))
    app = create_app(
        make, LineAction, LineObservation, env_name=NAME, max_concurrent_envs=num_sessions
    )
    app.add_exception_handler(ConfigError, _refused)
    return app


async def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=400)
