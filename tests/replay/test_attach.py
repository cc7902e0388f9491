"""A person's client finds the state before a line, and the kernel ends when they say so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from fixture_types import Record, Store, WithLine
from jupyter_kernels import reply_to
from person import TIMEOUT_S, Person
from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Scored
from repl_rl.runs.folder import make_origin
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.viewer.replay.execute import attach
from repl_rl.viewer.replay.scene import make_scene
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import ExecStatus, Execution

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("quiet_home")]
SAVED = "[sandbox]\npreload = []\nline_cpu_s = 0.5\ngrace_s = 0.4\nline_wall_s = 20.0"
SETUP = ("y = 5",)
# CPU time that no process spends but by a line that computes.
WORK_S = 0.2
LINES = (" # think\n", " x = 41\n", " x += 1\n", " for i in range(2):\n", "     x += i\n", "\n")

T = TypeVar("T")
MakePlace = Callable[..., StoredTrajectory]


@pytest.fixture
def place(record: Record, stored: Store, with_line: WithLine) -> MakePlace:
    """`place(*lines)`: a trajectory that a script and fakes have made, as stored."""

    def write(
        *lines: str, spoil: Callable[[Scored], Scored] = lambda scored: scored
    ) -> StoredTrajectory:
        opens = {"for i in range(2):", "for i in range(2):\n    x += i"}

        def answer(source: str) -> Execution:
            return Execution(status=ExecStatus.INCOMPLETE if source in opens else ExecStatus.OK)

        origin = make_origin(resolve(saved=SAVED), setup=SETUP, tokenizer=None, isolation="fake")
        scored = asyncio.run(record(lines, FakeKernels(answer), max_lines=len(lines)))
        return stored(spoil(scored), origin=origin)[0]

    return write


def at_line(place: StoredTrajectory, line: int, *sources: str) -> tuple[list[str], list[str]]:
    """(what these print in the kernel before `line`, what was said)."""
    said: list[str] = []

    def sit(path: Path) -> list[str]:
        with Person(path) as person:
            shown = [person.see(source) for source in sources]
            person.client.shutdown()
            return shown

    async def run() -> list[str]:
        ready: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        standing = asyncio.create_task(
            attach(place, make_scene(place), line=line, say=said.append, on_ready=ready.set_result)
        )
        async with asyncio.timeout(TIMEOUT_S):
            both: set[asyncio.Future[Any]] = {standing, ready}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                await standing
                raise AssertionError("it ended before it was ready")
            shown = await asyncio.to_thread(sit, ready.result())
            await standing
        return shown

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    shown = asyncio.run(run())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    return shown, said


@pytest.mark.parametrize(
    ("line", "shown"),
    [(1, "False\n"), (2, "False\n"), (3, "41\n"), (4, "42\n"), (7, "43\n")],
)
def test_a_client_finds_the_state_before_a_line(place: MakePlace, line: int, shown: str) -> None:
    (printed, setup), _ = at_line(place(*LINES), line, "globals().get('x', False)", "y")
    assert (printed, setup) == (shown, "5\n")


def test_the_end_of_the_kernel_by_a_client_ends_it_and_is_said(place: MakePlace) -> None:
    _, said = at_line(place(*LINES), 2)
    assert said[-1] == "the kernel has ended, and what it held is gone"


def test_inside_a_statement_it_is_said_that_none_of_it_has_run(place: MakePlace) -> None:
    (shown,), said = at_line(place(*LINES), 5, "globals().get('i', 'none of it')")
    assert shown == "'none of it'\n"
    assert "line 5 stands inside an open statement, and the kernel has run none of it" in said


def test_what_a_line_does_otherwise_here_is_said(place: MakePlace, with_line: WithLine) -> None:
    def spoil(scored: Scored) -> Scored:
        return with_line(scored, 1, kind=OutcomeKind.OK_OUTPUT, observation="planted\n")

    _, said = at_line(place(*LINES, spoil=spoil), 3)
    told = "line 2 did something else here: ok_output -> ok_silent; planted -> (nothing)"
    assert told in said


@pytest.mark.parametrize("line", [0, -1, 8])
def test_a_line_that_is_not_there_is_refused(place: MakePlace, line: int) -> None:
    with pytest.raises(
        ConfigError, match=rf"no line {line} in step-000000:1: it has 6; 7 is after"
    ):
        at_line(place(*LINES), line)


def test_a_line_behind_the_end_of_a_kernel_is_refused(place: MakePlace) -> None:
    found = place(" x = 1\n", " import os; os._exit(1)\n", " x\n")
    with pytest.raises(ConfigError, match=r"line 2 of step-000000:1 ends its kernel; --line 2 is"):
        at_line(found, 3)


def test_a_line_behind_one_that_was_cut_is_refused(place: MakePlace) -> None:
    found = place(" x = 1\n", " x = 2")
    with pytest.raises(ConfigError, match=r"line 2 of step-000000:1 never ran; --line 2 is"):
        at_line(found, 3)


# As a command


class Command:
    """`repl-rl attach` in a process of its own, which nothing outlives."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        boot = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        self.errors = folder / "err"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"{boot}from repl_rl.commands.cli import main; main()",
                    *arguments,
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self.rows = self.process.stdout
        self.seen: set[psutil.Process] = set()

    def __enter__(self) -> Command:
        # Reads below have no deadline of their own.
        self._alarm = threading.Timer(TIMEOUT_S, self.process.kill)
        self._alarm.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._alarm.cancel()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.rows.close()
        for one in self.seen:
            if one.is_running():
                one.kill()

    def connection(self) -> Path:
        """The file that it names, once it does."""
        for row in self.rows:
            if found := re.match(r"  (.+ --existing .+)", row):
                self.told = shlex.split(found[1])
                self.seen = set(psutil.Process(self.process.pid).children(recursive=True))
                return Path(self.told[-1])
        raise AssertionError(self.errors.read_text())

    def wait_for_work(self) -> None:
        """Until a process of it computes: before its line runs, an interrupt does nothing."""
        before = self._cpu_s()
        while self.process.poll() is None:
            spent = self._cpu_s()
            if any(spent[one] - before.get(one, 0.0) > WORK_S for one in spent):
                return
            threading.Event().wait(0.02)
        raise AssertionError(self.errors.read_text())

    def _cpu_s(self) -> dict[psutil.Process, float]:
        """CPU seconds of each process of it that is there."""
        spent: dict[psutil.Process, float] = {}
        for one in self.seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                spent[one] = sum(one.cpu_times()[:2])
        return spent

    def end(self, *signals: int) -> tuple[int, list[psutil.Process]]:
        """(exit code, processes of it that are still there)."""
        for number in signals:
            self.process.send_signal(number)
        code = self.process.wait(timeout=TIMEOUT_S)
        _, alive = psutil.wait_procs(self.seen, timeout=TIMEOUT_S)
        return code, alive


@pytest.fixture
def command(place: MakePlace, tmp_path: Path) -> Iterator[Command]:
    found = place(*LINES)
    with Command(tmp_path, "attach", str(found.path), "--line", "4") as process:
        yield process


def sit_in_thread(work: Callable[[], T]) -> T:
    """`work()` in a thread of its own: a blocking client keeps a loop in its thread."""
    return asyncio.run(asyncio.to_thread(work))


def test_one_interrupt_ends_the_line_that_runs_and_two_end_the_kernel(command: Command) -> None:
    path = command.connection()

    def work() -> tuple[str | None, str]:
        with Person(path) as person:
            asked = person.begin("while True: pass\n")
            command.wait_for_work()
            command.process.send_signal(signal.SIGINT)
            return reply_to(asked, person.client).get("ename"), person.see("x")

    assert sit_in_thread(work) == ("KeyboardInterrupt", "42\n")
    assert path.exists()
    assert command.seen
    assert end_by_two(command) == (0, [])
    assert not path.parent.exists()


def end_by_two(command: Command) -> tuple[int, list[psutil.Process]]:
    """One, and another as soon as the first is known to have come."""
    told = "Ctrl-C again ends the kernel\n"
    while command.process.poll() is None:
        count = command.errors.read_text().count(told)
        command.process.send_signal(signal.SIGINT)
        while command.process.poll() is None and command.errors.read_text().count(told) == count:
            threading.Event().wait(0.02)
    return command.end()


def test_a_polite_kill_ends_it_at_once_with_everything_gone(command: Command) -> None:
    path = command.connection()
    assert command.end(signal.SIGTERM) == (0, [])
    assert not path.parent.exists()


def test_what_it_says_names_the_place_and_how_to_leave(command: Command) -> None:
    command.connection()
    assert command.end(signal.SIGTERM)[0] == 0
    said = command.errors.read_text()
    assert (
        "Ctrl-C here interrupts the line that runs there; a second Ctrl-C ends the kernel\n" in said
    )
    assert "Traceback" not in said


@pytest.mark.skipif(find_spec("jupyter_console") is None, reason="jupyter-console is not installed")
def test_outside_an_activated_environment_the_console_of_this_python_is_named(
    place: MakePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    found = place(*LINES)
    with Command(tmp_path, "attach", str(found.path), "--line", "4") as process:
        path = process.connection()
        assert process.end(signal.SIGTERM) == (0, [])
        said = process.errors.read_text()
    assert process.told == [sys.executable, "-m", "jupyter_console", "--existing", str(path)]
    assert "not installed" not in said


def test_a_bad_line_is_one_row_and_exit_code_2(place: MakePlace, tmp_path: Path) -> None:
    found = place(*LINES)
    with Command(tmp_path, "attach", str(found.path), "--line", "99") as process:
        assert process.end() == (2, [])
        rows = process.errors.read_text().splitlines()
    assert rows == ["repl-rl: no line 99 in step-000000:1: it has 6; 7 is after the last"]
