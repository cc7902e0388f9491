"""A session as a tool for chat models: `run_line`, for TRL's `environment_factory`.

    Tools -> ReplTools: reset -> run_line ... -> get_reward

Carried: text, and one reward for the whole. TRL renders calls and encodes outputs itself, so token
ids are its own, and credit on lines is lost.

Knows episodes. Does not know TRL.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError
from repl_rl.rollout.env import AS_TEXT, Env, EnvEpisode, env_of
from repl_rl.texts import read_text
from repl_rl.transcript.format import PROBLEM_MARKER
from repl_rl.types import Problem, StopReason

T = TypeVar("T")


class Tools:
    """Kernels and a grader for many sessions at once, in an event loop on a thread of its own.

    The first session starts them, and they end with `close` or with this object.
    """

    def __init__(
        self, task: str, problems: Sequence[Problem], prompt: str, overrides: Sequence[str]
    ) -> None:
        self.problems = problems
        self._prompt = prompt
        names = {"task": task, "preset": "none"}
        self._config = resolve(saved=AS_TEXT, flags=names, overrides=overrides)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._env: Env | None = None
        self._held = contextlib.AsyncExitStack()
        self._end: Callable[[], object] = lambda: None
        self._sessions = weakref.WeakSet[ReplTools]()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each problem: messages, and its `number`."""
        text = self._prompt.replace(PROBLEM_MARKER, "").strip()
        asked = read_text("tools.txt").strip().replace("{{session}}", text)
        return [
            {
                "prompt": [
                    {"role": "user", "content": "\n".join([asked, "", *p.setup, p.statement])}
                ],
                "number": number,
            }
            for number, p in enumerate(self.problems)
        ]

    def open(self) -> ReplTools:
        """A session that begins with its `reset`."""
        session = ReplTools(self)
        self._sessions.add(session)
        return session

    def close(self) -> None:
        """End all sessions, kernels and the grader. Another session starts others."""
        for session in list(self._sessions):
            session._leave()
        self._end()
        self._loop = self._env = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `main` returns, run on the thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=[self._loop], daemon=True)
            thread.start()
            self._end = weakref.finalize(self, _end, self._loop, thread, self._held)
        return asyncio.run_coroutine_threadsafe(main, self._loop).result()

    async def episode(self, number: int) -> EnvEpisode:
        """A new one of the problem of this number."""
        if self._env is None:
            self._env = await self._held.enter_async_context(env_of(self._config))
        return await self._env.episode(self.problems[number])


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _end(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, held: contextlib.AsyncExitStack
) -> None:
    """Called wherever garbage is collected: on the thread itself, too, which cannot wait."""
    closed = asyncio.run_coroutine_threadsafe(held.aclose(), loop)
    closed.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    if threading.current_thread() is not thread:
        thread.join()


class ReplTools:
    """One session. Its public methods, `reset` and `get_reward` apart, are the model's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._episode: EnvEpisode | None = None
        self._failure: BaseException | None = None
        """What failed on our side in this episode."""

    def reset(self, *, number: int | None = None, **_: Any) -> None:
        """Begin the problem of a row of `chat_dataset`; a session that is under way ends."""
        if number is None:
            raise ConfigError("environment_factory takes spec.chat_dataset as train_dataset")
        self._leave()
        self._failure = None
        self._episode = self._tools.run(self._tools.episode(number))

    def run_line(self, line: str) -> str:
        """
        Run a line of Python in the session, and see what the interpreter prints.

        Args:
            line: The line, without a prompt. Several lines run one after another.

        Returns:
            What the interpreter prints.
        """
        if self._episode is None:
            raise ConfigError("run_line before reset")
        if not isinstance(line, str):
            raise ConfigError(f"run_line takes a text, not {line!r}")
        try:
            return self._tools.run(_typed(self._episode, line))
        except ConfigError:  # the model reads it
            raise
        except BaseException as error:
            self._failure = error
            raise

    def get_reward(self) -> float | None:
        """The reward of the whole trajectory; None where nobody could grade it.

        Raises what failed on our side in a line: TRL has shown it to the model, and gone on.
        """
        if self._failure is not None:
            self._leave()
            raise self._failure
        episode, self._episode = self._episode, None
        if episode is None:
            raise ConfigError("get_reward before reset, or for the second time")
        if episode.stop is None:
            episode.end(StopReason.EOS)
        return self._tools.run(episode.score()).reward.total

    def _leave(self) -> None:
        if self._episode is not None:
            self._tools.run(self._episode.aclose())
            self._episode = None


async def _typed(episode: EnvEpisode, text: str) -> str:
    """What the interpreter answers to these lines, without the prompts that it shows."""
    shown: list[str] = []
    # One newline ends the last line; another is a blank line, which closes a block.
    for line in text.removesuffix("\n").split("\n"):
        if episode.stop is not None:
            ended = f"the session has ended ({episode.stop}); nothing more is run"
            if not shown:
                raise ConfigError(ended)
            return "".join([*shown, ended, "\n"])
        step = await episode.line(line)
        shown.append(step.outcome.observation)
    return "".join(shown) + ("..." if episode.session.pending else "")
