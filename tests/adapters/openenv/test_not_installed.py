"""What is said where the extra is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest


def test_the_command_says_what_installs_the_server(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, out, said = call("serve-env", "--port", "0")
    assert (code, out) == (2, "")
    assert said == (
        "repl-rl: uvicorn is not installed, but this command needs it; in a checkout of repl-rl: "
        "pip install --editable ./sandbox --editable '.[openenv]'\n"
    )
