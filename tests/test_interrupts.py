"""Laws of a signal: what it ends, when it waits, and what the process says at its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from repl_rl.base import concurrency as interrupts
from repl_rl.base.concurrency import Apart, Interrupts, exit_code


@pytest.fixture(autouse=True)
def forgets() -> Iterator[None]:
    before = list(interrupts.received_signals)
    yield
    interrupts.received_signals[:] = before


def ask(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def test_without_a_signal_nothing_happens() -> None:
    with Interrupts() as found:
        found.hold()
        found.release()
    assert not found.is_asked()


def test_a_signal_raises_where_nothing_is_held() -> None:
    with Interrupts() as found, pytest.raises(KeyboardInterrupt):
        ask()
    assert found.is_asked()


def test_a_held_signal_waits_for_its_release() -> None:
    with Interrupts() as found:
        found.hold()
        ask()
        assert found.is_asked()
        with pytest.raises(KeyboardInterrupt):
            found.release()


def test_a_shielded_signal_raises_at_the_end_of_the_block() -> None:
    steps = []

    def shielded(found: Interrupts) -> None:
        with found.shield():
            ask()
            steps.append("to its end")

    with Interrupts() as found:
        with pytest.raises(KeyboardInterrupt):
            shielded(found)
        with found.shield():
            steps.append("raised once")
    assert steps == ["to its end", "raised once"]


def test_a_shield_inside_a_hold_leaves_the_signal_to_the_release() -> None:
    with Interrupts() as found:
        found.hold()
        with found.shield():
            ask()
        with pytest.raises(KeyboardInterrupt):
            found.release()


def test_what_fails_behind_a_shield_keeps_its_own_error() -> None:
    """The signal is not lost: the next release raises."""

    def fails(found: Interrupts) -> None:
        with found.shield():
            ask()
            raise ZeroDivisionError

    with Interrupts() as found:
        with pytest.raises(ZeroDivisionError):
            fails(found)
        with pytest.raises(KeyboardInterrupt):
            found.release()


def test_the_handlers_from_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts():
        pass
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_what_runs_is_cancelled_and_ends_in_order() -> None:
    steps = []

    async def main() -> None:
        try:
            ask()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            steps.append("tidied up")
            raise

    with Interrupts() as found, asyncio.Runner() as runner, pytest.raises(KeyboardInterrupt):
        found.run(runner, main())
    assert steps == ["tidied up"]


def test_a_signal_before_the_loop_has_started_runs_nothing() -> None:
    class Late:
        def run(self, main: Coroutine[Any, Any, None]) -> None:
            ask()
            asyncio.run(main)

    async def main() -> None:
        await asyncio.sleep(0)
        raise AssertionError

    late: Any = Late()
    with Interrupts() as found, pytest.raises(KeyboardInterrupt):
        found.run(late, main())


def test_a_result_is_handed_on_and_a_failure_is_its_own() -> None:
    async def main() -> int:
        return 5

    async def fails() -> int:
        raise ZeroDivisionError

    async def cancels() -> int:
        raise asyncio.CancelledError

    with Interrupts() as found, asyncio.Runner() as runner:
        assert found.run(runner, main()) == 5
        with pytest.raises(ZeroDivisionError):
            found.run(runner, fails())
        with pytest.raises(asyncio.CancelledError):
            found.run(runner, cancels())


def test_work_apart_is_done_in_one_thread_that_stays() -> None:
    """Children that die with the thread that started them outlive the work."""
    names = [Apart(threading.current_thread).result() for _ in range(2)]
    assert names[0] is names[1] is not threading.main_thread()
    assert names[0].is_alive()


def test_work_apart_runs_the_loop_of_the_main_thread_and_its_failure_is_its_own() -> None:
    async def main() -> int:
        return 5

    def fails() -> int:
        raise ZeroDivisionError

    with Interrupts() as found, asyncio.Runner() as runner:
        assert found.run(runner, main()) == 5
        assert Apart(lambda: found.run(runner, main())).result() == 5
        with pytest.raises(ZeroDivisionError):
            Apart(fails).result()
        assert found.run(runner, main()) == 5


@pytest.mark.parametrize("is_under_way", [True, False])
def test_work_apart_can_be_cancelled_before_and_while_it_waits(is_under_way: bool) -> None:
    waits, may_wait = threading.Event(), threading.Event()

    async def main() -> None:
        waits.set()
        await asyncio.Event().wait()

    def work() -> None:
        if not is_under_way:
            may_wait.wait()
        found.run(runner, main())

    with Interrupts() as found, asyncio.Runner() as runner:
        apart = Apart(work)
        if is_under_way:
            assert waits.wait(60)
            apart.cancel()
        else:
            cancelling = threading.Thread(target=apart.cancel)
            cancelling.start()
            while not apart._is_cancelled:
                pass
            may_wait.set()
            cancelling.join()
        with pytest.raises(asyncio.CancelledError):
            apart.result()


def test_the_exit_code_is_that_of_the_first_signal() -> None:
    interrupts.received_signals.clear()
    assert exit_code() == 130
    interrupts.received_signals += [signal.SIGTERM, signal.SIGINT]
    assert exit_code() == 143


INSISTS = """
import os, signal
from repl_rl.base.concurrency import Interrupts
with Interrupts() as interrupts:
    interrupts.hold()
    os.kill(os.getpid(), signal.SIGINT)
    print("asked", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here", flush=True)
"""


def test_a_second_signal_ends_the_process_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", INSISTS], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"asked\n", b"")
