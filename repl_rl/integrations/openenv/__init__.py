"""An environment of the package `openenv`, one line a step, and the app that serves it.

    Env -> FastAPI
    reset(split, index, seed) -> prompt;  step(line) -> observation, reward ... verdict

Carries exactly: the prompt, lines and observations as text, outcomes, the verdict, and rewards of
steps, which sum to the trajectory's. Loses: token ids, masks, log-probabilities and advantages.
A trainer on the other side makes tokens of the text itself. A policy that stops without an answer
is reported by a step with `end`, or its trajectory is never scored.

Knows kernels and problems through an open `Env`, openenv's server, and what strangers may send it.
Does not know addresses or models.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine
from dataclasses import asdict
from functools import partial
from types import NoneType
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from repl_rl.base.terminal import one_row, shorten
from repl_rl.errors import ConfigError
from repl_rl.records import Scored, Split
from repl_rl.rollout.env import Env, EnvEpisode
from repl_rl.rollout.episode import Step
from repl_rl.tasks.base import NumberedProblems
from repl_rl.transcript.encoding import Encoding

NAME = "repl-rl"
"""Name of the environment, in paths such as /repl-rl/splits."""
_SHOWN_CHARS = 200
_WAIT_S = 600.0
"""More than a kernel, a line and its verdict may take together."""


class LineAction(Action):
    """One line of Python, without its newline."""

    # A client that reads answers as JSON sends a number for the line `5`.
    model_config = ConfigDict(coerce_numbers_to_str=True)
    line: str = Field(description="One line of Python, without its newline.")
    end: bool = Field(default=False, description="Stop without an answer; the line is not run.")


class LineObservation(Observation):
    """Text that the policy sees next: first the prompt, then the interpreter's answers."""

    text: str = Field(description="It ends in the interpreter's prompt, unless this is the end.")


class SharedEnv:
    """State that a server's sessions share; make it on the event loop that `env` was opened on."""

    def __init__(self, env: Env, *, num_problems: int, idle_s: float) -> None:
        self.env = env
        self.idle_s = idle_s
        plan = env.plan
        self.problems = NumberedProblems(plan.task, seed=plan.seed, most=num_problems)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ending: set[asyncio.Task[None]] = set()

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work`, for callers in other threads; TimeoutError where it hangs."""
        if threading.get_ident() == self._thread:
            work.close()
            raise ConfigError("called on the server's event loop; expected reset_async, step_async")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_WAIT_S)
        finally:
            future.cancel()

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for `work`; on the event loop itself, which cannot wait, it is done soon."""
        if threading.get_ident() != self._thread:
            self.wait(work)
        else:
            self._ending.add(task := self._loop.create_task(work))
            task.add_done_callback(self._ending.discard)


class ReplEnvironment(Environment):
    """A session: one episode at a time, in a kernel of its own."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, shared: SharedEnv) -> None:
        super().__init__()
        self._shared = shared
        self._episode: EnvEpisode | None = None
        self._id: str | None = None
        self._paid = 0.0
        self._lock = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = Split.TRAIN.value,
        index: int | None = None,
        **unknown: object,
    ) -> LineObservation:
        """Begin an episode of a problem; without an index the seed chooses it.

        Raises ConfigError for a split or an index that does not exist; the episode before stays.
        Raises SandboxError if no kernel can be started.
        """
        if unknown or type(seed) not in (int, NoneType):
            sent = shorten(one_row(f"seed {seed!r}, {unknown}"), _SHOWN_CHARS)
            raise ConfigError(f"reset of {sent}; expected a number, split, index")
        async with self._turn():
            if index is None:
                index = (seed or 0) % max(1, await self.num_tasks(split))
            problem = await asyncio.to_thread(self._shared.problems.get, split, index)
            await self._leave()
            self._paid, self._id = 0.0, episode_id or str(uuid.uuid4())
            self._episode = await self._shared.env.episode(problem, seed=seed or 0)
        about = {"problem": problem.id, "split": split, "index": index}
        return LineObservation(text=self._episode.prompt, metadata=about)

    async def step_async(
        self, action: LineAction, timeout_s: float | None = None, **_: object
    ) -> LineObservation:
        """Run a line. `timeout_s` is ignored: the server limits lines.

        Raises ConfigError if the episode takes no line, or if the action is not a line.
        """
        async with self._turn():
            if (episode := self._episode) is None:
                raise ConfigError(
                    "there is no episode: none has begun, or it had no line for "
                    f"{self._shared.idle_s:g} s; expected a reset before the first step"
                )
            if episode.stop is not None:
                raise ConfigError(f"the episode has ended ({episode.stop}); expected a reset")
            ids = _ids_of(action, episode.built.encoding)
            try:
                # What is longer than a line may be is cut, as where tokens are sampled.
                step = await episode.take(ids[: episode.room])
                scored = await episode.score() if step.done else None
            except BaseException:
                await self._leave()
                raise
        return self._seen(step, scored)

    def _seen(self, step: Step, scored: Scored | None) -> LineObservation:
        reward = step.reward
        about: dict[str, object] = {"outcome": str(step.outcome.kind)}
        if scored is not None:
            earned = scored.reward
            # An outcome that could not be scored is no reward of 0.
            reward = None if earned.outcome_reward is None else earned.total - self._paid
            about |= asdict(earned) | {
                "stop": step.stop,
                "submission": scored.trajectory.submission,
                "verdict": None if scored.verdict is None else asdict(scored.verdict),
            }
        self._paid += reward or 0.0
        return LineObservation(text=step.observation, reward=reward, done=step.done, metadata=about)

    def reset(self, *given: Any, **named: Any) -> Any:
        """Run `reset_async` from a thread other than the event loop's."""
        return self._shared.wait(self.reset_async(*given, **named))

    def step(self, *given: Any, **named: Any) -> Any:
        """Run `step_async` from a thread other than the event loop's."""
        return self._shared.wait(self.step_async(*given, **named))

    def close(self) -> None:
        """Give the kernel back; a second call does nothing."""
        episode, self._episode = self._episode, None
        if episode is not None:
            self._shared.end(episode.aclose())

    @property
    def state(self) -> State:
        """The episode's id, and how many lines it has."""
        lines = 0 if self._episode is None else len(self._episode.built.lines)
        return State(episode_id=self._id, step_count=lines)

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the server's description of itself."""
        return EnvironmentMetadata(name=NAME, description=self._shared.env.plan.task.name)

    def list_splits(self) -> list[dict[str, str]]:
        """The two splits, under our names and the kinds that OpenEnv has for them."""
        return [{"name": Split.TRAIN, "type": "train"}, {"name": Split.HELD_OUT, "type": "test"}]

    async def num_tasks(self, split: str) -> int:
        """Count the problems of a split; of an endless one, as many as the server was told."""
        return await asyncio.to_thread(self._shared.problems.count, split)

    async def get_task(self, split: str, index: int) -> dict[str, object]:
        """A problem as the policy may know it: without what grades it."""
        problem = await asyncio.to_thread(self._shared.problems.get, split, index)
        return {"id": problem.id, "split": split, "index": index, "statement": problem.statement}

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._lock.locked():
            raise ConfigError("a reset or a step is under way; expected one at a time in a session")
        async with self._lock:
            self._watch(is_idle=False)
            try:
                yield
            finally:
                self._watch(is_idle=self._episode is not None)

    def _watch(self, *, is_idle: bool) -> None:
        """Give the kernel back where no line comes, unless that is called off."""
        if self._idle is not None:
            self._idle.cancel()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self._shared.idle_s, self.close) if is_idle else None

    async def _leave(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            await episode.aclose()


def _ids_of(action: LineAction, encoding: Encoding) -> list[int]:
    """Tokens of what was sent. Raises ConfigError for what is no line."""
    if action.end:
        return list(encoding.codec.eos_ids)
    return encoding.typed_ids(action.line)


def make_app(env: Env, *, num_sessions: int, num_problems: int, idle_s: float) -> FastAPI:
    """The app of an open environment; call it on the event loop that serves it.

    At most `num_sessions` are open at once, each with a kernel, which is given back after `idle_s`
    without a line. A split has `num_problems` at most, because some have no end. Sessions end with
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
    app.add_middleware(_SameSite)
    return app


async def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=400)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """Answer as FastAPI does, without what was sent: JSON has no words for NaN and others."""
    assert isinstance(error, RequestValidationError)
    known = ("type", "loc", "msg")
    rows = [{name: row[name] for name in known} for row in error.errors()]
    return JSONResponse({"detail": rows}, status_code=422)


class _SameSite:
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
