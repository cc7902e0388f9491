"""A run that is pushed, from outside: a hub that refuses costs nothing, and one process asks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from push_hub import PushHub, open_hub
from small_run import set_words, small
from warm_python import SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

LAUNCHER = str(Path(__file__).parents[1] / "support" / "launcher.py")


@pytest.fixture
def hub() -> Iterator[PushHub]:
    with open_hub() as made:
        yield made


def run(hub: PushHub, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of its own, which reads the hub's address when it starts."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.address,
        "HF_TOKEN": "hf_mine",
        "HF_HUB_OFFLINE": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "COLUMNS": "500",
    }
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_a_hub_that_refuses_costs_a_line_and_a_resumed_run_is_pushed(
    hub: PushHub, tiny_model: Path, tmp_path: Path
) -> None:
    hub.statuses["commit/main"] = 403
    given = ("--model", str(tiny_model), "--output", "run", *set_words("report.hub=me/it"))
    ended = run(hub, tmp_path, SCRIPT, "train", *given, *small(grpo__steps=1))
    assert ended.returncode == 0, ended.stderr
    warnings = [row for row in ended.stdout.splitlines() if row.startswith("warning: ")]
    assert warnings == [
        "warning: the weights are not on the hub: me/it did not take it: 403 Forbidden; push them "
        "with: repl-rl push run/checkpoints/final me/it"
    ]
    hub.statuses.clear()
    ended = run(hub, tmp_path, SCRIPT, "train", "--resume", "run", *set_words("grpo.steps=2"))
    assert ended.returncode == 0, ended.stderr
    assert f"\non the hub: {hub.address}/me/it\n" in ended.stdout
    final = tmp_path / "run" / "checkpoints" / "final"
    assert hub.files["model.safetensors"] == (final / "model.safetensors").read_bytes()
    assert hub.files["README.md"] == (final / "README.md").read_bytes()
    text = hub.files["README.md"].decode()
    assert "| steps | 2 |" in text
    assert str(tiny_model.parent) not in text


@pytest.mark.long
@pytest.mark.timeout(300)
def test_of_two_processes_one_pushes_the_merged_model(
    hub: PushHub, tiny_model: Path, tmp_path: Path
) -> None:
    settings = small(grpo__steps=1, grpo__problems_per_step=2)
    lora = set_words("report.hub=me/it", "lora.rank=4")
    words = ("train", "--model", str(tiny_model), "--output", "run", "--merge", *settings, *lora)
    ended = run(hub, tmp_path, LAUNCHER, "2", SCRIPT, *words)
    assert ended.returncode == 0, ended.stderr
    assert hub.asked.count("/api/whoami-v2") == 1
    assert sum("/commit/" in path for path in hub.asked) == 1
    checkpoints = tmp_path / "run" / "checkpoints"
    merged = (checkpoints / "merged" / "model.safetensors").read_bytes()
    assert hub.files["model.safetensors"] == merged
    assert "adapter_config.json" not in hub.files
    cards = {name: ModelCard.load(checkpoints / name / "README.md") for name in ("final", "merged")}
    assert {name: card.data.get("library_name") for name, card in cards.items()} == {
        "final": "peft",
        "merged": "transformers",
    }
