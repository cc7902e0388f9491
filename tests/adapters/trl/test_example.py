"""The script that the documents show."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import repl_rl as rr
from tiny_model import save_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.kernel, pytest.mark.train, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parents[3] / "examples" / "train_with_trl.py"


def test_the_script_trains_and_leaves_what_commands_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.chdir(tmp_path)
    model = save_tiny_model(tmp_path / "tiny")
    runpy.run_path(str(SCRIPT))["main"](str(model), "runs/trl", 1)
    stored = list(rr.load_run(Path("runs/trl")))
    assert [item.trajectory.sibling_index for item in stored] == [0, 1, 2, 3, 4, 5, 6, 7] * 8
    assert (tmp_path / "runs/trl/checkpoints/final/model.safetensors").is_file()
