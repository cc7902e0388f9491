"""Many coroutines at once, seeds for what they draw, and an interrupt that ends them in order.

A seed depends on names and numbers alone, so the order in which coroutines end changes nothing.
Any room may use it. Does not know what coroutines do, nor what they draw.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import Any, ClassVar, Generic, TypeVar

from repl_rl.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")
Start = Callable[[Iterable[Item]], None]


def num_processes(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes a launcher such as torchrun has started; 1 without one."""
    return max(1, launcher_number("WORLD_SIZE", 1, environment))


def launcher_number(name: str, default: int, environment: Mapping[str, str]) -> int:
    """Return a variable that a launcher sets; ConfigError where it is no number."""
    text = environment.get(name, str(default))
    if not text.isdecimal():
        raise ConfigError(f"{name} = {text!r} in the environment; a launcher sets it to a number")
    return int(text)


async def run_all(
    function: Callable[[Item], Awaitable[Result]],
    items: Iterable[Item],
    *,
    at_once: int | None = None,
) -> list[Result]:
    """`function` of every item, in the items' order; of all at once unless a number is given.

    The first failure ends the others and is raised as itself, not as a group.
    """

    async def alone(item: Item, _: Start[Item]) -> Result:
        return await function(item)

    every = list(items)
    return await run_growing(alone, every, at_once=at_once or len(every))


async def run_growing(
    function: Callable[[Item, Start[Item]], Awaitable[Result]],
    items: Iterable[Item],
    *,
    at_once: int,
) -> list[Result]:
    """Run like `run_all`, but let an item that is under way start others.

    They wait behind all that were there before, and their results stand behind those.
    """
    gate = asyncio.Semaphore(at_once)
    tasks: list[asyncio.Task[Result]] = []

    async def one(item: Item) -> Result:
        async with gate:
            return await function(item, start)

    def start(more: Iterable[Item]) -> None:
        tasks.extend(group.create_task(one(item)) for item in more)

    try:
        async with asyncio.TaskGroup() as group:
            start(items)
        return [task.result() for task in tasks]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        tasks.clear()  # the functions above name each other, and would keep all results


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from a path of names and numbers, equal on every machine and Python.

    `hash()` would differ between processes, and one constant seed per request would restart the
    sampler's generator at every line.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3)
    True
    """
    path = "/".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest()) >> 1


T = TypeVar("T")

received_signals: list[signal.Signals] = []
"""Signals that asked this process to end, the first one first. There is one list, as signals are
the process's."""


def exit_code() -> int:
    """128 and the number of the signal that came first, as shells have it; 130 without one."""
    return 128 + (received_signals[0] if received_signals else signal.SIGINT)


def end_as_interrupted(number: int, _: FrameType | None) -> None:
    """A handler that lets a polite kill clean up through whatever handles Ctrl-C at the moment."""
    received_signals.append(signal.Signals(number))
    signal.raise_signal(signal.SIGINT)


_apart: ContextVar[Apart[Any] | None] = ContextVar("apart", default=None)
"""The one that the code runs in."""


class Apart(Generic[T]):
    """`work()` in a second thread, which begins at once; signals stay with the main thread.

    What it runs by `Interrupts.run` is cancelled by `cancel`. Only one thread at a time may run an
    event loop: until the work has ended that is the second one. It is the same thread for all work,
    and stays until the process ends, because Linux ends a child that asks for it with the thread
    that has started it.
    """

    _all: ClassVar[SimpleQueue[Apart[Any]]] = SimpleQueue()
    _is_served: ClassVar[bool] = False

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._future: Future[T] = Future()
        self._gate = threading.Lock()
        self._is_cancelled = False
        self._cancel: Callable[[], object] | None = None
        self._all.put(self)
        if not Apart._is_served:
            Apart._is_served = True
            # Python does not wait for it where a second signal ends the process.
            threading.Thread(target=_serve, args=[self._all], daemon=True).start()

    def result(self, timeout_s: float | None = None) -> T:
        """Wait, and return what `work` returned, or raise what it raised; TimeoutError if late."""
        return self._future.result(timeout_s)

    def cancel(self) -> None:
        """Cancel the coroutine that runs, or will, and wait for the end of `work`."""
        with self._gate:
            self._is_cancelled = True
            if self._cancel is not None:
                self._cancel()
        wait([self._future])

    def run_loop(self, runner: asyncio.Runner, main: Coroutine[Any, Any, Result]) -> Result:
        """`runner.run(main)` in this thread: see `Interrupts.run`."""

        async def cancellable() -> Result:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            with self._gate:
                self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
                if self._is_cancelled:
                    task.cancel()
            try:
                return await main
            finally:
                with self._gate:
                    self._cancel = None

        return runner.run(cancellable())

    def run(self) -> None:
        """Do the work, in the thread that this is called in."""
        _apart.set(self)
        try:
            done = self._work()
        except BaseException as error:  # noqa: BLE001  # raised where the result is asked for
            self._future.set_exception(error)
        else:
            self._future.set_result(done)


def _serve(works: SimpleQueue[Apart[Any]]) -> None:
    while True:
        works.get().run()


class Interrupts:
    """Within the block a first signal raises KeyboardInterrupt, a second one ends the process.

    The first waits where `hold` says so, and cancels what `run` is running. Kernels and graders
    notice that their parent is gone, so a process that ends at once leaves none behind.

    agree: for one of several processes that train as one: whether any of them was asked to end. A
           signal then waits everywhere but in `stoppable`, until all of them `release`.
    """

    def __init__(self, *, agree: Callable[[bool], bool] | None = None) -> None:
        self._agree = agree
        self._has_signal = False
        self._is_requested = False
        """From the first signal on, or from when another process was found to have received one."""
        self._is_deferred = agree is not None
        self._is_looping = False
        self._cancel: Callable[[], object] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """A signal that comes from here on waits for `release`."""
        self._is_deferred = True

    def release(self) -> None:
        """End `hold`. Raises KeyboardInterrupt if a signal has come."""
        self._is_deferred = self._agree is not None
        if self.is_asked():
            raise KeyboardInterrupt

    def is_asked(self) -> bool:
        """Return whether a signal has come to this process, or to any that trains with it."""
        if self._agree is not None:
            self._is_requested = self._agree(self._is_requested)
        return self._is_requested

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """A first signal that comes within the block raises at its end: for code that takes locks.

        A KeyboardInterrupt that comes as `threading.Condition` has taken its lock leaves the lock
        taken, and whoever asks for it next waits for ever.
        """
        was_deferred, was_requested = self._is_deferred, self._is_requested
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = was_deferred
        if self._is_requested and not was_requested and not was_deferred:
            raise KeyboardInterrupt

    def stoppable(self, work: Callable[[], T]) -> T | None:
        """`work()`, which the first signal ends: None then, and the next `release` raises."""
        try:
            self._is_deferred = False
            if self._is_requested:
                raise KeyboardInterrupt
            done = work()
            self._is_deferred = self._agree is not None
        except KeyboardInterrupt:  # the only one: a second signal ends the process
            self._is_deferred = self._agree is not None
            if not self._is_requested:
                raise
            return None
        return done

    def run(self, runner: asyncio.Runner, main: Coroutine[Any, Any, T]) -> T:
        """`runner.run(main)`, which a signal cancels: KeyboardInterrupt once it has ended.

        Within an `Apart` nothing but its `cancel` does.
        """
        if (apart := _apart.get()) is not None:
            return apart.run_loop(runner, main)
        was_requested = self._is_requested

        async def cancellable() -> T:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._is_requested and not was_requested and not self._is_deferred:
                task.cancel()
            try:
                return await main
            finally:
                self._cancel = None

        # While the loop starts and ends there is no task to cancel, and nothing may be left of one.
        self._is_looping = True
        try:
            result = runner.run(cancellable())
        except asyncio.CancelledError:
            if self._is_requested and not was_requested:
                raise KeyboardInterrupt from None
            raise
        finally:
            self._is_looping = False
        if self._is_requested and not was_requested and not self._is_deferred:
            raise KeyboardInterrupt
        return result

    def _handle(self, number: int, _: FrameType | None) -> None:
        received_signals.append(signal.Signals(number))
        if self._has_signal:
            os._exit(exit_code())
        self._has_signal = self._is_requested = True
        if self._is_deferred:
            return
        if self._cancel is not None:
            self._cancel()
        elif not self._is_looping:
            raise KeyboardInterrupt
