"""The system calls that a sealed kernel may make, and how each machine numbers them.

A kernel is sealed when it has forked and bound its sockets; a console has started zmq's threads
too. What is left is to run Python: read files, allocate, wait, answer, end. A call without a name
in `NUMBERS` is refused, and a few with one are too, in a way that their callers know how to take.
Knows names, numbers and arguments. Does not know how a refusal is enforced.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import termios
from dataclasses import dataclass

MACHINES = ("x86_64", "aarch64")
"""Names that `os.uname` gives to machines, in the order of the columns below."""

# None: the machine never had the call. Its libc makes one of the others instead.
NUMBERS: dict[str, tuple[int, int | None]] = {
    # Open files
    "read": (0, 63),
    "readv": (19, 65),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "write": (1, 64),
    "writev": (20, 66),
    "lseek": (8, 62),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "fstat": (5, 80),
    "getdents64": (217, 61),
    # Paths
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getcwd": (79, 17),
    "umask": (95, 166),
    # Memory
    "brk": (12, 214),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "madvise": (28, 233),
    # Threads: those of a console's zmq may still be starting
    "futex": (202, 98),
    "gettid": (186, 178),
    "rseq": (334, 293),
    "set_robust_list": (273, 99),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_setscheduler": (144, 119),
    "sched_yield": (24, 124),
    "clone3": (435, 435),
    # Waiting
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "eventfd2": (290, 19),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "pause": (34, None),
    "restart_syscall": (219, 128),
    # Sockets that exist already, and those that clients open
    "accept4": (288, 242),
    "socketpair": (53, 199),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
    "getsockopt": (55, 209),
    "shutdown": (48, 210),
    # Signals
    "rt_sigaction": (13, 134),
    "rt_sigpending": (127, 136),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    "kill": (62, 129),
    "tgkill": (234, 131),
    # Clocks and timers
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "alarm": (37, None),
    # Who and where we are
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getsid": (124, 156),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getresuid": (118, 148),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "prlimit64": (302, 261),
    "uname": (63, 160),
    # The end
    "exit": (60, 93),
    "exit_group": (231, 94),
}

ANSWERS = {
    # libc falls back to `clone` and `openat`, which a filter can look into.
    "clone3": errno.ENOSYS,
    "openat2": errno.ENOSYS,
    # Success without effect: a thread of libzmq that cannot set its priority aborts the process.
    "sched_setscheduler": 0,
}
"""Results that these calls always return, without any effect."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """Condition that an argument, an int of 32 bits, has one of these values."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lacks:
    """Condition that an argument, an int of 32 bits, has none of these bits set."""

    argument: int
    bits: int


@dataclass(frozen=True, slots=True)
class Null:
    """Condition that an argument, a pointer of 64 bits, points nowhere."""

    argument: int


@dataclass(frozen=True, slots=True)
class Guard:
    """A call passes if all of this holds. If not, it has no effect and returns `otherwise`."""

    requirements: tuple[OneOf | Lacks | Null, ...]
    otherwise: int = errno.EPERM


# The numbers below that come from the standard library are the same on both machines.
# Not `os.O_TMPFILE`: it includes the bit of O_DIRECTORY, which differs between the machines.
WRITE_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | 0o20000000
IOCTLS = (termios.TCGETS, termios.FIONBIO, termios.FIOCLEX, termios.FIONCLEX, termios.FIONREAD)
# Not F_SETOWN and F_SETSIG: together they send any signal to any process.
FCNTLS = (
    fcntl.F_GETFD,
    fcntl.F_SETFD,
    fcntl.F_GETFL,
    fcntl.F_SETFL,
    fcntl.F_DUPFD,
    fcntl.F_DUPFD_CLOEXEC,
)
SOCKET_OPTIONS = (
    socket.SO_ACCEPTCONN,
    socket.SO_DOMAIN,
    socket.SO_ERROR,
    socket.SO_PROTOCOL,
    socket.SO_TYPE,
)
# WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET; waits also by the clock.
# Not those with an owner, which show whether a process of a number exists.
FUTEX_OPERATIONS = (0, 1, 3, 4, 5, 9, 10, 256, 256 | 9)
FUTEX_PRIVATE_FLAG = 128
FUTEX_SHARED_WAITS = (0, 9, 256 | 9)
"""Operations by which glibc waits for the end of a thread (`pthread_join`, which `Thread.join`
calls since Python 3.13). Linux itself wakes the thread that waits."""
CLOCKS = (*range(10), 11)
"""Clocks of the machine and, as numbers 2 and 3, the caller's own. Linux has no number 10."""
# Not MSG_OOB: on unix sockets it is new and unused, and has been a way into the Linux kernel.
UNUSUAL_MESSAGE = int(socket.MSG_OOB)


def guards(*, own_pid: int, has_zmq: bool = False) -> dict[str, Guard]:
    """The calls that depend on their arguments. `own_pid` is what the kernel's `getpid` says.

    has_zmq: whether threads of libzmq may still start, which ask by their own numbers how they are
             scheduled, and abort the process on an error.
    """
    to_itself = Guard((OneOf(0, (own_pid,)),))
    # The number of another process would show that it exists, and what it does.
    of_itself = OneOf(0, (0, own_pid))
    own_clocks = (_cpu_clock(0), _cpu_clock(own_pid), _cpu_clock(own_pid, 4))
    by_a_clock = Guard((OneOf(0, (*CLOCKS, *own_clocks)),))
    return {
        "open": Guard((Lacks(1, WRITE_FLAGS),), otherwise=errno.EACCES),
        "openat": Guard((Lacks(2, WRITE_FLAGS),), otherwise=errno.EACCES),
        "ioctl": Guard((OneOf(1, IOCTLS),), otherwise=errno.ENOTTY),
        "fcntl": Guard((OneOf(1, FCNTLS),)),
        "kill": to_itself,
        "tgkill": to_itself,
        # Limits may be read, not set.
        "prlimit64": Guard((of_itself, Null(2))),
        "getpgid": Guard((of_itself,)),
        "getsid": Guard((of_itself,)),
        "sched_getaffinity": Guard((of_itself,)),
        # Success without an answer leaves what was in the caller's memory before.
        "sched_getparam": Guard((of_itself,), otherwise=0 if has_zmq else errno.EPERM),
        "sched_getscheduler": Guard((of_itself,), otherwise=0 if has_zmq else errno.EPERM),
        "clock_gettime": by_a_clock,
        "clock_getres": by_a_clock,
        "clock_nanosleep": by_a_clock,
        "socketpair": Guard((OneOf(0, (int(socket.AF_UNIX),)),)),
        # Without the private flag, two kernels that map one file could wake each other. To wait
        # wakes nobody, and shows no more than reading does.
        "futex": Guard(
            (
                OneOf(
                    1,
                    (*FUTEX_SHARED_WAITS, *(FUTEX_PRIVATE_FLAG | n for n in FUTEX_OPERATIONS)),
                ),
            )
        ),
        # Not SO_PEERPIDFD: it returns a handle on the trainer.
        "getsockopt": Guard((OneOf(2, SOCKET_OPTIONS),)),
        # With an address, one end of a pair of datagram sockets can send to any listener.
        "sendto": Guard((Lacks(3, UNUSUAL_MESSAGE), Null(4))),
        "recvfrom": Guard((Lacks(3, UNUSUAL_MESSAGE),)),
    }


def _cpu_clock(pid: int, kind: int = 0) -> int:
    """The number that Linux gives to the CPU clock of a process or (kind 4) of a thread."""
    return ((~pid << 3) | 2 | kind) & 0xFFFFFFFF


class UnsupportedMachineError(ValueError):
    """The numbers of this machine's system calls are not known here."""


def numbers(machine: str) -> dict[str, int]:
    """The calls of `NUMBERS` that a machine has, by name."""
    if machine not in MACHINES:
        expected = " or ".join(MACHINES)
        raise UnsupportedMachineError(f"cannot seal on machine {machine!r}; expected {expected}")
    column = MACHINES.index(machine)
    columns = ((name, row[column]) for name, row in NUMBERS.items())
    return {name: number for name, number in columns if number is not None}


def call(number: int, *arguments: int | bytes) -> int:
    """Make a call that libc has no function for. Bytes go by address. OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    # Without types, ctypes passes an int as 32 bits.
    words = (ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments)
    result = int(libc.syscall(ctypes.c_long(number), *words))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
