"""Linux's Landlock: a kernel's reach into the file system, the network and other processes.

fork server: make_ruleset -> [fork -> kernel: restrict]*

A ruleset names the rights that it handles. A handled right is denied wherever no rule allows it.
Our rules allow reading below some folders. A thread is restricted for good, and so is all that it
starts, but not the threads beside it: call `restrict` before the first of them starts. Looking at a
path (`stat`) is not a right, and is never denied. Knows rights and paths. Does not know which paths
a kernel needs.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from repl_sandbox.walls.syscalls import call

# The same numbers on every machine.
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
LOG_SAME_EXEC_OFF = 1

EXECUTE = 1 << 0
READ_FILE = 1 << 2
READ_DIR = 1 << 3

# ABI -> the number of rights that it and later ones know. Each right is a bit, from the lowest on.
NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16, 9: 17}
NUM_NETWORK_RIGHTS = {4: 2}
NUM_SCOPES = {6: 2}


def abi() -> int:
    """The version of Landlock in this Linux; 0 if it has none or does not let us use it."""
    try:
        return call(LANDLOCK_CREATE_RULESET, 0, 0, CREATE_RULESET_VERSION)
    except OSError:
        return 0


def handled_rights(version: int) -> tuple[int, int, int]:
    """All that an ABI can deny: rights on files, rights on TCP ports, ways out of the own domain.

    Example: `handled_rights(4)` is `(0x7FFF, 0x3, 0x0)`. A later ABI counts as the last one known.
    """
    file_rights, network_rights, scopes = (
        (1 << max((num for since, num in table.items() if since <= version), default=0)) - 1
        for table in (NUM_FILE_RIGHTS, NUM_NETWORK_RIGHTS, NUM_SCOPES)
    )
    return file_rights, network_rights, scopes


def make_ruleset(readable: Sequence[Path]) -> int:
    """A descriptor of rules for `restrict`. It is closed on exec, else by the caller.

    The files of `readable`, and what is below its folders, may be read and executed. A path that
    does not exist is skipped. OSError without Landlock.
    """
    attributes = struct.pack("=QQQ", *handled_rights(abi()))
    ruleset = call(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in readable:
            _allow_reading(ruleset, path)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def restrict(ruleset: int) -> None:
    """Bind this thread and all that it starts to the rules. The caller has set `no_new_privs`."""
    # Otherwise each refusal is a line in the audit log of the machine.
    call(LANDLOCK_RESTRICT_SELF, ruleset, LOG_SAME_EXEC_OFF if abi() >= 7 else 0)


def _allow_reading(ruleset: int, path: Path) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        rights = READ_FILE | EXECUTE
        # Linux refuses a rule that gives a file the rights of a folder.
        if stat.S_ISDIR(os.fstat(parent).st_mode):
            rights |= READ_DIR
        call(LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", rights, parent), 0)
    finally:
        os.close(parent)
