"""One attack per test, written out; the kernel or the line pays for it, nobody else."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_uses import RunAll, WithKernel
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.types import ExecStatus, Execution

pytestmark = pytest.mark.kernel
AT_ONCE_MS = 5000
"""Ten times what a death takes to be noticed, and less than `line_wall_s`."""
LINE_CPU_MS = 4000
"""Ten times `line_cpu_s`: the deadline is seen by a process that may have to wait for its turn."""


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass\n",
        "import time; time.sleep(60)",
        "9 ** 9 ** 9",
    ],
)
def test_an_endless_line_times_out_and_the_state_stays(run_all: RunAll, source: str) -> None:
    _, endless, after = run_all("x = 5", source, "x")
    assert endless.status is ExecStatus.TIMEOUT
    assert endless.output.endswith("KeyboardInterrupt\n")
    assert endless.cpu_ms < LINE_CPU_MS
    assert after.output == "5\n"


def test_a_line_cannot_disarm_the_interrupt_of_the_next(run_all: RunAll) -> None:
    disarmed = run_all(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])",
        "while True: pass\n",
    )
    assert disarmed[2].status is ExecStatus.TIMEOUT


@pytest.mark.parametrize(
    "source",
    [
        "import signal; signal.signal(signal.SIGINT, lambda *_: None)\nwhile True: n = len('a')\n",
        "sum(range(10 ** 11))",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass\n",
    ],
)
def test_a_line_that_ignores_the_interrupt_is_killed(run_all: RunAll, source: str) -> None:
    endless, after = run_all(source, "1")
    assert endless.status is ExecStatus.KILLED
    assert endless.cpu_ms < LINE_CPU_MS
    assert after.status is ExecStatus.KILLED


def test_a_loop_that_swallows_exceptions_ends_within_its_deadline(run_all: RunAll) -> None:
    body = "while True:\n    try:\n        while True: len('a')\n    except BaseException: pass\n"
    (endless,) = run_all(body)
    # The interrupt may also fall between the two loops, where nothing catches it.
    assert endless.status in {ExecStatus.KILLED, ExecStatus.TIMEOUT}
    assert endless.cpu_ms < LINE_CPU_MS


@pytest.mark.parametrize(
    "source",
    [
        "import os; os._exit(0)",
        "import os; os.abort()",
        "import ctypes; ctypes.string_at(0)",
    ],
)
def test_a_death_is_noticed_at_once_and_reported_ever_after(run_all: RunAll, source: str) -> None:
    dead, after = run_all(source, "1")
    assert (dead.status, after.status) == (ExecStatus.DIED, ExecStatus.DIED)
    assert dead.wall_ms < AT_ONCE_MS


def test_memory_is_bounded_and_its_end_is_an_error(run_all: RunAll) -> None:
    full, after = run_all("x = bytearray(1 << 30)", "1")
    assert full.error_type == "MemoryError"
    assert after.output == "1\n"


def test_endless_printing_is_cut_and_ends_in_an_error(run_all: RunAll) -> None:
    endless, after = run_all("while True: print('spam' * 9)\n", "1")
    assert (endless.status, endless.error_type) == (ExecStatus.ERROR, "OutputLimit")
    assert endless.output.startswith("spam" * 9 + "\n")
    assert endless.output.endswith("OutputLimit: more than 1048576 characters of output\n")
    assert endless.is_truncated
    assert len(endless.output) < 6300
    assert "characters omitted] ..." in endless.output
    assert after.output == "1\n"


def test_a_huge_repr_is_cut(run_all: RunAll) -> None:
    (huge,) = run_all("'a' * 10 ** 6")
    assert huge.is_truncated
    assert len(huge.output) < 6300


@pytest.mark.parametrize(
    ("body", "error_type"),
    [
        ("return 5", "TypeError"),
        ("raise SystemExit", "SystemExit"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("return '\\ud800'", None),
        ("return '>>> \\x1b[2J\\u202e'", None),
    ],
)
def test_a_hostile_repr_harms_its_own_line_only(
    run_all: RunAll, body: str, error_type: str | None
) -> None:
    _, shown, after = run_all(f"class E:\n    def __repr__(self): {body}\n", "E()", "1")
    assert shown.error_type == error_type
    assert not set(shown.output) & {"\x1b", "\u202e", "\ud800"}
    assert after.output == "1\n"


def test_an_exception_that_cannot_be_shown_is_still_an_error(run_all: RunAll) -> None:
    evil = "class E(Exception):\n    def __str__(self): raise BaseException\n"
    _, shown, after = run_all(evil, "raise E", "1")
    assert (shown.status, shown.error_type) == (ExecStatus.ERROR, "E")
    assert after.output == "1\n"


@pytest.mark.parametrize("name", ["'x y'", "''", "'x' * 101", "type('S', (str,), {})('x y')"])
def test_an_error_of_a_class_with_any_name_ends_no_kernel(run_all: RunAll, name: str) -> None:
    raised, after = run_all(f"raise type({name}, (Exception,), {{}})", "6 * 7")
    assert (raised.status, raised.error_type) == (ExecStatus.ERROR, "Exception")
    assert after.output == "42\n"


@pytest.mark.parametrize(
    "source",
    [
        "import builtins; builtins.print = builtins.len = builtins.isinstance = None",
        "import builtins; vars(builtins).clear()",
        "import sys; sys.stdout = sys.stderr = None",
        "import sys; sys.stdout.close()",
        "import sys; sys.settrace(1 .__truediv__)",
        "import sys; sys.setrecursionlimit(50)",
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0.001)",
        "globals().clear()",
    ],
)
def test_what_a_line_bends_is_straight_on_the_next(run_all: RunAll, source: str) -> None:
    _, after, printed = run_all(source, "40 + 2", "print(len('abc'))")
    assert after.output == "42\n"
    assert printed.output == "3\n"


def test_a_displayhook_can_do_what_a_line_can(run_all: RunAll) -> None:
    """It is under the same limits, and nothing that is not displayed asks for it."""
    endless = "import sys; sys.displayhook = lambda value: [print(value) for _ in iter(int, 1)]"
    _, shown, printed = run_all(endless, "'text' * 100", "x = print('fine')")
    assert shown.error_type == "OutputLimit"
    assert printed.output == "fine\n"


def test_the_streams_of_the_process_lead_nowhere_else(run_unsealed: RunAll) -> None:
    (links,) = run_unsealed("import os; [os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)]")
    assert re.fullmatch(r"\['/dev/null', '(pipe:\[\d+\])', '\1'\]\n", links.output)


def test_what_is_written_past_the_streams_is_shown_where_it_was_written(run_all: RunAll) -> None:
    written, failed, full, after = run_all(
        "import os; print('a'); os.write(1, b'1\\n') and print('b'); _ = os.write(2, b'2\\n')",
        "_ = os.write(1, b'3\\n'); 1 / 0",
        "while True: _ = os.write(1, bytes(1 << 12))\n",
        "6 * 7",
    )
    assert written.output == "a\n1\nb\n2\n"
    assert failed.output.startswith("3\nTraceback")
    assert full.error_type == "BlockingIOError"
    assert after.output == "42\n"


def test_what_a_program_writes_is_shown(run_unsealed: RunAll) -> None:
    (written,) = run_unsealed("import subprocess; _ = subprocess.run(['echo', 'hello'])")
    assert written.output == "hello\n"


def test_no_descriptor_leads_to_the_fork_server(run_unsealed: RunAll) -> None:
    source = (
        "import os, socket\n"
        "for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    try: print(socket.socket(fileno=os.dup(fd)).type)\n"
        "    except OSError: pass\n"
    )
    (kinds,) = run_unsealed(source)
    assert f"{socket.SOCK_SEQPACKET!s}" not in kinds.output


def test_unsealed_files_are_few_and_small(run_unsealed: RunAll) -> None:
    many, large = run_unsealed(
        "files = [open('/dev/null') for _ in range(100)]",
        "with open('f', 'wb') as f: f.write(bytes(2 << 20))\n",
    )
    assert (many.error_type, large.error_type) == ("OSError", "OSError")


def test_a_flood_of_nested_folders_is_removed(
    loop_runner: asyncio.Runner, unsealed_pool: KernelPool
) -> None:
    async def attack() -> Path:
        kernel = await unsealed_pool.acquire(seed=1)
        folder = kernel._started.folder
        await kernel.run("import os")
        await kernel.run("for _ in range(1500): os.mkdir('d'); os.chdir('d')\n")
        await kernel.aclose()
        return folder

    assert not os.path.exists(loop_runner.run(attack()))


# Code in a kernel can reach the kernel's own socket: it may send anything in place of its reply.
GRASP = r"""
import json, sys
frame = sys._getframe()
while "asked" not in frame.f_locals: frame = frame.f_back

(write,) = [c for c in frame.f_code.co_consts if getattr(c, "__name__", "") == "sendall"]
asked = frame.f_locals["number"]
def send(body): write(len(body).to_bytes(4, "big") + body)

def shout():
    import os, socket
    for fd in range(3, 64):
        try: socket.socket(fileno=os.dup(fd)).sendall(b"\xff" * 1000)
        except OSError: pass

good = {"status": "ok", "head": "", "tail": "", "num_omitted": 0, "error_type": None, "value": None}

def forge(number=asked, **said):
    send(json.dumps([number, *(good | said).values()]).encode())

"""
# Only an unsealed kernel can do anything between two lines.
SOON = "import threading; threading.Timer(0.1, lambda: {}).start()"
FORGERIES = (
    "send(b'garbage')",
    "send(b'')",
    "send(b'{}')",
    "send(b'null')",
    "send(b'[[[]]]')",
    "send(b'\\xff')",
    "send(b'[1, 2, 3, 4, 5, 6, ' + b'1' * 5000 + b']')",
    "forge(number=0)",
    "forge(number='1')",
    "forge(number=True)",
    "forge(more=1)",
    "forge(status='timeout')",
    "forge(status=['ok'])",
    "forge(status='error')",
    "forge(error_type='Error')",
    "forge(status='error', error_type='two words')",
    "forge(head=5)",
    "forge(head='x' * 7000)",
    "forge(value='x' * 5000)",
    "forge(num_omitted=-1)",
    "forge(num_omitted=True)",
    "forge(num_omitted=10 ** 30)",
    "send(b'[' * 50000)",
    "send(b'x' * 10 ** 7)",
    "write(b'\\xff' * 4)",
    "shout()",
)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_malformed_reply_gets_the_kernel_killed(with_kernel: WithKernel, forgery: str) -> None:
    async def attack(kernel: SupervisedKernel) -> tuple[Execution, Execution]:
        grasped = await kernel.run(GRASP + forgery)
        return grasped, await kernel.run("1")

    forged, after = with_kernel(attack)
    statuses = {forged.status, after.status}
    assert statuses & {ExecStatus.KILLED, ExecStatus.DIED}, (forged, after)
    assert after.status in (ExecStatus.KILLED, ExecStatus.DIED)


async def until_dead(kernel: SupervisedKernel) -> None:
    await asyncio.wait_for(kernel._process.died.wait(), AT_ONCE_MS / 1e3)


def test_a_well_formed_forgery_is_believed_once_and_answers_nothing_else(
    with_kernel: WithKernel,
) -> None:
    async def attack(kernel: SupervisedKernel) -> tuple[Execution, Execution]:
        forged = await kernel.run(GRASP + "forge(head='FORGED')")
        await until_dead(kernel)
        return forged, await kernel.run("1")

    forged, after = with_kernel(attack)
    assert forged.output == "FORGED\n"
    assert after.status is ExecStatus.KILLED


def test_a_line_that_goes_on_after_its_answer_is_billed_to_the_next(
    with_kernel: WithKernel,
) -> None:
    async def attack(kernel: SupervisedKernel) -> tuple[Execution, Execution]:
        forged = await kernel.run(GRASP + "forge()\nwhile True: pass\n")
        return forged, await kernel.run("1")

    forged, after = with_kernel(attack)
    assert forged.status is ExecStatus.OK
    assert after.status in {ExecStatus.KILLED, ExecStatus.TIMEOUT}
    assert after.cpu_ms < LINE_CPU_MS


def test_a_reply_sent_ahead_of_the_question_gets_the_kernel_killed(
    with_unsealed: WithKernel,
) -> None:
    async def attack(kernel: SupervisedKernel) -> tuple[Execution, Execution]:
        source = GRASP + SOON.format("forge()")
        first = await kernel.run(source)
        await until_dead(kernel)
        return first, await kernel.run("1")

    first, after = with_unsealed(attack)
    assert first.status is ExecStatus.OK
    assert after.status is ExecStatus.KILLED


def test_a_death_between_two_lines_is_noticed_by_the_second(with_unsealed: WithKernel) -> None:
    async def attack(kernel: SupervisedKernel) -> Execution:
        await kernel.run("import os\n" + SOON.format("os._exit(0)"))
        await until_dead(kernel)
        return await kernel.run("1")

    after = with_unsealed(attack)
    assert after.status is ExecStatus.DIED
    assert after.wall_ms < AT_ONCE_MS


def test_a_socket_closed_from_inside_gets_the_kernel_killed(with_kernel: WithKernel) -> None:
    closing = "import os; os.closerange(3, 60)\nimport time; time.sleep(5)"
    closed = with_kernel(lambda kernel: kernel.run(closing))
    assert closed.status in (ExecStatus.KILLED, ExecStatus.DIED)


BESIDE_AN_IGNORED_INTERRUPT = """
import asyncio, signal
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Limits

async def main():
    async with KernelPool(Limits(line_cpu_s=0.4, grace_s=5.0), preload=()) as pool:
        kernel = await pool.acquire(seed=0)
        print((await kernel.run("while True: pass\\n")).status, (await kernel.run("1 + 1")).output)

asyncio.run(main())
"""


def test_a_line_is_interrupted_though_the_trainer_ignores_interrupts() -> None:
    """A job in the background ignores them so."""
    ran = subprocess.run(
        [sys.executable, "-c", BESIDE_AN_IGNORED_INTERRUPT],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.stdout == "timeout 2\n\n", ran.stderr
