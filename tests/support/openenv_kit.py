"""A server of the OpenEnv environment in this process, and sessions of the real client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import uvicorn
from openenv import GenericEnvClient

import repl_rl as rr
from repl_rl.integrations.openenv import ReplEnvironment, SharedEnv, make_app
from repl_rl.tasks.base import NumberedProblems

T = TypeVar("T")
WAIT_S = 60.0


class Served:
    """An environment that is served at `url`, by an event loop in another thread."""

    def __init__(self, env: rr.Env, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.env = env
        self.url = url
        self._loop = loop
        plan = env.plan
        self.problems = NumberedProblems(plan.task, seed=plan.config.seed, most=20)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the event loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        with GenericEnvClient(base_url=self.url).sync() as client:
            yield client

    def environment(self, *, idle_s: float = 600.0) -> ReplEnvironment:
        """A session without a socket."""

        async def make() -> ReplEnvironment:
            return ReplEnvironment(SharedEnv(self.env, num_problems=20, idle_s=idle_s))

        return self.run(make())

    @property
    def num_kernels(self) -> int:
        """Kernels that somebody holds."""
        return sum(not kernel.is_closed for kernel in self.env.kernels._kernels)

    def all_kernels_are_freed(self) -> bool:
        """Return whether all are free soon: a server learns of a lost client by its socket."""
        return holds(lambda: self.num_kernels == 0)

    def direct(
        self, lines: Sequence[str], *, index: int, seed: int
    ) -> tuple[str, list[rr.Step], rr.Scored]:
        """The episode without a wire: its prompt, its steps and what it is worth."""

        async def play() -> tuple[str, list[rr.Step], rr.Scored]:
            episode = await self.env.episode(self.problems.get("train", index), seed=seed)
            steps = [await episode.line(line) for line in lines]
            return episode.prompt, steps, await episode.score()

        return self.run(play())


def holds(claim: Callable[[], bool]) -> bool:
    """Return whether a claim comes true in time."""
    deadline = time.monotonic() + WAIT_S
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()


@contextlib.contextmanager
def serving(*overrides: str, task: str = "sympy-proofs", num_sessions: int = 4) -> Iterator[Served]:
    """A task under these settings, until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    made: list[tuple[Served, uvicorn.Server]] = []

    async def serve() -> None:
        async with rr.open_env(task, overrides=["sandbox.standby=1", *overrides]) as env:
            app = make_app(env, num_sessions=num_sessions, num_problems=20, idle_s=600.0)
            options = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5)
            server = uvicorn.Server(options)
            made.append((Served(env, asyncio.get_running_loop(), url), server))
            await server.serve(sockets=[listener])

    with listener, ThreadPoolExecutor(1) as thread:
        running = thread.submit(asyncio.run, serve())
        assert holds(lambda: bool(made) or running.done()), "the server does not start"
        if not made:
            running.result()
        ((served, server),) = made
        try:
            yield served
        finally:
            server.should_exit = True
            running.result(WAIT_S)
