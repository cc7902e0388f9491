"""The tables name what Linux's own headers name, and nothing that is dangerous."""

import re
from pathlib import Path

import pytest

from repl_sandbox.walls.syscalls import ANSWERS, MACHINES, NUMBERS, guards, numbers

HEADERS = {
    "x86_64": [
        Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        Path("/usr/include/asm/unistd_64.h"),
    ],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}


def header_numbers(machine: str) -> dict[str, int]:
    header = next((path for path in HEADERS[machine] if path.exists()), None)
    if header is None:
        pytest.skip(f"the Linux headers for {machine} are not installed")
    text = header.read_text()
    found = {name: int(n) for name, n in re.findall(r"#define (__NR\w+)\s+(\d+)\b", text)}
    # `__NR3264_fstatat 79` is called `newfstatat` by machines of 64 bits, the first of two names.
    for name, alias in re.findall(r"#define (__NR_\w+)\s+(__NR3264_\w+)", text):
        if alias in found:
            found[name] = found[alias]
    return {name.removeprefix("__NR_"): number for name, number in found.items()}


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_linux_headers(machine: str) -> None:
    known = header_numbers(machine)
    ours = numbers(machine)
    assert ours == {name: known.get(name) for name in ours}


def test_a_call_that_aarch64_lacks_is_not_in_its_headers() -> None:
    known = header_numbers("aarch64")
    assert not [name for name, row in NUMBERS.items() if row[1] is None and name in known]


# Name, x86_64, aarch64. Written out once more, so that no slip in the table of the allowed goes
# unnoticed.
FORBIDDEN = """
fork 57 -, vfork 58 -, clone 56 220, execve 59 221, execveat 322 281, socket 41 198,
connect 42 203, bind 49 200, listen 50 201, sendmsg 46 211, sendmmsg 307 269, recvmsg 47 212,
setsockopt 54 208, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271,
tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_send_signal 424 424,
pidfd_open 434 434, pidfd_getfd 438 438, mount 165 40, umount2 166 39, pivot_root 155 41,
chroot 161 51, unshare 272 97, setns 308 268, bpf 321 280, io_uring_setup 425 425,
io_uring_enter 426 426, keyctl 250 219, userfaultfd 323 282, memfd_create 319 279,
perf_event_open 298 241, setuid 105 146, setgid 106 144, setresuid 117 147, setrlimit 160 164,
prctl 157 167, personality 135 92, seccomp 317 277, landlock_restrict_self 446 446, creat 85 -,
truncate 76 45, ftruncate 77 46, fallocate 285 47, chmod 90 -, fchmod 91 52, fchmodat 268 53,
fchownat 260 54, unlink 87 -, unlinkat 263 35, rename 82 -, renameat2 316 276, mkdir 83 -,
mkdirat 258 34, linkat 265 37, symlinkat 266 36, mknodat 259 33, utimensat 280 88, splice 275 76,
vmsplice 278 75, sched_setaffinity 203 122, sysinfo 99 179,
getpriority 140 141, ioprio_get 252 31, kcmp 312 272, process_madvise 440 440,
process_mrelease 448 448, sched_rr_get_interval 148 127, get_robust_list 274 100,
kexec_load 246 104, init_module 175 105
"""


def forbidden_numbers(machine: str) -> dict[str, int]:
    rows = (row.split() for row in FORBIDDEN.split(","))
    columns = ((row[0], row[1 + MACHINES.index(machine)]) for row in rows)
    return {name: int(number) for name, number in columns if number != "-"}


@pytest.mark.parametrize("machine", MACHINES)
def test_no_dangerous_call_has_a_name_here(machine: str) -> None:
    assert not set(forbidden_numbers(machine).values()) & set(numbers(machine).values())


@pytest.mark.parametrize("machine", MACHINES)
def test_the_dangerous_calls_have_the_numbers_of_the_linux_headers(machine: str) -> None:
    known = header_numbers(machine)
    ours = forbidden_numbers(machine)
    assert ours == {name: known.get(name) for name in ours}


@pytest.mark.parametrize("machine", MACHINES)
def test_no_number_has_two_names(machine: str) -> None:
    assert len(set(numbers(machine).values())) == len(numbers(machine))


def test_every_answer_and_guard_is_about_a_call_in_the_table() -> None:
    assert {*ANSWERS, *guards(own_pid=1)} <= set(NUMBERS)
