"""Laws of what `repl-rl serve-env` serves, without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.commands import serve_env as command
from repl_rl.config import Config


def test_no_file_makes_a_starters_environment_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., tuple[int, str, str]]
) -> None:
    """A policy from elsewhere has no starter's limits: 24 lines, not 10."""
    served: list[Config] = []

    async def serve(config: Config, *_: Any, **__: Any) -> None:
        served.append(config)

    monkeypatch.setattr(command, "_serve", serve)
    file = tmp_path / "own.toml"
    file.write_text('preset = "starter"\n')
    assert call("serve-env", "--config", str(file), "--port", "0")[0] == 0
    assert (served[0].preset, served[0].sampling.max_lines) == ("none", 24)
