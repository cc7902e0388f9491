"""The filter judges every call as its table says, on both machines; Linux holds a process to it."""

import errno
import json
import os
import signal
import struct
import subprocess
import sys

import pytest

from repl_sandbox.walls import seccomp, syscalls

MACHINES = syscalls.MACHINES
OWN_PID, OTHER_PID = 77, 78
X32_BIT = 0x40000000
HIGH_BIT = 1 << 32
MAX_NUMBER = 1100
ALLOW, KILL = "allow", "kill"
DEADLINE_S = 60

# linux/bpf_common.h, linux/audit.h
LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028


PROGRAMS = {machine: seccomp.make_filter(machine, own_pid=OWN_PID) for machine in MACHINES}


def judge(machine: str, call: str | int, *arguments: int) -> str | int:
    number = syscalls.numbers(machine)[call] if isinstance(call, str) else call
    return interpret(PROGRAMS[machine], ARCH[machine], number, *arguments)[0]


def interpret(program: bytes, arch: int, number: int, *arguments: int) -> tuple[str | int, int]:
    """`ALLOW`, `KILL` or an errno, and the number of steps to it."""
    words = struct.pack("<IIQ6Q", number, arch, 0, *arguments, *(0,) * (6 - len(arguments)))
    steps = list(struct.iter_unpack("<HBBI", program))
    accumulator = at = taken = 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at, taken = at + 1, taken + 1
        if code == RETURN:
            return verdict(operand), taken
        if code == LOAD:
            assert operand % 4 == 0
            accumulator = struct.unpack_from("<I", words, operand)[0]
            continue
        holds = {
            IF_EQUAL: accumulator == operand,
            IF_AT_LEAST: accumulator >= operand,
            IF_ANY_BIT: bool(accumulator & operand),
        }[code]
        at += if_true if holds else if_false


def verdict(returned: int) -> str | int:
    if returned & 0xFFFF0000 == 0x00050000:
        return returned & 0xFFFF
    return {0x7FFF0000: ALLOW, 0x80000000: KILL}[returned]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_every_number_gets_the_verdict_of_its_name(machine: str, word: int) -> None:
    names = {number: name for name, number in syscalls.numbers(machine).items()}
    guarded = syscalls.guards(own_pid=OWN_PID)
    for number in range(MAX_NUMBER + 1):
        name = names.get(number)
        expected = errno.EPERM if name is None else syscalls.ANSWERS.get(name, ALLOW)
        # What those get depends on their arguments, see below.
        if name not in guarded:
            assert judge(machine, number, *(word,) * 6) == expected, f"{number}: {name}"


def cpu_clock(pid: int, *, of_thread: bool = False) -> int:
    """Number of the clock by clock_getcpuclockid(3) and pthread_getcpuclockid(3), in 32 bits."""
    return ((~pid << 3) | (6 if of_thread else 2)) % 2**32


NO_ADDRESS = (0, 0)
ABOUT_A_PROCESS = ("getpgid", "getsid", "sched_getaffinity")
SCHEDULING = ("sched_getparam", "sched_getscheduler")
CLOCKS = ("clock_gettime", "clock_getres", "clock_nanosleep")
ARGUMENTS = [
    ("prlimit64", (0, 7, 0, 0x1000), ALLOW),
    ("prlimit64", (0, 7, 0x1000, 0), errno.EPERM),
    ("prlimit64", (0, 7, 1, 0), errno.EPERM),
    ("prlimit64", (0, 7, 0xFFFFFFFF, 0), errno.EPERM),
    ("prlimit64", (0, 7, HIGH_BIT, 0), errno.EPERM),
    ("prlimit64", (0, 7, 1 << 63, 0), errno.EPERM),
    ("prlimit64", (OWN_PID, 7, 0, 0x1000), ALLOW),
    ("prlimit64", (OTHER_PID, 7, 0, 0x1000), errno.EPERM),
    *((name, (pid,), ALLOW) for name in ABOUT_A_PROCESS for pid in (0, OWN_PID)),
    *((name, (OTHER_PID,), errno.EPERM) for name in ABOUT_A_PROCESS),
    *((name, (0,), ALLOW) for name in SCHEDULING),
    *((name, (OTHER_PID,), errno.EPERM) for name in SCHEDULING),
    *((name, (clock,), ALLOW) for name in CLOCKS for clock in (0, 1, 2, 3, 7, 11)),
    *((name, (cpu_clock(OWN_PID),), ALLOW) for name in CLOCKS),
    *((name, (cpu_clock(0),), ALLOW) for name in CLOCKS),
    *((name, (cpu_clock(OWN_PID, of_thread=True),), ALLOW) for name in CLOCKS),
    *((name, (cpu_clock(OTHER_PID),), errno.EPERM) for name in CLOCKS),
    *((name, (cpu_clock(OTHER_PID, of_thread=True),), errno.EPERM) for name in CLOCKS),
    *((name, (2**32 - 5,), errno.EPERM) for name in CLOCKS),  # the clock of a file
    ("kill", (OWN_PID, 2), ALLOW),
    # Linux takes 32 bits for the pid, so this is ours too.
    ("kill", (OWN_PID | HIGH_BIT, 2), ALLOW),
    ("kill", (OTHER_PID, 2), errno.EPERM),
    ("kill", (OTHER_PID | HIGH_BIT, 2), errno.EPERM),
    ("kill", (0, 9), errno.EPERM),
    ("kill", (2**32 - 1, 9), errno.EPERM),
    ("kill", (2**64 - 1, 9), errno.EPERM),
    ("kill", (2**64 - OWN_PID, 9), errno.EPERM),
    ("tgkill", (OWN_PID, OTHER_PID, 2), ALLOW),
    ("tgkill", (OTHER_PID, OWN_PID, 2), errno.EPERM),
    ("openat", (0, 0x1000, os.O_RDONLY), ALLOW),
    ("openat", (0, 0x1000, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), ALLOW),
    # O_DIRECTORY of aarch64 and of x86_64.
    ("openat", (0, 0x1000, 0o40000), ALLOW),
    ("openat", (0, 0x1000, 0o200000), ALLOW),
    ("openat", (0, 0x1000, os.O_WRONLY), errno.EACCES),
    ("openat", (0, 0x1000, os.O_RDWR), errno.EACCES),
    ("openat", (0, 0x1000, os.O_ACCMODE), errno.EACCES),
    ("openat", (0, 0x1000, os.O_CREAT), errno.EACCES),
    ("openat", (0, 0x1000, os.O_TRUNC), errno.EACCES),
    ("openat", (0, 0x1000, 0o20000000), errno.EACCES),
    ("openat", (0, 0x1000, os.O_RDWR | HIGH_BIT), errno.EACCES),
    ("open", (0x1000, os.O_RDONLY | os.O_CLOEXEC), ALLOW),
    ("open", (0x1000, os.O_WRONLY), errno.EACCES),
    ("open", (0x1000, os.O_CREAT), errno.EACCES),
    ("ioctl", (0, 0x5401), ALLOW),  # TCGETS
    ("ioctl", (0, 0x541B), ALLOW),  # FIONREAD
    ("ioctl", (0, 0x5421), ALLOW),  # FIONBIO
    ("ioctl", (0, 0x5450), ALLOW),  # FIONCLEX
    ("ioctl", (0, 0x5451), ALLOW),  # FIOCLEX
    ("ioctl", (0, 0x5412), errno.ENOTTY),  # TIOCSTI
    ("ioctl", (0, 0x541C), errno.ENOTTY),  # TIOCLINUX
    ("ioctl", (0, 0x8901), errno.ENOTTY),  # FIOSETOWN
    ("ioctl", (0, 0x5412 | HIGH_BIT), errno.ENOTTY),
    ("fcntl", (0, 0), ALLOW),  # F_DUPFD
    ("fcntl", (0, 4), ALLOW),  # F_SETFL
    ("fcntl", (0, 1030), ALLOW),  # F_DUPFD_CLOEXEC
    ("fcntl", (0, 8), errno.EPERM),  # F_SETOWN
    ("fcntl", (0, 10), errno.EPERM),  # F_SETSIG
    ("fcntl", (0, 15), errno.EPERM),  # F_SETOWN_EX
    ("fcntl", (0, 1024), errno.EPERM),  # F_SETLEASE
    ("socketpair", (1, 1), ALLOW),  # AF_UNIX
    ("socketpair", (2, 1), errno.EPERM),  # AF_INET
    ("socketpair", (30, 1), errno.EPERM),  # AF_TIPC
    ("sendto", (0, 0x1000, 1, 0x4040, *NO_ADDRESS), ALLOW),  # MSG_NOSIGNAL | MSG_DONTWAIT
    ("sendto", (0, 0x1000, 1, 1, *NO_ADDRESS), errno.EPERM),  # MSG_OOB
    ("sendto", (0, 0x1000, 1, 0, 0x1000, 0), errno.EPERM),
    ("sendto", (0, 0x1000, 1, 0, HIGH_BIT, 0), errno.EPERM),
    ("getsockopt", (0, 1, 4), ALLOW),  # SO_ERROR
    ("getsockopt", (0, 1, 77), errno.EPERM),  # SO_PEERPIDFD
    ("futex", (0x1000, 129), ALLOW),  # FUTEX_WAKE_PRIVATE
    ("futex", (0x1000, 128), ALLOW),  # FUTEX_WAIT_PRIVATE
    ("futex", (0x1000, 128 | 256 | 9), ALLOW),  # FUTEX_WAIT_BITSET_PRIVATE, by the clock
    ("futex", (0x1000, 1), errno.EPERM),  # FUTEX_WAKE
    ("futex", (0x1000, 256 | 9), ALLOW),  # FUTEX_WAIT_BITSET, for the end of a thread
    ("futex", (0x1000, 10), errno.EPERM),  # FUTEX_WAKE_BITSET
    ("futex", (0x1000, 5), errno.EPERM),  # FUTEX_WAKE_OP
    ("futex", (0x1000, 128 | 2), errno.EPERM),  # FUTEX_FD
    *(("futex", (0x1000, 128 | operation), errno.EPERM) for operation in (6, 7, 8, 11, 12, 13)),
    ("recvfrom", (0, 0x1000, 1, 0x40, 0x1000, 0x1000), ALLOW),
    ("recvfrom", (0, 0x1000, 1, 0x41, *NO_ADDRESS), errno.EPERM),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "arguments", "expected"), ARGUMENTS)
def test_a_guarded_call_is_judged_by_its_arguments(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    if name in syscalls.numbers(machine):
        assert judge(machine, name, *arguments) == expected


@pytest.mark.parametrize("name", SCHEDULING)
def test_a_thread_of_zmq_that_asks_about_itself_gets_no_error(name: str) -> None:
    """It knows itself by another number, and aborts the process."""
    assert syscalls.guards(own_pid=OWN_PID, has_zmq=True)[name].otherwise == 0


def test_every_guarded_call_is_tried_both_ways() -> None:
    tried = {(name, expected == ALLOW) for name, _arguments, expected in ARGUMENTS}
    names = syscalls.guards(own_pid=OWN_PID)
    assert tried == {(name, passes) for name in names for passes in (True, False)}


@pytest.mark.parametrize("machine", MACHINES)
def test_clone3_seems_missing_so_that_libc_falls_back(machine: str) -> None:
    assert judge(machine, 435) == errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_a_thread_seems_to_get_its_priority(machine: str) -> None:
    assert judge(machine, "sched_setscheduler") == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_the_x32_abi_is_refused(machine: str) -> None:
    for number in range(MAX_NUMBER):
        assert judge(machine, X32_BIT | number) == errno.EPERM
    assert judge(machine, 2**32 - 1) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_a_foreign_machine_is_killed_whatever_it_calls(machine: str) -> None:
    for arch in {*ARCH.values(), I386, ARM, 0} - {ARCH[machine]}:
        for number in range(MAX_NUMBER):
            assert interpret(PROGRAMS[machine], arch, number)[0] == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_without_guard_is_judged_in_twelve_steps(machine: str) -> None:
    for name, number in syscalls.numbers(machine).items():
        if name not in syscalls.guards(own_pid=OWN_PID):
            _verdict, num_steps = interpret(PROGRAMS[machine], ARCH[machine], number)
            assert num_steps <= 12, name


def test_an_unknown_machine_is_named_with_those_we_know() -> None:
    with pytest.raises(ValueError, match="'riscv64'; expected x86_64 or aarch64"):
        seccomp.make_filter("riscv64", own_pid=1)


needs_seccomp = pytest.mark.skipif(
    not seccomp.is_available(), reason="this Linux takes no seccomp filters from us"
)
PREPARE = """
import asyncio, ctypes, errno, fcntl, json, mmap, os, resource, select, signal, socket, sys
import threading, time
from repl_sandbox.walls import seccomp
libc = ctypes.CDLL(None, use_errno=True)
def seal():
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    seccomp.install(seccomp.make_filter(os.uname().machine, own_pid=os.getpid()))
def outcome(attempt):
    try: return attempt()
    except OSError as error: return errno.errorcode[error.errno]
    except BaseException as error: return repr(error)
def report(what): print(json.dumps(what), flush=True)
"""


def run_child(source: str) -> subprocess.CompletedProcess[str]:
    """Run a source in a process of its own, which may not survive it."""
    return subprocess.run(
        [sys.executable, "-c", PREPARE + source],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def reported(source: str) -> object:
    child = run_child(source)
    assert child.stderr == ""
    return json.loads(child.stdout)


ATTACKS = {
    "fork": ("os.fork() or os._exit(0)", "EPERM"),
    "vfork": ("os.posix_spawn('/bin/true', ['true'], {})", "EPERM"),
    "exec": ("os.execv('/no/such/file', ['x'])", "EPERM"),
    "a thread": (
        "threading.Thread(target=print).start()",
        'RuntimeError("can\'t start new thread")',
    ),
    "a socket": ("socket.socket()", "EPERM"),
    "a pair that is not of unix": ("socket.socketpair(socket.AF_INET)", "EPERM"),
    "write a file": ("open('/tmp/sealed', 'w')", "EACCES"),
    "append to a file": ("open('/tmp/sealed', 'a')", "EACCES"),
    "a nameless file": ("os.open('/tmp', os.O_TMPFILE | os.O_RDWR)", "EACCES"),
    "a file in memory": ("os.memfd_create('x')", "EPERM"),
    "make a folder": ("os.mkdir('/tmp/sealed')", "EPERM"),
    "remove a file": ("os.unlink('/no/such/file')", "EPERM"),
    "change a mode": ("os.chmod('/no/such/file', 0)", "EPERM"),
    "kill the parent": ("os.kill(os.getppid(), 0)", "EPERM"),
    "kill the group": ("os.kill(0, 0)", "EPERM"),
    "kill all": ("os.kill(-1, 0)", "EPERM"),
    "kill by descriptor": ("os.pidfd_open(os.getppid())", "EPERM"),
    "another's clock": ("time.clock_gettime((~os.getppid() << 3) | 2)", "EPERM"),
    "another's session": ("os.getsid(os.getppid())", "EPERM"),
    "own a descriptor": ("fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())", "EPERM"),
    "raise a limit": ("resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))", "EPERM"),
    "another user": ("os.setuid(os.getuid())", "EPERM"),
    "another processor": ("os.sched_setaffinity(0, {0})", "EPERM"),
    "write to an address": ("socket.socketpair(type=2)[0].sendto(b'x', '/no/such')", "EPERM"),
    "pass a descriptor": ("socket.send_fds(socket.socketpair()[0], [b'x'], [0])", "EPERM"),
}
WORKS = {
    "read a file": "open('/proc/self/status').read(1)",
    "list a folder": "os.listdir('/') and os.stat('/') and os.path.realpath('.')",
    "sleep": "time.sleep(0.001)",
    "asyncio": "asyncio.run(asyncio.sleep(0))",
    "import": "__import__('sympy.combinatorics').symbols('x')",
    "allocate": "len(bytearray(64 << 20))",
    "map memory": "mmap.mmap(-1, 1 << 20).write(b'x')",
    "signal itself": "signal.raise_signal(signal.SIGUSR1) or os.kill(os.getpid(), signal.SIGUSR1)",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 60) and signal.setitimer(0, 0)",
    "chance": "os.urandom(8) and os.getrandom(8)",
    "wait": "select.select([0], [], [], 0) and select.poll().poll(0)",
    "an epoll": "select.epoll().poll(0)",
    "a pair": "(lambda a, b: a.send(b'x') and b.recv(1))(*socket.socketpair())",
    "limits": "resource.getrlimit(resource.RLIMIT_AS) and resource.getrusage(0)",
    "the machine": "os.uname() and os.cpu_count() and os.times() and os.sched_getaffinity(0)",
    "clocks": "[time.clock_gettime(clock) for clock in (0, 1, 2, 3, 4, 7, 11)]",
    "its own clock": "time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident()))",
    "its group": "os.getsid(0) + os.getpgid(os.getpid()) + os.getpgrp()",
    "how much memory there is": "os.sysconf('SC_PHYS_PAGES')",
    "priority": "os.sched_setscheduler(0, 0, os.sched_param(0))",
    "descriptors": "os.close(os.dup2(os.dup(0), 60)) or os.isatty(0)",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, object]:
    """Results that one sealed process got from each source, in their order."""
    sources = [source for source, _errno in ATTACKS.values()] + list(WORKS.values())
    attempts = f"{{source: outcome(lambda: [eval(source), 'done'][1]) for source in {sources}}}"
    ready = "signal.signal(signal.SIGUSR1, lambda *_: None)\nseal()\n"
    found = reported(ready + f"report({attempts})")
    assert isinstance(found, dict)
    return found


@needs_seccomp
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_sealed_process_cannot(attack: str, outcomes: dict[str, object]) -> None:
    source, expected = ATTACKS[attack]
    assert outcomes[source] == expected


@needs_seccomp
@pytest.mark.parametrize("work", WORKS)
def test_a_sealed_process_can(work: str, outcomes: dict[str, object]) -> None:
    assert outcomes[WORKS[work]] == "done"


@needs_seccomp
def test_a_thread_that_was_there_before_is_bound_too() -> None:
    source = """
found, sealed = [], threading.Event()
thread = threading.Thread(target=lambda: sealed.wait() and found.append(outcome(os.pipe)))
thread.start()
seal()
sealed.set()
thread.join()
report(found)
"""
    assert reported(source) == ["EPERM"]


@needs_seccomp
def test_a_sealed_process_can_abort() -> None:
    assert run_child("seal(); os.abort()").returncode == -signal.SIGABRT


CALL_I386 = """
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000 cd80 c3"))  # mov eax, 20 (getpid); int 0x80; ret
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
"""


@needs_seccomp
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has calls of i386")
def test_a_call_of_i386_is_the_end() -> None:
    if run_child(CALL_I386 + "assert call() == os.getpid()").returncode != 0:
        pytest.skip("this Linux has no calls of i386")
    assert run_child(CALL_I386 + "seal(); call()").returncode == -signal.SIGSYS


@needs_seccomp
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has the x32 ABI")
def test_a_call_of_x32_is_refused_by_linux() -> None:
    source = f"seal(); libc.syscall({X32_BIT | 57}); report(errno.errorcode[ctypes.get_errno()])"
    assert reported(source) == "EPERM"


@needs_seccomp
def test_a_broken_program_is_an_error() -> None:
    source = "libc.prctl(38, 1, 0, 0, 0); report(outcome(lambda: seccomp.install(bytes(8))))"
    assert reported(source) == "EINVAL"


@needs_seccomp
def test_asking_whether_there_are_filters_installs_none() -> None:
    source = (
        "seccomp.is_available(); report(open('/proc/self/status').read().count('Seccomp:\\t0'))"
    )
    assert reported(source) == 1
