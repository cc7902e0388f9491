"""A run in a terminal, as it is drawn: no part of a step goes without a bar."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
from pathlib import Path

import pytest

from small_run import small
from warm_python import SCRIPT, WarmPython

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]
ROWS, COLUMNS = 24, 80


def drawn(python: WarmPython, folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code of the command in a terminal of 80x24, and all that it ever drew there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {"TERM": "xterm-256color", "REPL_RL_CACHE": str(folder / "cache")}
    process = python.start(
        *(SCRIPT, *arguments),
        cwd=folder,
        env={**python.environment, **environment},
        streams=(theirs, theirs, theirs),
    )
    os.close(theirs)
    read = b""
    # Linux ends a terminal that nobody writes to any more with an error.
    with contextlib.suppress(OSError):
        while block := os.read(ours, 65536):
            read += block
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", read.decode())


def test_the_first_step_shows_what_it_is_doing(
    warm_python: WarmPython, tiny_model: Path, tmp_path: Path
) -> None:
    settings = small(grpo__steps=1, grpo__micro_batch_size=2)
    code, shown = drawn(
        *(warm_python, tmp_path, "train", "--model", str(tiny_model), "--output", "r"), *settings
    )
    assert code == 0, shown
    rows = [row.rstrip() for row in re.split(r"[\r\n]+", shown)]
    before_its_end = [row for row in rows if re.match(r"training .* 0/1 ", row)]
    assert before_its_end
    assert any(re.match(r"  sampling .* 0/4 ", row) for row in rows)
    assert any(re.match(r"  update .* 0/2 ", row) for row in rows)
    assert any(re.match(r"held-out, step 0 .* 0/2 ", row) for row in rows)
