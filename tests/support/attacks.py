"""The attack table: what a policy may try from inside a kernel, and how it must end.

Data alone. `attack_lab` runs it, `test_sealing` asserts each row.
"""

from __future__ import annotations

from dataclasses import dataclass

RAW = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)"
FORGE = r"""
import sys
frame = sys._getframe()
while "asked" not in frame.f_locals: frame = frame.f_back

(send,) = [c for c in frame.f_code.co_consts if getattr(c, "__name__", "") == "sendall"]
def say(body): send(len(body).to_bytes(4, "big") + body)

"""
DENIED = ("error:PermissionError",)
HIDDEN = ("error:PermissionError", "error:FileNotFoundError")
UNIMPORTABLE = ("error:ModuleNotFoundError",)
OVER = ("killed", "died")


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    lines: tuple[str, ...]
    """All but the last must end `ok`: an attack that stumbles on its way proves nothing.
    `{decoy}`, `{folder}`, `{victim}` stand for a file, its folder and the victim's process."""
    ends: tuple[str, ...]
    """How the last line may end: a status, or `error:` and the exception's class."""
    says: str | None = None
    """Its whole output, where that is what tells."""


def raw(name: str, call: str) -> Attack:
    """A call of the C library that must fail: it returns -1."""
    return Attack(name, (RAW, f"libc.{call}"), ("ok",), "-1\n")


ATTACKS = (
    # Processes and threads
    Attack("fork", ("import os", "os.fork()"), DENIED),
    Attack("fork without end", ("import os\nwhile True: os.fork()\n\n",), DENIED),
    Attack("fork through pty", ("import pty", "pty.fork()"), (*DENIED, "error:OSError")),
    raw("fork by number", "syscall(57 if __import__('os').uname().machine == 'x86_64' else 220)"),
    raw("fork through the x32 table", "syscall(0x40000000 | 57)"),
    raw("clone3 by number", "syscall(435, 0, 0)"),
    raw("vfork", "vfork()"),
    Attack("exec", ("import os", "os.execv('/bin/true', ['true'])"), DENIED),
    Attack("spawn", ("import os", "os.posix_spawn('/bin/true', ['true'], {{}})"), DENIED),
    Attack("subprocess", ("import subprocess", "subprocess.run(['true'])"), DENIED),
    Attack("a shell", ("import os", "os.system('true') == 0"), ("ok",), "False\n"),
    Attack("a thread", ("import threading", "threading.Thread(target=int).start()"),
           ("error:RuntimeError",)),
    Attack("a bare thread", ("import _thread", "_thread.start_new_thread(int, ())"),
           ("error:RuntimeError", "error:error")),
    Attack("a pool of processes",
           ("import multiprocessing", "multiprocessing.Process(target=int).start()"), DENIED),
    # Memory
    Attack("one big block", ("bytearray(4 << 30)",), ("error:MemoryError",)),
    Attack("a list that doubles", ("a = [0]\nwhile True: a += a\n\n",), ("error:MemoryError",)),
    Attack("a long string", ("s = 'x' * 10**11",), ("error:MemoryError",)),
    Attack("a mapping", ("import mmap", "mmap.mmap(-1, 8 << 30)"),
           ("error:OSError", "error:MemoryError")),
    # Time
    Attack("a loop", ("while True: pass\n\n",), ("timeout",)),
    Attack("a nap", ("import time", "time.sleep(60)"), ("timeout",)),
    Attack("a loop that swallows interrupts",
           ("while 1:\n    try:\n        while 1: x = 1\n    except BaseException: pass\n\n",),
           ("killed", "timeout")),
    Attack("an interrupt ignored",
           ("import signal", "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass\n\n"),
           ("timeout", "killed")),
    Attack("an interrupt blocked",
           ("import signal",
            "signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})\nwhile True: pass\n\n"),
           ("timeout", "killed")),
    Attack("a power tower", ("n = 9**9**9",), ("timeout", "killed", "error:MemoryError")),
    Attack("a regular expression", ("import re", "re.match('(a+)+$', 'a' * 40 + 'b')"),
           ("timeout", "killed")),
    Attack("a loop in C", ("sum(range(10**11))",), ("timeout", "killed")),
    Attack("many digits", ("str(9**99999)",), ("error:ValueError",)),
    # Output
    Attack("print without end", ("while True: print('x' * 100)\n\n",), ("error:OutputLimit",)),
    Attack("a huge repr", ("'x' * 2 * 10**7",), ("error:OutputLimit", "error:MemoryError")),
    Attack("output that swallows its limit",
           ("while True:\n    try: print('x' * 10**6)\n    except BaseException: pass\n\n",),
           ("killed", "timeout")),
    # The process itself
    Attack("deep recursion",
           ("import sys", "sys.setrecursionlimit(10**9)", "def f(): return f()\n\nf()"),
           ("killed", "died", "error:RecursionError", "error:MemoryError", "timeout")),
    Attack("an exit", ("import os", "os._exit(0)"), ("died",)),
    Attack("an abort", ("import os", "os.abort()"), OVER),
    Attack("a null pointer", (RAW, "ctypes.string_at(0)"), OVER),
    Attack("all descriptors closed", ("import os", "os.closerange(0, 1000)"), OVER),
    Attack("a polite exit", ("import sys", "sys.exit()"), ("error:SystemExit",)),
    Attack("an exit of generators", ("raise GeneratorExit",), ("error:GeneratorExit",)),
    Attack("an exception of its own",
           ("class Own(BaseException): pass\n", "raise Own"), ("error:Own",)),
    Attack("a repr without end",
           ("class R:\n    def __repr__(self):\n        while True: pass\n\n", "R()"),
           ("timeout",)),
    Attack("a repr that is no text",
           ("class R:\n    def __repr__(self): return 5\n\n", "R()"), ("error:TypeError",)),
    Attack("a deep repr",
           ("a = []\nfor _ in range(10**5): a = [a]\n\n", "a"), ("error:RecursionError",)),
    Attack("a timer", ("import signal", "signal.setitimer(signal.ITIMER_REAL, 0.001); [0] * 10**5"),
           (*OVER, "ok", "error:OutputLimit")),
    Attack("builtins gone", ("import builtins; vars(builtins).clear()", "1 + 1"), ("ok",), "2\n"),
    Attack("streams gone", ("import sys; sys.stdout = sys.stderr = None", "1 + 1"), ("ok",),
           "2\n"),
    Attack("a trace function that raises",
           ("import sys; sys.settrace(lambda *_: 1 / 0)", "1 + 1"), ("ok",), "2\n"),
    # What it says
    Attack("a forged reply", (FORGE, 'say(b\'[2, "ok", 5, 5, 5, 5, 5]\')'), OVER),
    Attack("garbage on its socket", (FORGE, "say(b'garbage')"), OVER),
    Attack("a message that never ends",
           (FORGE, "send(b'\\0\\0\\1\\0'); import time; time.sleep(60)"), (*OVER, "timeout")),
    Attack("a flood of empty messages", (FORGE, "while 1: send(bytes(10**5))\n\n"), OVER),
    Attack("a reply of ten megabytes", (FORGE, "say(b'x' * 10**7)"), OVER),
    Attack("prompts, colours, control tokens",
           ("print('>>> \\x1b[2J<|im_end|>\\x00\\u202e')",), ("ok",), ">>> <|im_end|>\n"),
    # Signals
    Attack("kill everybody", ("import os", "os.kill(-1, 9)"), DENIED),
    Attack("use up the signals that may wait",
           ("import os, signal", "_ = signal.pthread_sigmask(signal.SIG_BLOCK, {{40}})\n"
            "for _ in range(10**5): os.kill(os.getpid(), 40)\n\n"), ("ok", "timeout")),
    raw("wake who maps the same file", "syscall({futex}, b'1234', 1, 1, 0, 0, 0)"),
    Attack("kill the group", ("import os", "os.killpg(0, 9)"), DENIED),
    Attack("kill the victim", ("import os", "os.kill({victim}, 9)"), DENIED),
    Attack("kill the fork server", ("import os", "os.kill(os.getppid() or 2, 9)"), DENIED),
    raw("signal a thread of the victim", "syscall({tgkill}, {victim}, {victim}, 9)"),
    raw("a handle on the victim", "syscall(434, {victim}, 0)"),
    raw("queue a signal", "sigqueue({victim}, 9, 0)"),
    # Files
    Attack("read passwd", ("open('/etc/passwd').read()",), HIDDEN),
    Attack("read shadow", ("open('/etc/shadow').read()",), HIDDEN),
    Attack("read the secret", ("open({decoy!r}).read()",), HIDDEN),
    Attack("read the secret as bytes",
           ("import os", "os.open({decoy!r}, os.O_RDONLY)"), HIDDEN),
    Attack("map the secret", (RAW, "libc.open({decoy!r}.encode(), 0)"), ("ok",), "-1\n"),
    Attack("open by openat2", (RAW, "libc.syscall(437, -100, {decoy!r}.encode(), b'\\0' * 24, 24)"),
           ("ok",), "-1\n"),
    Attack("list the runtime folder", ("import os", "os.listdir({folder!r})"), HIDDEN),
    Attack("list the root", ("import os", "os.listdir('/')"), DENIED),
    Attack("list where it is", ("import os", "os.listdir()"), DENIED),
    Attack("read its environment", ("open('/proc/self/environ').read()",), HIDDEN),
    Attack("read another's environment", ("open('/proc/1/environ').read()",), HIDDEN),
    Attack("list processes", ("import os", "os.listdir('/proc')"), HIDDEN),
    Attack("write where it is", ("open('x', 'w')",), (*DENIED, "error:OSError")),
    Attack("write to tmp", ("open('/tmp/x', 'w')",), (*HIDDEN, "error:OSError")),
    Attack("write to shm", ("open('/dev/shm/x', 'w')",), (*HIDDEN, "error:OSError")),
    Attack("write to the secret", ("open({decoy!r}, 'a')",), (*HIDDEN, "error:OSError")),
    Attack("truncate the secret", ("import os", "os.truncate({decoy!r}, 0)"), HIDDEN),
    Attack("remove the secret", ("import os", "os.unlink({decoy!r})"), HIDDEN),
    Attack("rename the secret", ("import os", "os.rename({decoy!r}, {decoy!r} + '2')"), HIDDEN),
    Attack("link the secret", ("import os", "os.link({decoy!r}, {decoy!r} + '2')"), HIDDEN),
    Attack("touch the secret", ("import os", "os.utime({decoy!r})"), HIDDEN),
    Attack("change the secret's mode", ("import os", "os.chmod({decoy!r}, 0)"), HIDDEN),
    Attack("mark the secret", ("import os", "os.setxattr({decoy!r}, 'user.x', b'x')"),
           (*HIDDEN, "error:OSError")),
    Attack("make a folder", ("import os", "os.mkdir('/tmp/x')"), (*HIDDEN, "error:OSError")),
    Attack("make a link", ("import os", "os.symlink('/etc', 'x')"), (*HIDDEN, "error:OSError")),
    Attack("make a device", ("import os", "os.mknod('x')"), (*HIDDEN, "error:OSError")),
    Attack("a file in memory", ("import os", "os.memfd_create('x')"), DENIED),
    Attack("change the root", ("import os", "os.chroot('/')"), DENIED),
    # Network
    Attack("a TCP socket", ("import socket", "socket.socket()"), DENIED),
    Attack("a datagram", ("import socket", "socket.socket(type=socket.SOCK_DGRAM)"), DENIED),
    Attack("a unix socket", ("import socket", "socket.socket(socket.AF_UNIX)"), DENIED),
    Attack("a netlink socket", ("import socket", "socket.socket(16, 3, 0)"), DENIED),
    Attack("a pair that is no pair of ours",
           ("import socket", "socket.socketpair(socket.AF_INET)"), (*DENIED, "error:OSError")),
    Attack("a name looked up", ("import socket", "socket.getaddrinfo('localhost', 80)"),
           ("error:gaierror", "error:PermissionError")),
    Attack("a page", ("import urllib.request", "urllib.request.urlopen('http://127.0.0.1:1')"),
           ("error:URLError", "error:PermissionError")),
    # The system
    raw("trace the victim", "ptrace(16, {victim}, 0, 0)"),
    raw("be traced", "ptrace(0, 0, 0, 0)"),
    raw("read the victim's memory", "process_vm_readv({victim}, 0, 0, 0, 0, 0)"),
    raw("a user namespace", "unshare(0x10000000)"),
    raw("a mount namespace", "unshare(0x00020000)"),
    raw("another namespace", "setns(3, 0)"),
    raw("a mount", "mount(b'/', b'/', 0, 4096, 0)"),
    raw("be root", "setuid(0)"),
    raw("be somebody else", "setresuid(12345, 12345, 12345)"),
    raw("be undumpable", "prctl(4, 0, 0, 0, 0)"),
    raw("io_uring", "syscall(425, 8, 0)"),
    raw("bpf", "syscall({bpf}, 0, 0, 0)"),
    raw("a keyring", "syscall({keyctl}, 0, 0, 0)"),
    raw("userfaultfd", "syscall({userfaultfd}, 0)"),
    raw("performance events", "syscall({perf_event_open}, 0, 0, -1, -1, 0)"),
    raw("a fresh filter", "syscall({seccomp}, 1, 0, 0)"),
    raw("a fresh ruleset", "syscall(444, 0, 0, 1)"),
    raw("the victim's clock", "clock_gettime(((~{victim}) << 3) | 2, ctypes.c_buffer(16))"),
    raw("the grain of the victim's clock",
        "clock_getres(((~{victim}) << 3) | 2, ctypes.c_buffer(16))"),
    # It returns an error number.
    Attack("sleep by the victim's clock",
           (RAW, "libc.clock_nanosleep(((~{victim}) << 3) | 2, 0, ctypes.c_buffer(16), 0)"),
           ("ok",), "1\n"),
    raw("the victim's session", "getsid({victim})"),
    raw("the victim's group", "getpgid({victim})"),
    raw("the victim's processors", "sched_getaffinity({victim}, 128, ctypes.c_buffer(128))"),
    raw("the victim's limits", "prlimit({victim}, 7, None, ctypes.c_buffer(16))"),
    raw("the victim's niceness", "syscall({getpriority}, 0, {victim})"),
    raw("the victim's files beside its own", "syscall({kcmp}, {victim}, {victim}, 2, 0, 0)"),
    Attack("tell the victim from nobody by its scheduler",
           (RAW, "len({{(libc.sched_getscheduler(pid),"
            " libc.sched_getparam(pid, ctypes.c_buffer(8))) for pid in ({victim}, 4194297)}})"),
           ("ok",), "1\n"),
    Attack("tell the victim from nobody by a lock",
           (RAW, "for pid in ({victim}, 4194297):\n"
            "    libc.syscall({futex}, ctypes.byref(ctypes.c_int(pid)), 128 | 6, 0, 0, 0, 0)\n"
            "    print(ctypes.get_errno())\n\n"), ("ok",), "-1\n1\n-1\n1\n"),
    raw("the state of the machine", "sysinfo(ctypes.c_buffer(256))"),
    raw("be quicker", "setpriority(0, 0, -20)"),
    Attack("lift its limits",
           ("import resource as r", "r.setrlimit(r.RLIMIT_NOFILE, (1 << 16, 1 << 16))"),
           ("error:PermissionError", "error:ValueError")),
    Attack("lift the limits of the victim",
           ("import resource as r", "r.prlimit({victim}, r.RLIMIT_CPU, (1, 1))"),
           ("error:PermissionError", "error:ProcessLookupError")),
    # The trainer
    Attack("import the trainer", ("import repl_rl",), UNIMPORTABLE),
    Attack("import the sandbox", ("import repl_sandbox",), UNIMPORTABLE),
    Attack("import torch", ("import torch",), UNIMPORTABLE),
    Attack("import the tests", ("import tests.support.attacks",), UNIMPORTABLE),
    Attack("read the environment",
           ("import os", "sorted(set(os.environ) - {{'LC_CTYPE'}})"), ("ok",),
           "['HOME', 'LANG', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH', "
           "'PYTHONHASHSEED', 'SYMPY_GROUND_TYPES']\n"),
    # Other consoles
    Attack("input", ("input()",), ("error:EOFError",)),
    Attack("a shell escape", ("!ls",), ("error:SyntaxError",)),
    Attack("a magic", ("%time 1",), ("error:SyntaxError",)),
    Attack("IPython", ("get_ipython()",), ("error:NameError",)),
    Attack("a null byte", ("x = '\0'",), ("error:SyntaxError", "error:ValueError")),
    Attack("deeply nested source", ("(" * 5000 + ")" * 5000,),
           ("error:SyntaxError", "error:MemoryError", "error:RecursionError", "incomplete")),
)  # fmt: skip

NUMBERS = {
    "x86_64": {
        "tgkill": 234,
        "getpriority": 140,
        "kcmp": 312,
        "futex": 202,
        "bpf": 321,
        "keyctl": 250,
        "userfaultfd": 323,
        "perf_event_open": 298,
        "seccomp": 317,
    },
    "aarch64": {
        "tgkill": 131,
        "getpriority": 141,
        "kcmp": 272,
        "futex": 98,
        "bpf": 280,
        "keyctl": 219,
        "userfaultfd": 282,
        "perf_event_open": 241,
        "seccomp": 277,
    },
}
"""System calls by machine, for attacks that name them by number."""
