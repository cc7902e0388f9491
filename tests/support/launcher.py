"""Start a script as several processes that train as one, as torchrun does, by forks of this one.

    python launcher.py NUM SCRIPT ARGUMENTS

Their process ids are in the file `ranks`, a row each. Ends when all have ended, with the exit code
of the first, and ends none of them itself.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
from pathlib import Path


def main(num_ranks: int, words: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pids = []
    for rank in range(num_ranks):
        pid = os.fork()
        if pid == 0:
            os.environ |= {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(num_ranks),
            }
            sys.argv[:] = words
            runpy.run_path(words[0], run_name="__main__")
            return
        pids.append(pid)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Path("ranks").write_text("".join(f"{pid}\n" for pid in pids))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    sys.exit(codes[0])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
