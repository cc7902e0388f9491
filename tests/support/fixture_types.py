"""Types of the fixtures that several folders share, for those who ask for them.

They are made in tests/conftest.py and tests/replay/conftest.py, which say how each is called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from repl_rl.records import OutcomeKind, Scored, Trajectory
from repl_rl.runs.trajectory_file import StoredTrajectory
from repl_rl.viewer.replay.scene import Scene

Part = tuple[str, OutcomeKind, str | None]
"""(sampled source, its outcome, the injected text that follows it or None)."""

Play = Callable[..., Trajectory]
MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
MakeScene = Callable[..., Scene]
Record = Callable[..., Coroutine[Any, Any, Scored]]
Store = Callable[..., list[StoredTrajectory]]
WithLine = Callable[..., Scored]
