"""Landlock denies all that it can but reading where we said; each test in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repl_sandbox.walls import landlock

DEADLINE_S = 60
EVERYWHERE = ("inside", "outside")
PREPARE = """
import ctypes, errno, json, os, pathlib, signal, socket, sys, threading
from repl_sandbox.walls import landlock
def restrict(*readable):
    ruleset = landlock.make_ruleset([pathlib.Path(path) for path in readable])
    confine(ruleset)
    os.close(ruleset)
def confine(ruleset):
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    landlock.restrict(ruleset)
def outcome(attempt, *arguments):
    try: return attempt(*arguments) and "done" or "done"
    except OSError as error: return errno.errorcode[error.errno]
def report(*what): print(json.dumps(what), flush=True)
def read(path): return open(path).read()
"""


def since(version: int, what: str) -> pytest.MarkDecorator:
    have = landlock.abi()
    reason = f"{what}: Landlock has it from ABI {version} on, this Linux has ABI {have}"
    return pytest.mark.skipif(have < version, reason=reason)


needs_landlock = since(1, "anything")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With folders `inside` and `outside`, and in each a file `file` and a folder `empty`."""
    for where in EVERYWHERE:
        (tmp_path / where / "empty").mkdir(parents=True)
        (tmp_path / where / "file").write_text(where)
    return tmp_path


def reported(source: str, *, at: Path) -> list[object]:
    """Report of a source that runs in `at`, in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-c", PREPARE + f"os.chdir({str(at)!r})\n" + source],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert child.stderr == ""
    answer = json.loads(child.stdout)
    assert isinstance(answer, list)
    return answer


@pytest.mark.parametrize(
    ("version", "rights"),
    [
        (1, (0x1FFF, 0, 0)),
        (2, (0x3FFF, 0, 0)),  # REFER
        (3, (0x7FFF, 0, 0)),  # TRUNCATE
        (4, (0x7FFF, 3, 0)),  # BIND_TCP, CONNECT_TCP
        (5, (0xFFFF, 3, 0)),  # IOCTL_DEV
        (6, (0xFFFF, 3, 3)),  # abstract unix sockets, signals
        (8, (0xFFFF, 3, 3)),
        (9, (0x1FFFF, 3, 3)),  # RESOLVE_UNIX
        (99, (0x1FFFF, 3, 3)),
    ],
)
def test_every_abi_denies_all_that_it_knows(version: int, rights: tuple[int, int, int]) -> None:
    assert landlock.handled_rights(version) == rights


@needs_landlock
def test_what_is_inside_can_be_read(folder: Path) -> None:
    source = "restrict('inside'); report(read('inside/file'), os.listdir('inside/empty'))"
    assert reported(source, at=folder) == ["inside", []]


@needs_landlock
@pytest.mark.parametrize("where", EVERYWHERE)
def test_only_what_is_inside_can_be_executed(folder: Path, where: str) -> None:
    (folder / where / "file").chmod(0o700)
    source = f"restrict('inside'); report(outcome(os.execv, '{where}/file', ['file']))"
    # Neither is a program.
    assert reported(source, at=folder) == ["ENOEXEC" if where == "inside" else "EACCES"]


@needs_landlock
@pytest.mark.parametrize("attempt", ["read, 'outside/file'", "os.listdir, 'outside'"])
def test_what_is_outside_cannot_be_read(folder: Path, attempt: str) -> None:
    assert reported(f"restrict('inside'); report(outcome({attempt}))", at=folder) == ["EACCES"]


@needs_landlock
@pytest.mark.parametrize("way", ["inside/../outside/file", "inside/link"])
def test_no_way_round_leads_outside(folder: Path, way: str) -> None:
    (folder / "inside" / "link").symlink_to(folder / "outside" / "file")
    source = f"restrict('inside'); report(outcome(read, {way!r}))"
    assert reported(source, at=folder) == ["EACCES"]


@needs_landlock
@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize(
    "attempt",
    [
        "os.open, '{}/file', os.O_WRONLY",
        "os.open, '{}/file', os.O_RDWR",
        "os.open, '{}/another', os.O_WRONLY | os.O_CREAT",
        "os.unlink, '{}/file'",
        "os.rmdir, '{}/empty'",
        "os.mkdir, '{}/another'",
        "os.rename, '{}/file', '{}/another'",
        "os.link, '{}/file', '{}/another'",
        "os.symlink, '{}/file', '{}/another'",
        "os.mkfifo, '{}/another'",
        "socket.socket(socket.AF_UNIX).bind, '{}/another'",
    ],
)
def test_nothing_can_be_written_anywhere(folder: Path, where: str, attempt: str) -> None:
    source = f"restrict('inside'); report(outcome({attempt.replace('{}', where)}))"
    assert reported(source, at=folder) == ["EACCES"]


@since(3, "truncation")
def test_a_file_inside_cannot_be_truncated(folder: Path) -> None:
    source = "restrict('inside'); report(outcome(os.truncate, 'inside/file', 0))"
    assert reported(source, at=folder) == ["EACCES"]


@needs_landlock
def test_a_file_may_be_given_without_its_neighbours(folder: Path) -> None:
    (folder / "inside" / "other").touch()
    source = "restrict('inside/file'); report(read('inside/file'), outcome(read, 'inside/other'))"
    assert reported(source, at=folder) == ["inside", "EACCES"]


@needs_landlock
@pytest.mark.parametrize("path", ["no/such/file", "inside/file/below"])
def test_a_path_that_does_not_exist_is_passed_over(folder: Path, path: Path) -> None:
    source = (
        f"restrict({path!r}, 'inside'); report(read('inside/file'), outcome(read, 'outside/file'))"
    )
    assert reported(source, at=folder) == ["inside", "EACCES"]


@needs_landlock
def test_what_was_open_before_stays_open(folder: Path) -> None:
    source = "kept = open('outside/file'); restrict('inside'); report(kept.read())"
    assert reported(source, at=folder) == ["outside"]


@needs_landlock
def test_only_threads_started_later_are_restricted(folder: Path) -> None:
    """The reason why a kernel restricts itself before zmq starts its threads."""
    source = """
found, restricted = [], threading.Event()
def look(): restricted.wait(); found.append(outcome(read, 'outside/file'))
def run(thread): thread.join(); return found.pop()
before = threading.Thread(target=look)
before.start()
restrict('inside')
after = threading.Thread(target=look)
restricted.set()
first = run(before)
after.start()
report(first, run(after))
"""
    assert reported(source, at=folder) == ["done", "EACCES"]


@needs_landlock
def test_one_ruleset_serves_many_children_and_spares_the_parent(folder: Path) -> None:
    source = """
ruleset = landlock.make_ruleset([pathlib.Path('inside')])
def child():
    pid = os.fork()
    if pid == 0:
        confine(ruleset)
        os._exit(read('inside/file') != 'inside' or outcome(read, 'outside/file') != 'EACCES')
    return os.waitpid(pid, 0)[1]
report(child(), child(), read('outside/file'))
"""
    assert reported(source, at=folder) == [0, 0, "outside"]


@needs_landlock
def test_a_ruleset_is_closed_on_exec() -> None:
    ruleset = landlock.make_ruleset([])
    try:
        assert not os.get_inheritable(ruleset)
    finally:
        os.close(ruleset)


@since(4, "TCP")
@pytest.mark.parametrize("attempt", ["bind(('127.0.0.1', 0))", "connect(('127.0.0.1', 9))"])
def test_tcp_is_denied(folder: Path, attempt: str) -> None:
    source = f"restrict('inside'); report(outcome(lambda: socket.socket().{attempt}))"
    assert reported(source, at=folder) == ["EACCES"]


@since(6, "scopes of abstract sockets")
def test_an_abstract_socket_outside_cannot_be_reached(folder: Path) -> None:
    source = """
listener = socket.socket(socket.AF_UNIX)
listener.bind('')  # Linux chooses an abstract name.
listener.listen()
restrict('inside')
report(outcome(socket.socket(socket.AF_UNIX).connect, listener.getsockname()))
"""
    assert reported(source, at=folder) == ["EPERM"]


SIBLINGS = """
ruleset = landlock.make_ruleset([])
ready, begin = os.pipe(), os.pipe()
def child(life):
    pid = os.fork()
    if pid == 0:
        confine(ruleset)
        os._exit(life())
    return pid
def victim(): os.write(ready[1], b'x'); os.read(begin[0], 1); return 0
def attacker():
    own = outcome(os.kill, os.getpid(), 0)
    return [own, outcome(os.kill, there, 0), outcome(os.kill, os.getppid(), 0)] != EXPECTED
EXPECTED = ['done', 'EPERM', 'EPERM']
there = child(victim)
os.read(ready[0], 1)
attacked = os.waitpid(child(attacker), 0)[1]
os.write(begin[1], b'x')
os.waitpid(there, 0)
report(attacked)
"""


@since(6, "scopes of signals")
def test_restricted_siblings_cannot_signal_each_other_or_their_parent(folder: Path) -> None:
    assert reported(SIBLINGS, at=folder) == [0]


@needs_landlock
def test_without_no_new_privs_a_plain_user_is_refused(folder: Path) -> None:
    source = """
if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)
report(outcome(landlock.restrict, landlock.make_ruleset([])))
"""
    assert reported(source, at=folder) == ["EPERM"]
