"""The filter on the system calls of a sealed kernel: assembles it and installs it.

syscalls -> make_filter -> install

A program of classic BPF: instructions of eight bytes that load words of `struct seccomp_data` (see
linux/seccomp.h), compare, and return a verdict. It searches the number of the call among ranges of
numbers with the same verdict, in about seven steps. Knows instructions. Does not know which calls
are allowed, or which other walls there are.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from itertools import groupby
from operator import itemgetter

from repl_sandbox.walls.syscalls import ANSWERS, Guard, Lacks, Null, OneOf, call, guards, numbers

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_TSYNC = 1

SECCOMP_RET_KILL_PROCESS = 0x80000000
SECCOMP_RET_ERRNO = 0x00050000
SECCOMP_RET_ALLOW = 0x7FFF0000

LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

NUMBER_OFFSET, ARCH_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
INSTRUCTION = struct.Struct("<HBBI")  # code, steps to skip if true, if false, operand

# A piece of program that always ends in a return.
Code = bytes


def make_filter(machine: str, *, own_pid: int, has_zmq: bool = False) -> bytes:
    """The program for a machine by its name in `os.uname`. UnsupportedMachineError if unknown.

    `own_pid` is the only process that it lets the kernel signal. `has_zmq`: see `syscalls.guards`.
    """
    codes = _codes(numbers(machine), guards(own_pid=own_pid, has_zmq=has_zmq))
    return b"".join(
        (
            # First the ABI: in another one, such as i386's `int 0x80`, a number is another call.
            _step(LOAD, ARCH_OFFSET),
            _step(IF_EQUAL, AUDIT_ARCH[machine], if_true=1),
            _step(RETURN, SECCOMP_RET_KILL_PROCESS),
            _step(LOAD, NUMBER_OFFSET),
            _search(_ranges(codes)),
        )
    )


def install(program: bytes) -> None:
    """Bind every thread of this process, and all that they start, for good.

    The caller has set `no_new_privs`. OSError if Linux refuses the program or a thread.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions and where they are.
    fprog = struct.pack("HP", len(program) // INSTRUCTION.size, ctypes.addressof(instructions))
    number = SYS_SECCOMP[os.uname().machine]
    # Threads of a console exist already. With ctypes, a line could run its code in one of them.
    thread = call(number, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, fprog)
    if thread != 0:
        raise OSError(errno.EBUSY, f"thread {thread} is bound by another filter")


def is_available() -> bool:
    """Return whether `install` can work in this process. Installs nothing."""
    number = SYS_SECCOMP.get(os.uname().machine)
    if number is None:
        return False
    try:
        call(number, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, 0)
    except OSError as error:
        # Linux knows the operation and the flag: it tried to read the program at address zero.
        return error.errno == errno.EFAULT
    return False


def _codes(called: dict[str, int], guarded: dict[str, Guard]) -> dict[int, Code]:
    """The code for each number that is not simply refused."""
    codes = {number: _step(RETURN, SECCOMP_RET_ALLOW) for number in called.values()}
    codes |= {number: _judge(guarded[name]) for name, number in called.items() if name in guarded}
    codes |= {called[name]: _refuse(code) for name, code in ANSWERS.items()}
    return codes


def _ranges(codes: dict[int, Code]) -> list[tuple[int, Code]]:
    """(first number, code for it and for all up to the next), from zero up without a gap."""
    refused = _refuse(errno.EPERM)
    # One number more than the last: the last range reaches 2**32 and refuses calls of x32.
    judged = [(number, codes.get(number, refused)) for number in range(max(codes) + 2)]
    return [next(alike) for _code, alike in groupby(judged, key=itemgetter(1))]


def _search(ranges: list[tuple[int, Code]]) -> Code:
    """Go to the code of the range that holds the loaded word, by bisection."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    low, high = _search(ranges[:middle]), _search(ranges[middle:])
    return _step(IF_AT_LEAST, ranges[middle][0], if_true=len(low) // INSTRUCTION.size) + low + high


def _judge(guard: Guard) -> Code:
    refused = _refuse(guard.otherwise)
    checks = b"".join(_check(required, refused) for required in guard.requirements)
    return checks + _step(RETURN, SECCOMP_RET_ALLOW)


def _check(required: OneOf | Lacks | Null, refused: Code) -> bytes:
    """Go on after these steps if the requirement holds."""
    match required:
        case OneOf(argument, values):
            # The call reads 32 bits. An ABI may leave anything in the others.
            return _load(argument) + _if_among(values) + refused
        case Lacks(argument, bits):
            return _load(argument) + _step(IF_ANY_BIT, bits, if_false=1) + refused
        case Null(argument):
            halves = (_load(argument), _load(argument, upper=True))
            return b"".join(half + _if_among((0,)) + refused for half in halves)


def _if_among(values: tuple[int, ...]) -> bytes:
    """Skip the one step that follows these if the loaded word is one of the values."""
    left = range(len(values), 0, -1)
    return b"".join(
        _step(IF_EQUAL, value, if_true=n) for value, n in zip(values, left, strict=True)
    )


def _load(argument: int, *, upper: bool = False) -> bytes:
    # Both machines are little-endian.
    return _step(LOAD, ARGUMENTS_OFFSET + 8 * argument + (4 if upper else 0))


def _refuse(code: int) -> Code:
    return _step(RETURN, SECCOMP_RET_ERRNO | code)


def _step(code: int, operand: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction. struct.error if a jump is too far for its byte."""
    return INSTRUCTION.pack(code, if_true, if_false, operand)
