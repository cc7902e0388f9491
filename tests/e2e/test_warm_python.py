"""A script that the fork server starts is what a Python of its own would make of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from own_processes import is_running, survivors
from warm_python import WarmPython, start_cold

pytestmark = pytest.mark.slow

PROBE = """
import faulthandler, json, os, resource, signal, sys, threading

faulthandler.unregister(signal.SIGUSR2)  # what tells a hanging command's stacks

def status(name):
    rows = open("/proc/self/status").read().splitlines()
    return next(row.split(None, 1)[1] for row in rows if row.startswith(name))

def stream(one):
    buffering = [one.line_buffering, one.write_through]
    return [one.encoding, one.errors, *buffering, one.isatty(), one.seekable()]

print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "name": __name__,
    "file": __file__,
    "executable": [sys.executable, os.readlink("/proc/self/exe")],
    "flags": list(sys.flags),
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "targets": [os.readlink(f"/proc/self/fd/{number}") for number in range(3)],
    "descriptors": len(os.listdir("/proc/self/fd")),
    "leads its session": os.getsid(0) == os.getpid(),
    "signals": [status(name) for name in ("SigBlk", "SigIgn", "SigCgt")],
    "umask": status("Umask"),
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "threads": [threading.active_count(), int(status("Threads"))],
    "sigint": repr(signal.getsignal(signal.SIGINT)).split(" at ")[0],
    "ours": sorted(name for name in sys.modules if name.startswith("repl_")),
}))
"""


@pytest.fixture(params=[True, False], ids=["cold", "warm"])
def cold(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def run(
    python: WarmPython,
    folder: Path,
    script: str,
    *arguments: str,
    cold: bool = False,
    more: Mapping[str, str] | None = None,
    ignores_sigint: bool = False,
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a script."""
    start = start_cold if cold else python.start
    (folder / "script.py").write_text(textwrap.dedent(script))
    with (
        open(os.devnull) as nothing,
        (folder / "out").open("w+") as out,
        (folder / "err").open("w+") as err,
    ):
        process = start(
            *(str(folder / "script.py"), *arguments),
            cwd=folder,
            env={**python.environment, **(more or {})},
            streams=(nothing, out, err),
            ignores_sigint=ignores_sigint,
        )
        code = process.wait(60)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


@pytest.mark.parametrize("ignores_sigint", [False, True])
def test_a_script_finds_what_it_would_find_in_a_python_of_its_own(
    warm_python: WarmPython, tmp_path: Path, ignores_sigint: bool
) -> None:
    def probe(*, cold: bool) -> Any:
        code, out, err = run(
            *(warm_python, tmp_path, PROBE, "one", "--two"),
            cold=cold,
            more={"REPL_RL_CACHE": "a"},
            ignores_sigint=ignores_sigint,
        )
        assert (code, err) == (0, "")
        return json.loads(out)

    cold, warm = probe(cold=True), probe(cold=False)
    assert cold["environment"]["REPL_RL_CACHE"] == "a"
    assert cold["ours"] == []
    assert warm == cold


ENDS = {
    "": (0, ""),
    "import sys; sys.exit(3)": (3, ""),
    "import sys; sys.exit('no')": (1, "no\n"),
    "import os; os._exit(4)": (4, ""),
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": (-9, ""),
    "import atexit, sys; atexit.register(print, 'bye', file=sys.stderr)": (0, "bye\n"),
    # Python waits for threads, then runs what is left to the end of them all.
    "import threading, time, sys\n"
    "def late():\n    time.sleep(0.2); print('late', file=sys.stderr)\n"
    "threading.Thread(target=late).start()": (0, "late\n"),
}


@pytest.mark.parametrize("script", ENDS)
def test_a_script_ends_as_it_would_in_a_python_of_its_own(
    warm_python: WarmPython, tmp_path: Path, script: str, cold: bool
) -> None:
    code, _, err = run(warm_python, tmp_path, script, cold=cold)
    assert (code, err) == ENDS[script]


def test_what_a_script_does_not_catch_is_its_last_row(
    warm_python: WarmPython, tmp_path: Path, cold: bool
) -> None:
    code, _, err = run(warm_python, tmp_path, "1 / 0", cold=cold)
    assert (code, err.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")


def test_a_script_leaves_nothing_to_the_next(warm_python: WarmPython, tmp_path: Path) -> None:
    first = "import os, random, sys; os.environ['MINE'] = sys.mine = '1'; print(random.random())"
    then = (
        "import os, random, sys; print(random.random(), 'MINE' in os.environ, hasattr(sys, 'mine'))"
    )
    _, drawn, _ = run(warm_python, tmp_path, first)
    code, out, _ = run(warm_python, tmp_path, then)
    number, *found = out.split()
    assert (code, found) == (0, ["False", "False"])
    assert number != drawn.strip()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_script_starts_processes_of_its_own(
    warm_python: WarmPython, tmp_path: Path, method: str, cold: bool
) -> None:
    script = f"""
    import multiprocessing, subprocess, sys
    def square(n):
        return n * n
    if __name__ == "__main__":
        with multiprocessing.get_context({method!r}).Pool(1) as pool:
            print(pool.map(square, [3]), flush=True)
        print(subprocess.run([sys.executable, "-c", "print(4)"], capture_output=True).stdout)
    """
    code, out, err = run(warm_python, tmp_path, script, cold=cold)
    assert (code, out, err) == (0, "[9]\nb'4\\n'\n", "")


def test_an_environment_that_imports_would_have_read_is_refused(
    warm_python: WarmPython, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"\['HF_ENDPOINT'\] differ"):
        run(warm_python, tmp_path, "", more={"HF_ENDPOINT": "elsewhere"})


OWNER = """
import os, sys, time
from pathlib import Path
from warm_python import WarmPython

with WarmPython(os.environ) as python, open(os.devnull, "r+") as nothing:
    script = python.start(
        sys.argv[1], cwd=Path(), env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        streams=(nothing, nothing, nothing),
    )
    print(script.pid, python.pid, flush=True)
    time.sleep(600)
"""


def test_server_and_scripts_die_with_the_process_that_they_serve(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(600)")
    (tmp_path / "owner.py").write_text(OWNER)
    support = str(Path(__file__).parents[1] / "support")
    with subprocess.Popen(
        [sys.executable, "owner.py", "sleeps.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": support},
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        processes = [psutil.Process(int(word)) for word in owner.stdout.readline().split()]
        assert all(map(is_running, processes))
        owner.send_signal(signal.SIGKILL)
    assert survivors(processes) == []
